"""After Triton's own fused-attention tutorial: STAGE bits, an inner function run twice, a mask that is added, a
sum that starts at 1, and an lse stored beside o."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def _attn_fwd_inner(
    acc, l_i, m_i, q, K, V, stride_kn, stride_vn, start_m, qk_scale, offs_m, N_CTX,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD_DIM: tl.constexpr, STAGE: tl.constexpr,
):  # fmt: skip
    if STAGE == 1:
        lo, hi = 0, start_m * BLOCK_M
    elif STAGE == 2:
        lo, hi = start_m * BLOCK_M, tl.minimum((start_m + 1) * BLOCK_M, N_CTX)
        lo = tl.multiple_of(lo, BLOCK_M)
    else:
        lo, hi = 0, N_CTX
    offs_d = tl.arange(0, HEAD_DIM)
    for start_n in range(lo, hi, BLOCK_N):
        start_n = tl.multiple_of(start_n, BLOCK_N)
        offs_n = start_n + tl.arange(0, BLOCK_N)
        k = tl.load(K + offs_n[None, :] * stride_kn + offs_d[:, None], mask=offs_n[None, :] < N_CTX, other=0.0)
        qk = tl.dot(q, k)
        if STAGE >= 2:
            mask = offs_m[:, None] >= offs_n[None, :] if STAGE == 2 else offs_n[None, :] < N_CTX
            qk = qk * qk_scale + tl.where(mask, 0.0, float("-inf"))
            m_ij = tl.maximum(m_i, tl.max(qk, 1))
            qk -= m_ij[:, None]
        else:
            m_ij = tl.maximum(m_i, tl.max(qk, 1) * qk_scale)
            qk = qk * qk_scale - m_ij[:, None]
        p = tl.math.exp2(qk)
        l_ij = tl.sum(p, 1)
        alpha = tl.math.exp2(m_i - m_ij)
        l_i = l_i * alpha + l_ij
        acc = acc * alpha[:, None]
        v = tl.load(V + offs_n[:, None] * stride_vn + offs_d[None, :], mask=offs_n[:, None] < N_CTX, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc)
        m_i = m_ij
    return acc, l_i, m_i


@triton.jit
def _attn_fwd(
    Q, K, V, sm_scale, M, Out,
    stride_qz, stride_qh, stride_qm, stride_kz, stride_kh, stride_kn,
    stride_vz, stride_vh, stride_vn, stride_oz, stride_oh, stride_om,
    H, N_CTX, HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STAGE: tl.constexpr,
):  # fmt: skip
    stride_qz, stride_qh, stride_qm = (
        tl.cast(stride_qz, tl.int64),
        tl.cast(stride_qh, tl.int64),
        tl.cast(stride_qm, tl.int64),
    )
    stride_kz, stride_kh, stride_kn = (
        tl.cast(stride_kz, tl.int64),
        tl.cast(stride_kh, tl.int64),
        tl.cast(stride_kn, tl.int64),
    )
    stride_vz, stride_vh, stride_vn = (
        tl.cast(stride_vz, tl.int64),
        tl.cast(stride_vh, tl.int64),
        tl.cast(stride_vn, tl.int64),
    )
    stride_oz, stride_oh, stride_om = (
        tl.cast(stride_oz, tl.int64),
        tl.cast(stride_oh, tl.int64),
        tl.cast(stride_om, tl.int64),
    )
    tl.static_assert(BLOCK_M % BLOCK_N == 0)
    start_m = tl.program_id(0)
    off_hz = tl.program_id(1)
    off_z = off_hz // H
    off_h = off_hz % H
    offs_m = start_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, HEAD_DIM)
    m_i = tl.zeros([BLOCK_M], dtype=tl.float32) - float("inf")
    l_i = tl.zeros([BLOCK_M], dtype=tl.float32) + 1.0
    acc = tl.zeros([BLOCK_M, HEAD_DIM], dtype=tl.float32)
    qk_scale = sm_scale
    qk_scale *= 1.44269504  # 1 / ln 2
    q_ptrs = Q + off_z * stride_qz + off_h * stride_qh + offs_m[:, None] * stride_qm + offs_d[None, :]
    q = tl.load(q_ptrs, mask=offs_m[:, None] < N_CTX, other=0.0)
    K += off_z * stride_kz + off_h * stride_kh
    V += off_z * stride_vz + off_h * stride_vh
    if STAGE & 1:  # off the diagonal, or all of it
        acc, l_i, m_i = _attn_fwd_inner(
            acc, l_i, m_i, q, K, V, stride_kn, stride_vn, start_m, qk_scale, offs_m, N_CTX,
            BLOCK_M, BLOCK_N, HEAD_DIM, 4 - STAGE,
        )  # fmt: skip
    if STAGE & 2:  # on the diagonal
        acc, l_i, m_i = _attn_fwd_inner(
            acc, l_i, m_i, q, K, V, stride_kn, stride_vn, start_m, qk_scale, offs_m, N_CTX,
            BLOCK_M, BLOCK_N, HEAD_DIM, 2,
        )  # fmt: skip
    m_i += tl.math.log2(l_i)
    acc = acc / l_i[:, None]
    tl.store(M + off_hz * N_CTX + offs_m, m_i, mask=offs_m < N_CTX)
    o_ptrs = Out + off_z * stride_oz + off_h * stride_oh + offs_m[:, None] * stride_om + offs_d[None, :]
    tl.store(o_ptrs, acc.to(Out.type.element_ty), mask=offs_m[:, None] < N_CTX)


def flash_attention_forward(q, k, v, is_causal=True):
    o = torch.empty_like(q)
    M = torch.empty((q.shape[0], q.shape[1], q.shape[2]), device=q.device, dtype=torch.float32)
    BLOCK_M, BLOCK_N = (32, 32) if q.shape[-1] * q.element_size() > 256 else (64, 32)
    _attn_fwd[(triton.cdiv(q.shape[2], BLOCK_M), q.shape[0] * q.shape[1], 1)](
        q, k, v, 1.0 / math.sqrt(q.shape[-1]), M, o,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        q.shape[1], N_CTX=q.shape[2], HEAD_DIM=q.shape[-1], BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N,
        STAGE=3 if is_causal else 1, num_warps=4, num_stages=2,
    )  # fmt: skip
    return o
