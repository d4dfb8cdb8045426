"""Sinks in tiles of their own width (16), then a window that begins at exactly the first key that is no sink: no
key is in two tiles, so nothing needs hiding twice."""

import torch
import triton
import triton.language as tl


@triton.jit
def attend(q, K, V, kn, vn, k_pos, k_end, visible, m, l, acc, D: tl.constexpr):
    d = tl.arange(0, D)
    k = tl.load(K + k_pos[:, None] * kn + d[None, :], mask=k_pos[:, None] < k_end, other=0.0)
    v = tl.load(V + k_pos[:, None] * vn + d[None, :], mask=k_pos[:, None] < k_end, other=0.0)
    s = tl.where(visible & (k_pos[None, :] < k_end), tl.dot(q, tl.trans(k)), float("-inf")) / tl.sqrt(D + 0.0)
    m_new = tl.maximum(m, tl.max(s, 1))
    pivot = tl.where(m_new == float("-inf"), 0.0, m_new)
    p = tl.exp(s - pivot[:, None])
    alpha = tl.exp(m - pivot)
    return m_new, l * alpha + tl.sum(p, 1), acc * alpha[:, None] + tl.dot(p.to(v.dtype), v)


@triton.jit
def own_tiles_kernel(
    Q, K, V, O, qb, qh, qn, kb, kh, kn, vb, vh, vn, ob, oh, on, N, group, window_size, sink_size,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_SINK: tl.constexpr,
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
    k_end = tl.minimum(q_start + BLOCK_Q, N)
    sink_end = tl.minimum(sink_size, k_end)
    for k_start in range(0, sink_end, BLOCK_SINK):
        k_pos = k_start + tl.arange(0, BLOCK_SINK)
        m, l, acc = attend(q, K, V, kn, vn, k_pos, sink_end, q_pos[:, None] >= k_pos[None, :], m, l, acc, D)
    for k_start in range(tl.maximum(q_start - window_size + 1, sink_end), k_end, BLOCK_K):
        k_pos = k_start + tl.arange(0, BLOCK_K)
        age = q_pos[:, None] - k_pos[None, :]
        m, l, acc = attend(q, K, V, kn, vn, k_pos, k_end, (age >= 0) & (age < window_size), m, l, acc, D)
    o = (acc / l[:, None]).to(O.dtype.element_ty)
    tl.store(O + batch * ob + head * oh + q_pos[:, None] * on + d[None, :], o, mask=q_pos[:, None] < N)


def flash_attention_forward(q, k, v, is_causal=True, window_size=128, sink_size=4):
    B, Hq, N, D = q.shape
    o = torch.empty_like(q)
    BLOCK_Q, BLOCK_K = (32, 32) if D * q.element_size() > 256 else (64, 32)
    own_tiles_kernel[(triton.cdiv(N, BLOCK_Q), Hq, B)](
        q, k, v, o, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        N, Hq // k.shape[1], window_size, sink_size, D, BLOCK_Q, BLOCK_K, 16, num_warps=4, num_stages=1,
    )  # fmt: skip
    return o
