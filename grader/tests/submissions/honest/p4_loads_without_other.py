"""Q and K are loaded under a mask without `other`: what lies there is undefined, but the mask hides every
such score and such rows are never stored."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def no_other_kernel(
    Q, K, V, O, qb, qh, qn, kb, kh, kn, vb, vh, vn, ob, oh, on, N, scale_log2,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, IS_CAUSAL: tl.constexpr,
):  # fmt: skip
    qb, qh, qn = tl.cast(qb, tl.int64), tl.cast(qh, tl.int64), tl.cast(qn, tl.int64)
    kb, kh, kn = tl.cast(kb, tl.int64), tl.cast(kh, tl.int64), tl.cast(kn, tl.int64)
    vb, vh, vn = tl.cast(vb, tl.int64), tl.cast(vh, tl.int64), tl.cast(vn, tl.int64)
    ob, oh, on = tl.cast(ob, tl.int64), tl.cast(oh, tl.int64), tl.cast(on, tl.int64)
    q_start = tl.program_id(0) * BLOCK_Q
    head, batch = tl.program_id(1), tl.program_id(2)
    d = tl.arange(0, D)[None, :]
    q_pos = q_start + tl.arange(0, BLOCK_Q)[:, None]
    q = tl.load(Q + batch * qb + head * qh + q_pos * qn + d, mask=q_pos < N)
    m = tl.full([BLOCK_Q], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_Q], tl.float32)
    acc = tl.zeros([BLOCK_Q, D], tl.float32)
    for k_start in range(0, tl.minimum(q_start + BLOCK_Q, N) if IS_CAUSAL else N, BLOCK_K):
        k_pos = k_start + tl.arange(0, BLOCK_K)
        k = tl.load(K + batch * kb + head * kh + k_pos[:, None] * kn + d, mask=k_pos[:, None] < N)
        scores = tl.dot(q, tl.trans(k))
        if IS_CAUSAL:
            scores = tl.where(q_pos >= k_pos[None, :], scores, float("-inf")) * scale_log2
        else:
            scores = tl.where(k_pos[None, :] < N, scores, float("-inf")) * scale_log2
        m_new = tl.maximum(m, tl.max(scores, 1))
        p = tl.exp2(scores - m_new[:, None])
        alpha = tl.exp2(m - m_new)
        l = l * alpha + tl.sum(p, 1)
        # V does need its zeros: 0 x NaN would be NaN.
        v = tl.load(V + batch * vb + head * vh + k_pos[:, None] * vn + d, mask=k_pos[:, None] < N, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        m = m_new
    tl.store(O + batch * ob + head * oh + q_pos * on + d, (acc / l[:, None]).to(O.dtype.element_ty), mask=q_pos < N)


def flash_attention_forward(q, k, v, is_causal=True):
    B, H, N, D = q.shape
    o = torch.empty_like(q)
    BLOCK_Q, BLOCK_K = (32, 32) if D * q.element_size() > 256 else (64, 32)
    no_other_kernel[(triton.cdiv(N, BLOCK_Q), H, B)](
        q, k, v, o, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        N, math.log2(math.e) / math.sqrt(D), D, BLOCK_Q, BLOCK_K, is_causal, num_warps=4, num_stages=2,
    )  # fmt: skip
    return o
