"""The scale is folded into q, rounded to the input's dtype again, with a correction: the remainder that the
rounding dropped is a second dot."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def scaled_query_kernel(
    Q, K, V, O, qb, qh, qn, kb, kh, kn, vb, vh, vn, ob, oh, on, N, group, scale_log2,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, IS_CAUSAL: tl.constexpr,
):  # fmt: skip
    q_start = tl.program_id(0) * BLOCK_Q
    head, batch = tl.program_id(1), tl.program_id(2)
    d = tl.arange(0, D)
    q_pos = q_start + tl.arange(0, BLOCK_Q)
    q = tl.load(Q + batch * qb + head * qh + q_pos[:, None] * qn + d[None, :], mask=q_pos[:, None] < N, other=0.0)
    exact = q.to(tl.float32) * scale_log2
    coarse = exact.to(q.dtype)
    rest = (exact - coarse.to(tl.float32)).to(q.dtype)
    m = tl.full([BLOCK_Q], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_Q], tl.float32)
    acc = tl.zeros([BLOCK_Q, D], tl.float32)
    for k_start in range(0, tl.minimum(q_start + BLOCK_Q, N) if IS_CAUSAL else N, BLOCK_K):
        k_pos = k_start + tl.arange(0, BLOCK_K)
        live = k_pos[:, None] < N
        k = tl.load(K + batch * kb + head // group * kh + k_pos[:, None] * kn + d[None, :], mask=live, other=0.0)
        v = tl.load(V + batch * vb + head // group * vh + k_pos[:, None] * vn + d[None, :], mask=live, other=0.0)
        s = tl.dot(coarse, tl.trans(k), tl.dot(rest, tl.trans(k)))
        seen = q_pos[:, None] >= k_pos[None, :] if IS_CAUSAL else k_pos[None, :] < N
        s = tl.where(seen, s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - m_new[:, None])
        alpha = tl.exp2(m - m_new)
        l = l * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        m = m_new
    o = (acc / l[:, None]).to(O.dtype.element_ty)
    tl.store(O + batch * ob + head * oh + q_pos[:, None] * on + d[None, :], o, mask=q_pos[:, None] < N)


def flash_attention_forward(q, k, v, is_causal=True):
    B, Hq, N, D = q.shape
    o = torch.empty_like(q)
    BLOCK_Q, BLOCK_K = (32, 32) if D * q.element_size() > 256 else (64, 32)
    scaled_query_kernel[(triton.cdiv(N, BLOCK_Q), Hq, B)](
        q, k, v, o, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        N, Hq // k.shape[1], math.log2(math.e) / math.sqrt(D), D, BLOCK_Q, BLOCK_K, is_causal,
        num_warps=4, num_stages=2,
    )  # fmt: skip
    return o
