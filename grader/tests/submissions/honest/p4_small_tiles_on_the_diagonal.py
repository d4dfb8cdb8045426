"""Key tiles of two sizes: 64 keys at a time below the diagonal, 16 on it, so that less is masked out."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def step(q, K, V, kn, vn, k_pos, N, visible, m, l, acc, scale_log2, D: tl.constexpr):
    d = tl.arange(0, D)
    live = k_pos[:, None] < N
    k = tl.load(K + k_pos[:, None] * kn + d[None, :], mask=live, other=0.0)
    v = tl.load(V + k_pos[:, None] * vn + d[None, :], mask=live, other=0.0)
    s = tl.where(visible, tl.dot(q, tl.trans(k)) * scale_log2, float("-inf"))
    m_new = tl.maximum(m, tl.max(s, 1))
    pivot = tl.where(m_new == float("-inf"), 0.0, m_new)
    p = tl.exp2(s - pivot[:, None])
    alpha = tl.exp2(m - pivot)
    return m_new, l * alpha + tl.sum(p, 1), tl.dot(p.to(v.dtype), v, acc * alpha[:, None])


@triton.jit
def two_sizes_kernel(
    Q, K, V, O, qb, qh, qn, kb, kh, kn, vb, vh, vn, ob, oh, on, N, scale_log2,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, DIAGONAL: tl.constexpr, IS_CAUSAL: tl.constexpr,
):  # fmt: skip
    qb, qh, qn = tl.cast(qb, tl.int64), tl.cast(qh, tl.int64), tl.cast(qn, tl.int64)
    kb, kh, kn = tl.cast(kb, tl.int64), tl.cast(kh, tl.int64), tl.cast(kn, tl.int64)
    vb, vh, vn = tl.cast(vb, tl.int64), tl.cast(vh, tl.int64), tl.cast(vn, tl.int64)
    ob, oh, on = tl.cast(ob, tl.int64), tl.cast(oh, tl.int64), tl.cast(on, tl.int64)
    q_start = tl.program_id(0) * BLOCK_Q
    head, batch = tl.program_id(1), tl.program_id(2)
    d = tl.arange(0, D)
    q_pos = q_start + tl.arange(0, BLOCK_Q)
    q = tl.load(Q + batch * qb + head * qh + q_pos[:, None] * qn + d[None, :], mask=q_pos[:, None] < N, other=0.0)
    K += batch * kb + head * kh
    V += batch * vb + head * vh
    m = tl.full([BLOCK_Q], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_Q], tl.float32)
    acc = tl.zeros([BLOCK_Q, D], tl.float32)
    below = q_start // BLOCK_K * BLOCK_K if IS_CAUSAL else N
    for k_start in range(0, below, BLOCK_K):
        k_pos = k_start + tl.arange(0, BLOCK_K)
        m, l, acc = step(q, K, V, kn, vn, k_pos, N, k_pos[None, :] < N, m, l, acc, scale_log2, D)
    if IS_CAUSAL:
        for k_start in range(below, tl.minimum(q_start + BLOCK_Q, N), DIAGONAL):
            k_pos = k_start + tl.arange(0, DIAGONAL)
            visible = (k_pos[None, :] <= q_pos[:, None]) & (k_pos[None, :] < N)
            m, l, acc = step(q, K, V, kn, vn, k_pos, N, visible, m, l, acc, scale_log2, D)
    o = (acc / l[:, None]).to(O.dtype.element_ty)
    tl.store(O + batch * ob + head * oh + q_pos[:, None] * on + d[None, :], o, mask=q_pos[:, None] < N)


def flash_attention_forward(q, k, v, is_causal=True):
    B, H, N, D = q.shape
    o = torch.empty_like(q)
    two_sizes_kernel[(triton.cdiv(N, 64), H, B)](
        q, k, v, o, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        N, math.log2(math.e) / math.sqrt(D), D, 64, 64, 16, is_causal, num_warps=4, num_stages=1,
    )  # fmt: skip
    return o
