"""Split over the keys: one kernel writes float32 partial results and their lse, a second merges them; two
launches, float32 scratch."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def partial_kernel(
    Q, K, V, part, part_lse, qb, qh, qn, kb, kh, kn, vb, vh, vn, H, N, keys_per_split, scale_log2,
    SPLITS: tl.constexpr, D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    qb, qh, qn = tl.cast(qb, tl.int64), tl.cast(qh, tl.int64), tl.cast(qn, tl.int64)
    kb, kh, kn = tl.cast(kb, tl.int64), tl.cast(kh, tl.int64), tl.cast(kn, tl.int64)
    vb, vh, vn = tl.cast(vb, tl.int64), tl.cast(vh, tl.int64), tl.cast(vn, tl.int64)
    split, bh = tl.program_id(1), tl.program_id(2)
    b, h = bh // H, bh % H
    q_pos = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    d = tl.arange(0, D)
    q = tl.load(Q + b * qb + h * qh + q_pos[:, None] * qn + d[None, :], mask=q_pos[:, None] < N, other=0.0)
    m = tl.full([BLOCK_Q], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_Q], tl.float32)
    acc = tl.zeros([BLOCK_Q, D], tl.float32)
    begin = split * keys_per_split
    end = tl.minimum(begin + keys_per_split, N)
    for start in range(begin, end, BLOCK_K):
        k_pos = start + tl.arange(0, BLOCK_K)
        live = k_pos[:, None] < end
        k = tl.load(K + b * kb + h * kh + k_pos[:, None] * kn + d[None, :], mask=live, other=0.0)
        v = tl.load(V + b * vb + h * vh + k_pos[:, None] * vn + d[None, :], mask=live, other=0.0)
        s = tl.where(k_pos[None, :] < end, tl.dot(q, tl.trans(k)) * scale_log2, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - m_new[:, None])
        alpha = tl.exp2(m - m_new)
        l = l * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        m = m_new
    # A split that begins past the end has seen nothing: o = 0 with lse = -inf weighs nothing in the merge.
    o = tl.where(l[:, None] > 0, acc / l[:, None], 0.0)
    row = (bh * SPLITS + split) * N + q_pos
    tl.store(part + row[:, None] * D + d[None, :], o, mask=q_pos[:, None] < N)
    tl.store(part_lse + row, m + tl.log2(l), mask=q_pos < N)


@triton.jit
def merge_kernel(part, part_lse, O, ob, oh, on, H, N, SPLITS: tl.constexpr, D: tl.constexpr):
    """One program: one row of o."""
    row, bh = tl.program_id(0), tl.program_id(1)
    splits = tl.arange(0, SPLITS)
    at = (bh * SPLITS + splits) * N + row
    lse = tl.load(part_lse + at)
    weight = tl.exp2(lse - tl.max(lse, 0))
    o = tl.load(part + at[:, None] * D + tl.arange(0, D)[None, :])
    o = tl.sum(o * weight[:, None], 0) / tl.sum(weight, 0)
    tl.store(O + bh // H * ob + bh % H * oh + row * on + tl.arange(0, D), o.to(O.dtype.element_ty))


def flash_attention_forward(q, k, v, is_causal=False):
    B, H, N, D = q.shape
    SPLITS = 4
    BLOCK_Q, BLOCK_K = (32, 32) if D * q.element_size() > 256 else (64, 32)
    keys_per_split = triton.cdiv(triton.cdiv(N, SPLITS), BLOCK_K) * BLOCK_K
    part = torch.empty(B * H, SPLITS, N, D, dtype=torch.float32, device=q.device)
    part_lse = torch.empty(B * H, SPLITS, N, dtype=torch.float32, device=q.device)
    o = torch.empty_like(q)
    partial_kernel[(triton.cdiv(N, BLOCK_Q), SPLITS, B * H)](
        q, k, v, part, part_lse, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3],
        H, N, keys_per_split, math.log2(math.e) / math.sqrt(D), SPLITS, D, BLOCK_Q, BLOCK_K, num_warps=4, num_stages=2,
    )  # fmt: skip
    merge_kernel[(N, B * H)](part, part_lse, o, *o.stride()[:3], H, N, SPLITS, D, num_warps=1)
    return o
