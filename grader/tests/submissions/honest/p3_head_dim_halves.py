"""The head dim is split in two halves: two dots are added up for the scores, and there are two accumulators."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def halves_kernel(
    Q, K, V, O, qb, qh, qn, kb, kh, kn, vb, vh, vn, ob, oh, on, N, scale_log2,
    D: tl.constexpr, HALF: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    qb, qh, qn = tl.cast(qb, tl.int64), tl.cast(qh, tl.int64), tl.cast(qn, tl.int64)
    kb, kh, kn = tl.cast(kb, tl.int64), tl.cast(kh, tl.int64), tl.cast(kn, tl.int64)
    vb, vh, vn = tl.cast(vb, tl.int64), tl.cast(vh, tl.int64), tl.cast(vn, tl.int64)
    ob, oh, on = tl.cast(ob, tl.int64), tl.cast(oh, tl.int64), tl.cast(on, tl.int64)
    head, batch = tl.program_id(1), tl.program_id(2)
    Q += batch * qb + head * qh
    K += batch * kb + head * kh
    V += batch * vb + head * vh
    O += batch * ob + head * oh
    lo = tl.arange(0, HALF)[None, :]
    hi = HALF + lo
    has_hi = hi < D  # tl.dot wants 16 columns at least: for D = 16 the second half is all padding
    q_pos = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)[:, None]
    q_lo = tl.load(Q + q_pos * qn + lo, mask=q_pos < N, other=0.0)
    q_hi = tl.load(Q + q_pos * qn + hi, mask=(q_pos < N) & has_hi, other=0.0)

    m = tl.full([BLOCK_Q], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_Q], tl.float32)
    acc_lo = tl.zeros([BLOCK_Q, HALF], tl.float32)
    acc_hi = tl.zeros([BLOCK_Q, HALF], tl.float32)
    for start in range(0, N, BLOCK_K):
        k_pos = start + tl.arange(0, BLOCK_K)[:, None]
        live = k_pos < N
        k_lo = tl.load(K + k_pos * kn + lo, mask=live, other=0.0)
        scores = tl.dot(q_lo, tl.trans(k_lo))
        k_hi = tl.load(K + k_pos * kn + hi, mask=live & has_hi, other=0.0)
        scores = tl.dot(q_hi, tl.trans(k_hi), scores)
        scores = tl.where(tl.trans(live), scores * scale_log2, float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, 1))
        alpha = tl.exp2(m - m_new)
        p = tl.exp2(scores - m_new[:, None])
        l = l * alpha + tl.sum(p, 1)
        p = p.to(V.dtype.element_ty)
        v_lo = tl.load(V + k_pos * vn + lo, mask=live, other=0.0)
        acc_lo = tl.dot(p, v_lo, acc_lo * alpha[:, None])
        v_hi = tl.load(V + k_pos * vn + hi, mask=live & has_hi, other=0.0)
        acc_hi = tl.dot(p, v_hi, acc_hi * alpha[:, None])
        m = m_new
    tl.store(O + q_pos * on + lo, (acc_lo / l[:, None]).to(O.dtype.element_ty), mask=q_pos < N)
    tl.store(O + q_pos * on + hi, (acc_hi / l[:, None]).to(O.dtype.element_ty), mask=(q_pos < N) & has_hi)


def flash_attention_forward(q, k, v, is_causal=False):
    B, H, N, D = q.shape
    o = torch.empty_like(q)
    BLOCK_Q, BLOCK_K = (32, 32) if D * q.element_size() > 256 else (64, 32)
    halves_kernel[(triton.cdiv(N, BLOCK_Q), H, B)](
        q, k, v, o, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        N, math.log2(math.e) / math.sqrt(D), D, max(16, D // 2), BLOCK_Q, BLOCK_K, num_warps=4, num_stages=1,
    )  # fmt: skip
    return o
