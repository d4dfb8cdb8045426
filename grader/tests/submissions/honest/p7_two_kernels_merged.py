"""The same kernel is launched twice, for the window and for the sinks that are older than it, and PyTorch merges
the two through their lse."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def part_kernel(
    Q, K, V, O, LSE, qb, qh, qn, kb, kh, kn, vb, vh, vn, N, heads, group, min_age, max_age, max_key, scale_log2,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The keys with min_age <= age < max_age and position < max_key: o (B*Hq, N, D) float32 and lse in base 2."""
    qb, qh, qn = tl.cast(qb, tl.int64), tl.cast(qh, tl.int64), tl.cast(qn, tl.int64)
    kb, kh, kn = tl.cast(kb, tl.int64), tl.cast(kh, tl.int64), tl.cast(kn, tl.int64)
    vb, vh, vn = tl.cast(vb, tl.int64), tl.cast(vh, tl.int64), tl.cast(vn, tl.int64)
    q_start, bh = tl.program_id(0) * BLOCK_Q, tl.program_id(1)
    batch, head = bh // heads, bh % heads
    d = tl.arange(0, D)
    q_pos = q_start + tl.arange(0, BLOCK_Q)
    q = tl.load(Q + batch * qb + head * qh + q_pos[:, None] * qn + d[None, :], mask=q_pos[:, None] < N, other=0.0)
    m = tl.full([BLOCK_Q], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_Q], tl.float32)
    acc = tl.zeros([BLOCK_Q, D], tl.float32)
    begin = tl.maximum(q_start - max_age + 1, 0) // BLOCK_K * BLOCK_K
    end = tl.minimum(tl.minimum(q_start + BLOCK_Q - min_age, max_key), N)
    for k_start in range(begin, end, BLOCK_K):
        k_pos = k_start + tl.arange(0, BLOCK_K)
        live = k_pos[:, None] < N
        k = tl.load(K + batch * kb + head // group * kh + k_pos[:, None] * kn + d[None, :], mask=live, other=0.0)
        v = tl.load(V + batch * vb + head // group * vh + k_pos[:, None] * vn + d[None, :], mask=live, other=0.0)
        age = q_pos[:, None] - k_pos[None, :]
        visible = (age >= min_age) & (age < max_age) & (k_pos[None, :] < max_key)
        s = tl.where(visible, tl.dot(q, tl.trans(k)) * scale_log2, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        pivot = tl.where(m_new == float("-inf"), 0.0, m_new)
        p = tl.exp2(s - pivot[:, None])
        alpha = tl.exp2(m - pivot)
        l = l * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        m = m_new
    o = acc / tl.where(l == 0.0, 1.0, l)[:, None]
    lse = tl.where(l == 0.0, float("-inf"), m + tl.log2(tl.where(l == 0.0, 1.0, l)))
    tl.store(O + (bh * N + q_pos)[:, None] * D + d[None, :], o, mask=q_pos[:, None] < N)
    tl.store(LSE + bh * N + q_pos, lse, mask=q_pos < N)


def attention_part(q, k, v, min_age, max_age, max_key):
    B, Hq, N, D = q.shape
    o = torch.empty(B, Hq, N, D, dtype=torch.float32, device=q.device)
    lse = torch.empty(B, Hq, N, 1, dtype=torch.float32, device=q.device)
    BLOCK_Q, BLOCK_K = (32, 32) if D * q.element_size() > 256 else (64, 64)
    part_kernel[(triton.cdiv(N, BLOCK_Q), B * Hq)](
        q, k, v, o, lse, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], N, Hq, Hq // k.shape[1],
        min_age, max_age, max_key, math.log2(math.e) / math.sqrt(D), D, BLOCK_Q, BLOCK_K, num_warps=4, num_stages=2,
    )  # fmt: skip
    return o, lse


def flash_attention_forward(q, k, v, is_causal=True, window_size=128, sink_size=4):
    N = q.shape[2]
    window, window_lse = attention_part(q, k, v, 0, window_size, N)
    sinks, sinks_lse = attention_part(q, k, v, window_size, N + window_size, sink_size)
    weight = torch.sigmoid((sinks_lse - window_lse) * math.log(2.0))  # 0 where no sink is older than the window
    return torch.lerp(window, sinks, weight).to(q.dtype)
