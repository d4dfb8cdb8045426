"""One flat grid axis: batch, head and tile are decoded with // and %, and the heaviest tiles come first."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def flat_kernel(
    Q, K, V, O, stride_qb, stride_qh, stride_qn, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_on,
    H, N, num_tiles, scale_log2,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, IS_CAUSAL: tl.constexpr,
):  # fmt: skip
    stride_qb, stride_qh, stride_qn = (
        tl.cast(stride_qb, tl.int64),
        tl.cast(stride_qh, tl.int64),
        tl.cast(stride_qn, tl.int64),
    )
    stride_kb, stride_kh, stride_kn = (
        tl.cast(stride_kb, tl.int64),
        tl.cast(stride_kh, tl.int64),
        tl.cast(stride_kn, tl.int64),
    )
    stride_vb, stride_vh, stride_vn = (
        tl.cast(stride_vb, tl.int64),
        tl.cast(stride_vh, tl.int64),
        tl.cast(stride_vn, tl.int64),
    )
    stride_ob, stride_oh, stride_on = (
        tl.cast(stride_ob, tl.int64),
        tl.cast(stride_oh, tl.int64),
        tl.cast(stride_on, tl.int64),
    )
    pid = tl.program_id(axis=0)
    tile = num_tiles - 1 - pid % num_tiles
    head = (pid // num_tiles) % H
    batch = pid // (num_tiles * H)

    rows = tile * BLOCK_Q + tl.arange(0, BLOCK_Q)
    cols = tl.arange(0, BLOCK_K)
    d = tl.arange(0, D)
    live = rows[:, None] < N
    q = tl.load(Q + batch * stride_qb + head * stride_qh + rows[:, None] * stride_qn + d[None, :], mask=live, other=0.0)
    k_ptrs = K + batch * stride_kb + head * stride_kh + cols[None, :] * stride_kn + d[:, None]
    v_ptrs = V + batch * stride_vb + head * stride_vh + cols[:, None] * stride_vn + d[None, :]

    m = tl.full([BLOCK_Q], float("-inf"), dtype=tl.float32)
    l = tl.full([BLOCK_Q], 0.0, dtype=tl.float32)
    acc = tl.zeros([BLOCK_Q, D], dtype=tl.float32)
    for _ in range(tl.cdiv(tl.minimum(tile * BLOCK_Q + BLOCK_Q, N) if IS_CAUSAL else N, BLOCK_K)):
        k = tl.load(k_ptrs, mask=cols[None, :] < N, other=0.0)
        v = tl.load(v_ptrs, mask=cols[:, None] < N, other=0.0)
        s = tl.dot(q, k)
        s = tl.where(cols[None, :] > rows[:, None] if IS_CAUSAL else cols[None, :] >= N, float("-inf"), s * scale_log2)
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - m_new[:, None])
        scale = tl.exp2(m - m_new)
        l = tl.fma(l, scale, tl.sum(p, 1))
        acc = acc * scale[:, None]
        acc += tl.dot(p.to(V.dtype.element_ty), v)
        m = m_new
        cols += BLOCK_K
        k_ptrs += BLOCK_K * stride_kn
        v_ptrs += BLOCK_K * stride_vn

    o_ptrs = O + batch * stride_ob + head * stride_oh + rows[:, None] * stride_on + d[None, :]
    tl.store(o_ptrs, (acc / l[:, None]).to(O.dtype.element_ty), mask=live)


def flash_attention_forward(q, k, v, is_causal=True):
    B, H, N, D = q.shape
    o = torch.empty_like(q)
    BLOCK_Q, BLOCK_K = (32, 32) if D * q.element_size() > 256 else (64, 64)
    tiles = triton.cdiv(N, BLOCK_Q)
    flat_kernel[(B * H * tiles,)](
        q, k, v, o, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        H, N, tiles, math.log2(math.e) / math.sqrt(D), D, BLOCK_Q, BLOCK_K, is_causal, num_warps=4, num_stages=2,
    )  # fmt: skip
    return o
