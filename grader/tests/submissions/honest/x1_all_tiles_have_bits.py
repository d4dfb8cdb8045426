"""x1, its kernel alone: the wrapper gives every entry bits, ones or a triangle, and the kernel knows one kind."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def kernel(
    Q, K, V, O, Lse, First, Columns, Bits,
    q_strides, k_strides, v_strides, o_strides, Nq, Nk, Hq, group, by_batch, by_head, scale,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    h, b, i = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64), tl.num_programs(2) - 1 - tl.program_id(2)
    row, column, d = tl.arange(0, BLOCK_Q), tl.arange(0, BLOCK_K), tl.arange(0, D)
    q_pos = i * BLOCK_Q + row
    q_ptrs = Q + b * q_strides[0] + h * q_strides[1] + q_pos[:, None].to(tl.int64) * q_strides[2] + d[None, :]
    q = tl.load(q_ptrs, mask=q_pos[:, None] < Nq, other=0.0)
    K += b * k_strides[0] + (h // group) * k_strides[1]
    V += b * v_strides[0] + (h // group) * v_strides[1]
    high = tl.full([BLOCK_Q], -1e30, tl.float32)  # finite: hidden scores are lower still
    total = tl.zeros([BLOCK_Q], tl.float32)
    acc = tl.zeros([BLOCK_Q, D], tl.float32)
    own = First + (b * by_batch + h * by_head) * (tl.num_programs(2) + 1) + i
    entry, after = tl.load(own), tl.load(own + 1)
    while entry < after:
        k_pos = tl.load(Columns + entry) * BLOCK_K + column
        k = tl.load(K + d[:, None] + k_pos[None, :].to(tl.int64) * k_strides[2], mask=k_pos[None, :] < Nk, other=0.0)
        scores = tl.dot(q, k) * (scale * 1.4426950408889634)  # k is (D, BLOCK_K)
        words = tl.load(Bits + (entry.to(tl.int64) * BLOCK_Q + row[:, None]) * (BLOCK_K // 32) + column[None, :] // 32)
        seen = ((words >> (column % 32)[None, :]) & 1) == 1
        higher = tl.maximum(high, tl.max(tl.where(seen, scores, -1e30), 1))
        p = tl.where(seen, tl.exp2(scores - higher[:, None]), 0.0)
        fade = tl.exp2(high - higher)
        total = total * fade + tl.sum(p, 1)
        v = tl.load(V + k_pos[:, None].to(tl.int64) * v_strides[2] + d[None, :], mask=k_pos[:, None] < Nk, other=0.0)
        acc = acc * fade[:, None] + tl.dot(p.to(v.dtype), v)
        high, entry = higher, entry + 1
    some = total > 0
    o = tl.where(some[:, None], acc / tl.where(some, total, 1.0)[:, None], 0.0)
    lse = tl.where(some, (high + tl.log2(tl.where(some, total, 1.0))) * 0.6931471805599453, -float("inf"))
    o_ptrs = O + b * o_strides[0] + h * o_strides[1] + q_pos[:, None].to(tl.int64) * o_strides[2] + d[None, :]
    tl.store(o_ptrs, o.to(O.dtype.element_ty), mask=q_pos[:, None] < Nq)
    tl.store(Lse + (b * Hq + h) * Nq + q_pos, lse, mask=q_pos < Nq)


def bits_of_all(tiles):
    """(entries, block_q, block_k / 32): those of PARTIAL entries, ones for FULL ones, a triangle for CAUSAL ones."""
    words, device = tiles.block_k // 32, tiles.bits.device
    row, bit = torch.arange(tiles.block_q, device=device), torch.arange(32, device=device)
    columns = torch.arange(words, device=device)[:, None] * 32 + bit
    triangle = ((row[:, None, None] >= columns) * (1 << bit)).sum(-1)
    triangle = torch.where(triangle >= 1 << 31, triangle - (1 << 32), triangle).to(torch.int32)
    _, causal, partial, end = tiles.starts.flatten(0, 1).unbind(1)
    entry = torch.arange(len(tiles.columns), device=device)
    bits = torch.full((len(entry), tiles.block_q, words), -1, dtype=torch.int32, device=device)
    for first, after, kind in ((causal, partial, "triangle"), (partial, end, "own")):
        inside = ((entry[:, None] >= first) & (entry[:, None] < after)).any(1)
        bits[inside] = triangle if kind == "triangle" else tiles.bits[tiles.places[inside].long()]
    return bits


def block_sparse_attention(q, k, v, tiles, softmax_scale=None):
    B, Hq, Nq, D = q.shape
    o, lse = torch.empty_like(q), torch.empty(B, Hq, Nq, dtype=torch.float32, device=q.device)
    first = torch.cat([tiles.starts[:, :, 0], tiles.starts[:, -1:, 3]], 1).contiguous()
    kernel[(Hq, B, triton.cdiv(Nq, tiles.block_q))](
        q, k, v, o, lse, first, tiles.columns, bits_of_all(tiles),
        q.stride()[:3], k.stride()[:3], v.stride()[:3], o.stride()[:3], Nq, k.shape[2], Hq, Hq // k.shape[1],
        tiles.heads if tiles.batches > 1 else 0, int(tiles.heads > 1),
        1.0 / math.sqrt(D) if softmax_scale is None else softmax_scale, D, tiles.block_q, tiles.block_k,
    )  # fmt: skip
    return o, lse
