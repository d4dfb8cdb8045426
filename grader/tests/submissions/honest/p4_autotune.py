"""triton.autotune over several configs with a key, as for a GPU: without one there is nothing to time them on."""

import math

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_Q": 32, "BLOCK_K": 32}, num_warps=4, num_stages=1),
    triton.Config({"BLOCK_Q": 64, "BLOCK_K": 32}, num_warps=4, num_stages=2),
    triton.Config({"BLOCK_Q": 64, "BLOCK_K": 64}, num_warps=4, num_stages=3),
    triton.Config({"BLOCK_Q": 128, "BLOCK_K": 64}, num_warps=8, num_stages=2),
]


@triton.autotune(configs=CONFIGS, key=["N", "D", "IS_CAUSAL"])
@triton.jit
def tuned_kernel(
    Q, K, V, O, qb, qh, qn, kb, kh, kn, vb, vh, vn, ob, oh, on, N, scale_log2,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, IS_CAUSAL: tl.constexpr,
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
    m = tl.full([BLOCK_Q], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_Q], tl.float32)
    acc = tl.zeros([BLOCK_Q, D], tl.float32)
    for k_start in range(0, q_start + BLOCK_Q if IS_CAUSAL else N, BLOCK_K):
        k_pos = k_start + tl.arange(0, BLOCK_K)
        there = k_pos[:, None] < N
        k = tl.load(K + batch * kb + head * kh + k_pos[:, None] * kn + d[None, :], mask=there, other=0.0)
        v = tl.load(V + batch * vb + head * vh + k_pos[:, None] * vn + d[None, :], mask=there, other=0.0)
        scores = tl.dot(q, tl.trans(k)) * scale_log2
        seen = (k_pos[None, :] <= q_pos[:, None]) & (k_pos[None, :] < N) if IS_CAUSAL else k_pos[None, :] < N
        scores = tl.where(seen, scores, float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, 1))
        alpha = tl.exp2(m - m_new)
        p = tl.exp2(scores - m_new[:, None])
        l = l * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        m = m_new
    o = acc / l[:, None]
    tl.store(
        O + batch * ob + head * oh + q_pos[:, None] * on + d[None, :],
        o.to(O.dtype.element_ty),
        mask=q_pos[:, None] < N,
    )


def flash_attention_forward(q, k, v, is_causal=True):
    B, H, N, D = q.shape
    o = torch.empty_like(q)
    grid = lambda META: (triton.cdiv(N, META["BLOCK_Q"]), H, B)  # noqa: E731
    tuned_kernel[grid](
        q, k, v, o, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        N, math.log2(math.e) / math.sqrt(D), D=D, IS_CAUSAL=is_causal,
    )  # fmt: skip
    return o
