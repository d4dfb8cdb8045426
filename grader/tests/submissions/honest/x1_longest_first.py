"""x1, its kernel alone: rows of tiles sorted by length, the longest first, and PARTIAL tiles before the others."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def kernel(
    Q, K, V, O, Lse, Starts, Order, Columns, Places, Bits,
    q_strides, k_strides, v_strides, o_strides, Nq, Nk, Hq, group, by_batch, by_head, scale,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    rows = tl.cdiv(Nq, BLOCK_Q)
    place = tl.load(Order + tl.program_id(0)).to(tl.int64)
    flat, i = place // rows, place % rows
    b, h = flat // Hq, flat % Hq
    row, column, d = tl.arange(0, BLOCK_Q), tl.arange(0, BLOCK_K), tl.arange(0, D)
    q_pos = i * BLOCK_Q + row
    Q += b * q_strides[0] + h * q_strides[1]
    K += b * k_strides[0] + (h // group) * k_strides[1]
    V += b * v_strides[0] + (h // group) * v_strides[1]
    q = tl.load(Q + q_pos[:, None].to(tl.int64) * q_strides[2] + d[None, :], mask=q_pos[:, None] < Nq, other=0.0)
    high = tl.full([BLOCK_Q], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK_Q], tl.float32)
    acc = tl.zeros([BLOCK_Q, D], tl.float32)
    own = Starts + ((b * by_batch + h * by_head) * rows + i) * 4
    causal, partial = tl.load(own + 1), tl.load(own + 2)
    first, end = tl.load(own), tl.load(own + 3)
    for step in range(0, end - first):
        entry = end - 1 - step
        k_pos = tl.load(Columns + entry) * BLOCK_K + column
        inside = k_pos[:, None] < Nk
        k = tl.load(K + k_pos[:, None].to(tl.int64) * k_strides[2] + d[None, :], mask=inside, other=0.0)
        v = tl.load(V + k_pos[:, None].to(tl.int64) * v_strides[2] + d[None, :], mask=inside, other=0.0)
        scores = tl.dot(q, tl.trans(k)) * scale
        if entry >= partial:
            place = tl.load(Places + entry).to(tl.int64)
            words = tl.load(Bits + (place * BLOCK_Q + row[:, None]) * (BLOCK_K // 32) + column[None, :] // 32)
            scores = tl.where((words >> (column % 32)[None, :]) & 1 == 1, scores, -float("inf"))
        elif entry >= causal:
            scores = tl.where(row[:, None] >= column[None, :], scores, -float("inf"))
        higher = tl.maximum(high, tl.max(scores, 1))
        safe = tl.where(higher > -float("inf"), higher, 0.0)
        fade, p = tl.exp(high - safe), tl.exp(scores - safe[:, None])
        total = total * fade + tl.sum(p, 1)
        acc = acc * fade[:, None] + tl.dot(p.to(v.dtype), v)
        high = higher
    o = acc / tl.maximum(total, 1e-30)[:, None]
    o_ptrs = O + b * o_strides[0] + h * o_strides[1] + q_pos[:, None].to(tl.int64) * o_strides[2] + d[None, :]
    tl.store(o_ptrs, o.to(O.dtype.element_ty), mask=q_pos[:, None] < Nq)
    tl.store(Lse + flat * Nq + q_pos, high + tl.log(tl.where(total > 0, total, 1.0)), mask=q_pos < Nq)


def block_sparse_attention(q, k, v, tiles, softmax_scale=None):
    B, Hq, Nq, D = q.shape
    o, lse = torch.empty_like(q), torch.empty(B, Hq, Nq, dtype=torch.float32, device=q.device)
    lengths = (tiles.starts[..., 3] - tiles.starts[..., 0]).view(tiles.batches, tiles.heads, -1)
    order = lengths.expand(B, Hq, -1).flatten().argsort(descending=True).to(torch.int32)
    kernel[(len(order),)](
        q, k, v, o, lse, tiles.starts, order, tiles.columns, tiles.places, tiles.bits,
        q.stride()[:3], k.stride()[:3], v.stride()[:3], o.stride()[:3], Nq, k.shape[2], Hq, Hq // k.shape[1],
        tiles.heads if tiles.batches > 1 else 0, int(tiles.heads > 1),
        1.0 / math.sqrt(D) if softmax_scale is None else softmax_scale, D, tiles.block_q, tiles.block_k,
    )  # fmt: skip
    return o, lse
