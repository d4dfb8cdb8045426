"""Two nested loops over the keys: tl.range over groups of four tiles, and tl.static_range unrolls the four."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def unrolled_kernel(
    Q, K, V, O, qb, qh, qn, kb, kh, kn, vb, vh, vn, ob, oh, on, N, scale_log2,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    qb, qh, qn = tl.cast(qb, tl.int64), tl.cast(qh, tl.int64), tl.cast(qn, tl.int64)
    kb, kh, kn = tl.cast(kb, tl.int64), tl.cast(kh, tl.int64), tl.cast(kn, tl.int64)
    vb, vh, vn = tl.cast(vb, tl.int64), tl.cast(vh, tl.int64), tl.cast(vn, tl.int64)
    ob, oh, on = tl.cast(ob, tl.int64), tl.cast(oh, tl.int64), tl.cast(on, tl.int64)
    head, batch = tl.program_id(1), tl.program_id(2)
    d = tl.arange(0, D)
    q_pos = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    q = tl.load(Q + batch * qb + head * qh + q_pos[:, None] * qn + d[None, :], mask=q_pos[:, None] < N, other=0.0)
    row_max = tl.full([BLOCK_Q], float("-inf"), tl.float32)
    row_sum = tl.zeros([BLOCK_Q], tl.float32)
    acc = tl.zeros([BLOCK_Q, D], tl.float32)
    for group_start in tl.range(0, N, UNROLL * BLOCK_K, num_stages=1):
        for i in tl.static_range(UNROLL):
            # Tiles of the last group may lie past the end altogether: nothing of them is loaded, all is hidden.
            k_pos = group_start + i * BLOCK_K + tl.arange(0, BLOCK_K)
            live = k_pos[:, None] < N
            k = tl.load(K + batch * kb + head * kh + k_pos[:, None] * kn + d[None, :], mask=live, other=0.0)
            v = tl.load(V + batch * vb + head * vh + k_pos[:, None] * vn + d[None, :], mask=live, other=0.0)
            scores = tl.dot(q, tl.trans(k)) * scale_log2
            scores = tl.where(k_pos[None, :] < N, scores, float("-inf"))
            new_max = tl.maximum(row_max, tl.max(scores, 1))
            p = tl.exp2(scores - new_max[:, None])
            alpha = tl.exp2(row_max - new_max)
            row_sum = row_sum * alpha + tl.sum(p, 1)
            acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
            row_max = new_max
    o = (acc / row_sum[:, None]).to(O.dtype.element_ty)
    tl.store(O + batch * ob + head * oh + q_pos[:, None] * on + d[None, :], o, mask=q_pos[:, None] < N)


def flash_attention_forward(q, k, v, is_causal=False):
    B, H, N, D = q.shape
    o = torch.empty_like(q)
    BLOCK_Q, BLOCK_K = (32, 16) if D * q.element_size() > 256 else (32, 32)
    unrolled_kernel[(triton.cdiv(N, BLOCK_Q), H, B)](
        q, k, v, o, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        N, math.log2(math.e) / math.sqrt(D), D, BLOCK_Q, BLOCK_K, UNROLL=4, num_warps=4, num_stages=1,
    )  # fmt: skip
    return o
