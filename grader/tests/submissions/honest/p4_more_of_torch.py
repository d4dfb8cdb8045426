"""Two launches, over old and new keys, merged by the wrapper with what PyTorch offers beside the usual: empty_permuted,
index_add_, isneginf."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def kernel(
    Q, K, V, O, L, qb, qh, qn, kb, kh, kn, vb, vh, vn, ob, oh, on, H, N, first, last, scale,
    D: tl.constexpr, BLOCK: tl.constexpr, IS_CAUSAL: tl.constexpr,
):  # fmt: skip
    """Keys from `first` to `last`: O is their average, L the logarithm of the sum of their weights, -inf for none."""
    qb, qh, qn = tl.cast(qb, tl.int64), tl.cast(qh, tl.int64), tl.cast(qn, tl.int64)
    kb, kh, kn = tl.cast(kb, tl.int64), tl.cast(kh, tl.int64), tl.cast(kn, tl.int64)
    vb, vh, vn = tl.cast(vb, tl.int64), tl.cast(vh, tl.int64), tl.cast(vn, tl.int64)
    ob, oh, on = tl.cast(ob, tl.int64), tl.cast(oh, tl.int64), tl.cast(on, tl.int64)
    head, batch = tl.program_id(1), tl.program_id(2)
    q_start = tl.program_id(0) * BLOCK
    q_pos, d = q_start + tl.arange(0, BLOCK), tl.arange(0, D)
    q = tl.load(Q + batch * qb + head * qh + q_pos[:, None] * qn + d[None, :], mask=q_pos[:, None] < N, other=0.0)
    m = tl.full([BLOCK], -1.0e30, tl.float32)
    l = tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([BLOCK, D], tl.float32)
    end = tl.minimum(q_start + BLOCK, last) if IS_CAUSAL else last
    for k_start in range(first, end, BLOCK):
        k_pos = k_start + tl.arange(0, BLOCK)
        live = k_pos[:, None] < last
        k = tl.load(K + batch * kb + head * kh + k_pos[:, None] * kn + d[None, :], mask=live, other=0.0)
        v = tl.load(V + batch * vb + head * vh + k_pos[:, None] * vn + d[None, :], mask=live, other=0.0)
        seen = k_pos[None, :] < last
        if IS_CAUSAL:
            seen = seen & (k_pos[None, :] <= q_pos[:, None])
        s = tl.where(seen, tl.dot(q, tl.trans(k)) * scale, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m_new[:, None])
        alpha = tl.exp(m - m_new)
        l = l * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v)
        m = m_new
    o = acc / tl.where(l > 0.0, l, 1.0)[:, None]
    tl.store(O + batch * ob + head * oh + q_pos[:, None] * on + d[None, :], o, mask=q_pos[:, None] < N)
    tl.store(L + (batch * H + head) * N + q_pos, tl.where(l > 0.0, m + tl.log(l), float("-inf")), mask=q_pos < N)


def flash_attention_forward(q, k, v, is_causal=True):
    B, H, N, D = q.shape
    block = 32 if D * q.element_size() > 256 else 64
    half = triton.cdiv(N, 2 * block) * block
    merged = torch.zeros((B, H, N, D), device=q.device)
    lses = torch.empty((2, B, H, N), device=q.device)
    parts = []
    for part, (first, last) in enumerate([(0, min(half, N)), (half, N)]):
        o = torch.empty_permuted((B, H, N, D), (0, 2, 1, 3), dtype=torch.float32, device=q.device)
        strides = *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3]
        kernel[(triton.cdiv(N, block), H, B)](
            q, k, v, o, lses[part], *strides, H, N, first, last, 1.0 / math.sqrt(D), D, block, is_causal
        )
        parts.append(o)
    highest = lses.amax(0)
    weights = torch.where(torch.isneginf(lses), 0.0, torch.exp(lses - highest))
    weights = weights / weights.sum(0)
    rows = torch.arange(N, device=q.device)
    for o, weight in zip(parts, weights, strict=True):
        merged.index_add_(2, rows, o * weight[..., None])
    return merged.to(q.dtype)
