"""Split over the keys with tl.atomic_add: a first kernel finds each row's lse, then one program for each pair of
tiles adds its part into float32."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def load_tile(X, pos, stride, N, D: tl.constexpr):
    return tl.load(X + pos[:, None] * stride + tl.arange(0, D)[None, :], mask=pos[:, None] < N, other=0.0)


@triton.jit
def masked_scores(q, k, q_pos, k_pos, N, scale_log2, IS_CAUSAL: tl.constexpr):
    seen = q_pos[:, None] >= k_pos[None, :] if IS_CAUSAL else k_pos[None, :] < N
    return tl.where(seen, tl.dot(q, tl.trans(k)) * scale_log2, float("-inf"))


@triton.jit
def lse_kernel(
    Q, K, LSE, qb, qh, qn, kb, kh, kn, H, N, scale_log2,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, IS_CAUSAL: tl.constexpr,
):  # fmt: skip
    q_start, bh = tl.program_id(0) * BLOCK_Q, tl.program_id(1)
    q_pos = q_start + tl.arange(0, BLOCK_Q)
    q = load_tile(Q + bh // H * qb + bh % H * qh, q_pos, qn, N, D)
    m = tl.full([BLOCK_Q], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_Q], tl.float32)
    for k_start in range(0, tl.minimum(q_start + BLOCK_Q, N) if IS_CAUSAL else N, BLOCK_K):
        k_pos = k_start + tl.arange(0, BLOCK_K)
        k = load_tile(K + bh // H * kb + bh % H * kh, k_pos, kn, N, D)
        s = masked_scores(q, k, q_pos, k_pos, N, scale_log2, IS_CAUSAL)
        m_new = tl.maximum(m, tl.max(s, 1))
        l = l * tl.exp2(m - m_new) + tl.sum(tl.exp2(s - m_new[:, None]), 1)
        m = m_new
    tl.store(LSE + bh * N + q_pos, m + tl.log2(l), mask=q_pos < N)


@triton.jit
def add_kernel(
    Q, K, V, LSE, OUT, qb, qh, qn, kb, kh, kn, vb, vh, vn, H, N, scale_log2,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, IS_CAUSAL: tl.constexpr,
):  # fmt: skip
    q_start, k_start, bh = tl.program_id(0) * BLOCK_Q, tl.program_id(1) * BLOCK_K, tl.program_id(2)
    if k_start < (q_start + BLOCK_Q if IS_CAUSAL else N):
        q_pos = q_start + tl.arange(0, BLOCK_Q)
        k_pos = k_start + tl.arange(0, BLOCK_K)
        q = load_tile(Q + bh // H * qb + bh % H * qh, q_pos, qn, N, D)
        k = load_tile(K + bh // H * kb + bh % H * kh, k_pos, kn, N, D)
        v = load_tile(V + bh // H * vb + bh % H * vh, k_pos, vn, N, D)
        lse = tl.load(LSE + bh * N + q_pos, mask=q_pos < N, other=0.0)
        p = tl.exp2(masked_scores(q, k, q_pos, k_pos, N, scale_log2, IS_CAUSAL) - lse[:, None])
        part = tl.dot(p.to(v.dtype), v)
        d = tl.arange(0, D)
        tl.atomic_add(OUT + (bh * N + q_pos)[:, None] * D + d[None, :], part, mask=q_pos[:, None] < N)


def flash_attention_forward(q, k, v, is_causal=True):
    B, H, N, D = q.shape
    lse = torch.empty(B, H, N, dtype=torch.float32, device=q.device)
    out = torch.zeros(B, H, N, D, dtype=torch.float32, device=q.device)
    BLOCK_Q, BLOCK_K = (32, 32) if D * q.element_size() > 256 else (64, 64)
    tiles_q, tiles_k = triton.cdiv(N, BLOCK_Q), triton.cdiv(N, BLOCK_K)
    rest = (H, N, math.log2(math.e) / math.sqrt(D), D, BLOCK_Q, BLOCK_K, is_causal)
    lse_kernel[(tiles_q, B * H)](q, k, lse, *q.stride()[:3], *k.stride()[:3], *rest, num_stages=2)
    add_kernel[(tiles_q, tiles_k, B * H)](
        q, k, v, lse, out, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *rest, num_stages=2
    )
    return out.to(q.dtype)
