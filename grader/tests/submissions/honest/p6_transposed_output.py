"""The output is allocated as zeros of (B, N, H, D), written through its strides, and returned transposed, not
contiguous."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def window_kernel(
    Q, K, V, O, qb, qh, qn, kb, kh, kn, vb, vh, vn, ob, on, oh, N, group, window_size, scale_log2,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    qb, qh, qn = tl.cast(qb, tl.int64), tl.cast(qh, tl.int64), tl.cast(qn, tl.int64)
    kb, kh, kn = tl.cast(kb, tl.int64), tl.cast(kh, tl.int64), tl.cast(kn, tl.int64)
    vb, vh, vn = tl.cast(vb, tl.int64), tl.cast(vh, tl.int64), tl.cast(vn, tl.int64)
    ob, on, oh = tl.cast(ob, tl.int64), tl.cast(on, tl.int64), tl.cast(oh, tl.int64)
    q_start = tl.program_id(0) * BLOCK_Q
    head, batch = tl.program_id(1), tl.program_id(2)
    kv_head = head // group
    d = tl.arange(0, D)
    q_pos = q_start + tl.arange(0, BLOCK_Q)
    q = tl.load(Q + batch * qb + head * qh + q_pos[:, None] * qn + d[None, :], mask=q_pos[:, None] < N, other=0.0)
    m = tl.full([BLOCK_Q], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_Q], tl.float32)
    acc = tl.zeros([BLOCK_Q, D], tl.float32)
    first = tl.maximum(q_start - window_size + 1, 0) // BLOCK_K
    last = (tl.minimum(q_start + BLOCK_Q, N) - 1) // BLOCK_K
    for tile in range(first, last + 1):
        k_pos = tile * BLOCK_K + tl.arange(0, BLOCK_K)
        live = k_pos[:, None] < N
        k = tl.load(K + batch * kb + kv_head * kh + k_pos[:, None] * kn + d[None, :], mask=live, other=0.0)
        v = tl.load(V + batch * vb + kv_head * vh + k_pos[:, None] * vn + d[None, :], mask=live, other=0.0)
        age = q_pos[:, None] - k_pos[None, :]
        s = tl.where((age >= 0) & (age < window_size), tl.dot(q, tl.trans(k)) * scale_log2, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        pivot = tl.where(m_new == float("-inf"), 0.0, m_new)
        p = tl.exp2(s - pivot[:, None])
        alpha = tl.exp2(m - pivot)
        l = l * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        m = m_new
    o = (acc / l[:, None]).to(O.dtype.element_ty)
    tl.store(O + batch * ob + head * oh + q_pos[:, None] * on + d[None, :], o, mask=q_pos[:, None] < N)


def flash_attention_forward(q, k, v, is_causal=True, window_size=128):
    B, Hq, N, D = q.shape
    o = torch.zeros(B, N, Hq, D, dtype=q.dtype, device=q.device)
    BLOCK_Q, BLOCK_K = (32, 32) if D * q.element_size() > 256 else (64, 32)
    window_kernel[(triton.cdiv(N, BLOCK_Q), Hq, B)](
        q, k, v, o, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        N, Hq // k.shape[1], window_size, math.log2(math.e) / math.sqrt(D),
        D, BLOCK_Q, BLOCK_K, num_warps=4, num_stages=2,
    )  # fmt: skip
    return o.transpose(1, 2)
