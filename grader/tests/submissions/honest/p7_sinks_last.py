"""The window comes first, from the diagonal backwards, and the sinks last; a key that the window showed is hidden
from the sinks' loop."""

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
def sinks_last_kernel(
    Q, K, V, O, qb, qh, qn, kb, kh, kn, vb, vh, vn, ob, oh, on, N, group, window_size, sink_size, scale_log2,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
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
    K += batch * kb + head // group * kh
    V += batch * vb + head // group * vh
    m = tl.full([BLOCK_Q], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_Q], tl.float32)
    acc = tl.zeros([BLOCK_Q, D], tl.float32)
    end = tl.minimum(q_start + BLOCK_Q, N)
    first = tl.maximum(q_start - window_size + 1, 0) // BLOCK_K
    last = (end - 1) // BLOCK_K
    for back in range(0, last - first + 1):
        k_pos = (last - back) * BLOCK_K + tl.arange(0, BLOCK_K)
        age = q_pos[:, None] - k_pos[None, :]
        visible = (age >= 0) & (age < window_size)
        m, l, acc = step(q, K, V, kn, vn, k_pos, N, visible, m, l, acc, scale_log2, D)
    for k_start in range(0, tl.minimum(sink_size, end), BLOCK_K):
        k_pos = k_start + tl.arange(0, BLOCK_K)
        visible = (k_pos[None, :] < sink_size) & (q_pos[:, None] - k_pos[None, :] >= window_size)
        m, l, acc = step(q, K, V, kn, vn, k_pos, N, visible, m, l, acc, scale_log2, D)
    o = (acc / l[:, None]).to(O.dtype.element_ty)
    tl.store(O + batch * ob + head * oh + q_pos[:, None] * on + d[None, :], o, mask=q_pos[:, None] < N)


def flash_attention_forward(q, k, v, is_causal=True, window_size=128, sink_size=4):
    B, Hq, N, D = q.shape
    o = torch.empty_like(q)
    BLOCK_Q, BLOCK_K = (32, 32) if D * q.element_size() > 256 else (64, 64)
    sinks_last_kernel[(triton.cdiv(N, BLOCK_Q), Hq, B)](
        q, k, v, o, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        N, Hq // k.shape[1], window_size, sink_size, math.log2(math.e) / math.sqrt(D),
        D, BLOCK_Q, BLOCK_K, num_warps=4, num_stages=2,
    )  # fmt: skip
    return o
