"""Small tiles of queries and larger ones of keys (BLOCK_Q=16, BLOCK_K=64), two warps, one mask for the ragged tail
only."""

import math

import torch
import triton
import triton.language as tl

BLOCK_Q: tl.constexpr = tl.constexpr(16)
BLOCK_K: tl.constexpr = tl.constexpr(64)


@triton.jit
def small_tiles(
    Q, K, V, O, qb, qh, qn, kb, kh, kn, vb, vh, vn, ob, oh, on, N, scale_log2, D: tl.constexpr, RAGGED: tl.constexpr
):
    qb, qh, qn = tl.cast(qb, tl.int64), tl.cast(qh, tl.int64), tl.cast(qn, tl.int64)
    kb, kh, kn = tl.cast(kb, tl.int64), tl.cast(kh, tl.int64), tl.cast(kn, tl.int64)
    vb, vh, vn = tl.cast(vb, tl.int64), tl.cast(vh, tl.int64), tl.cast(vn, tl.int64)
    ob, oh, on = tl.cast(ob, tl.int64), tl.cast(oh, tl.int64), tl.cast(on, tl.int64)
    rows = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    Q += tl.program_id(2) * qb + tl.program_id(1) * qh
    K += tl.program_id(2) * kb + tl.program_id(1) * kh
    V += tl.program_id(2) * vb + tl.program_id(1) * vh
    O += tl.program_id(2) * ob + tl.program_id(1) * oh
    d = tl.arange(0, D)
    q = tl.load(Q + rows[:, None] * qn + d[None, :], mask=rows[:, None] < N, other=0.0)
    m = tl.full([BLOCK_Q], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_Q], tl.float32)
    acc = tl.zeros([BLOCK_Q, D], tl.float32)
    for start in range(0, N, BLOCK_K):
        cols = start + tl.arange(0, BLOCK_K)
        if RAGGED:
            k = tl.load(K + cols[:, None] * kn + d[None, :], mask=cols[:, None] < N, other=0.0)
            v = tl.load(V + cols[:, None] * vn + d[None, :], mask=cols[:, None] < N, other=0.0)
            s = tl.dot(q, k.T) * scale_log2 + tl.where(cols[None, :] < N, 0.0, float("-inf"))
        else:
            k = tl.load(K + cols[:, None] * kn + d[None, :])
            v = tl.load(V + cols[:, None] * vn + d[None, :])
            s = tl.dot(q, k.T) * scale_log2
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - m_new[:, None])
        alpha = tl.exp2(m - m_new)
        l = l * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        m = m_new
    tl.store(O + rows[:, None] * on + d[None, :], (acc / l[:, None]).to(q.dtype), mask=rows[:, None] < N)


def flash_attention_forward(q, k, v, is_causal=False):
    B, H, N, D = q.shape
    o = torch.empty_like(q)
    small_tiles[(triton.cdiv(N, 16), H, B)](
        q, k, v, o, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        N, math.log2(math.e) / math.sqrt(D), D=D, RAGGED=N % 64 != 0, num_warps=2, num_stages=1,
    )  # fmt: skip
    return o
