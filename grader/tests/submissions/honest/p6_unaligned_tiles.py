"""Key tiles are not multiples of BLOCK_K: the first begins exactly at the oldest key that any query of the tile
sees."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def unaligned_kernel(
    Q, K, V, O, qb, qh, qn, kb, kh, kn, vb, vh, vn, ob, oh, on, N, group, window_size, scale_log2,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    qb, qh, qn = tl.cast(qb, tl.int64), tl.cast(qh, tl.int64), tl.cast(qn, tl.int64)
    kb, kh, kn = tl.cast(kb, tl.int64), tl.cast(kh, tl.int64), tl.cast(kn, tl.int64)
    vb, vh, vn = tl.cast(vb, tl.int64), tl.cast(vh, tl.int64), tl.cast(vn, tl.int64)
    ob, oh, on = tl.cast(ob, tl.int64), tl.cast(oh, tl.int64), tl.cast(on, tl.int64)
    q_start = tl.program_id(2) * BLOCK_Q
    head, batch = tl.program_id(0), tl.program_id(1)
    d = tl.arange(0, D)
    q_pos = q_start + tl.arange(0, BLOCK_Q)
    q = tl.load(Q + batch * qb + head * qh + q_pos[:, None] * qn + d[None, :], mask=q_pos[:, None] < N, other=0.0)
    m = tl.full([BLOCK_Q], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_Q], tl.float32)
    acc = tl.zeros([BLOCK_Q, D], tl.float32)
    newest = tl.minimum(q_start + BLOCK_Q, N)
    for k_start in range(tl.maximum(q_start - (window_size - 1), 0), newest, BLOCK_K):
        k_pos = k_start + tl.arange(0, BLOCK_K)
        live = k_pos[:, None] < newest
        k = tl.load(K + batch * kb + head // group * kh + k_pos[:, None] * kn + d[None, :], mask=live, other=0.0)
        v = tl.load(V + batch * vb + head // group * vh + k_pos[:, None] * vn + d[None, :], mask=live, other=0.0)
        s = tl.dot(q, tl.trans(k)) * scale_log2
        s = tl.where(q_pos[:, None] >= k_pos[None, :], s, float("-inf"))
        s = tl.where(q_pos[:, None] < k_pos[None, :] + window_size, s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        seen = m_new > float("-inf")
        p = tl.where(seen[:, None], tl.exp2(s - m_new[:, None]), 0.0)
        alpha = tl.where(seen, tl.exp2(m - m_new), 1.0)
        l = l * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        m = m_new
    o = (acc / l[:, None]).to(O.dtype.element_ty)
    tl.store(O + batch * ob + head * oh + q_pos[:, None] * on + d[None, :], o, mask=q_pos[:, None] < N)


def flash_attention_forward(q, k, v, is_causal=True, window_size=128):
    B, Hq, N, D = q.shape
    window_size = min(window_size, N)  # k_pos + window_size stays in int32
    o = torch.empty_like(q)
    BLOCK_Q, BLOCK_K = (32, 16) if D * q.element_size() > 256 else (32, 64)
    unaligned_kernel[(Hq, B, triton.cdiv(N, BLOCK_Q))](
        q, k, v, o, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        N, Hq // k.shape[1], window_size, math.log2(math.e) / math.sqrt(D),
        D, BLOCK_Q, BLOCK_K, num_warps=4, num_stages=2,
    )  # fmt: skip
    return o
