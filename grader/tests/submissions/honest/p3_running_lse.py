"""After flash-attention's first Triton kernel: heuristics for the mask, a running lse instead of a running sum,
the head dim padded to a power of two."""

import math

import torch
import triton
import triton.language as tl


@triton.heuristics(
    {
        "EVEN_M": lambda args: args["seqlen"] % args["BLOCK_M"] == 0,
        "EVEN_N": lambda args: args["seqlen"] % args["BLOCK_N"] == 0,
        "EVEN_HEADDIM": lambda args: args["headdim"] == args["BLOCK_HEADDIM"],
    }
)
@triton.jit
def _fwd_kernel(
    Q, K, V, Out, Lse, softmax_scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    nheads, seqlen, seqlen_rounded, headdim,
    EVEN_M: tl.constexpr, EVEN_N: tl.constexpr, EVEN_HEADDIM: tl.constexpr,
    BLOCK_HEADDIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    stride_qb, stride_qh, stride_qm = (
        tl.cast(stride_qb, tl.int64),
        tl.cast(stride_qh, tl.int64),
        tl.cast(stride_qm, tl.int64),
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
    stride_ob, stride_oh, stride_om = (
        tl.cast(stride_ob, tl.int64),
        tl.cast(stride_oh, tl.int64),
        tl.cast(stride_om, tl.int64),
    )
    start_m = tl.program_id(0)
    off_hb = tl.program_id(1)
    off_b, off_h = off_hb // nheads, off_hb % nheads
    offs_m = start_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, BLOCK_HEADDIM)
    q_ptrs = Q + off_b * stride_qb + off_h * stride_qh + (offs_m[:, None] * stride_qm + offs_d[None, :])
    k_ptrs = K + off_b * stride_kb + off_h * stride_kh + (offs_n[:, None] * stride_kn + offs_d[None, :])
    v_ptrs = V + off_b * stride_vb + off_h * stride_vh + (offs_n[:, None] * stride_vn + offs_d[None, :])
    lse_i = tl.zeros([BLOCK_M], dtype=tl.float32) - float("inf")
    m_i = tl.zeros([BLOCK_M], dtype=tl.float32) - float("inf")
    acc_o = tl.zeros([BLOCK_M, BLOCK_HEADDIM], dtype=tl.float32)
    if EVEN_M & EVEN_HEADDIM:
        q = tl.load(q_ptrs)
    else:
        q = tl.load(q_ptrs, mask=(offs_m[:, None] < seqlen) & (offs_d[None, :] < headdim), other=0.0)

    for start_n in range(0, seqlen, BLOCK_N):
        here = ((start_n + offs_n)[:, None] < seqlen) & (offs_d[None, :] < headdim)
        if EVEN_N & EVEN_HEADDIM:
            k = tl.load(k_ptrs + start_n * stride_kn)
            v = tl.load(v_ptrs + start_n * stride_vn)
        else:
            k = tl.load(k_ptrs + start_n * stride_kn, mask=here, other=0.0)
            v = tl.load(v_ptrs + start_n * stride_vn, mask=here, other=0.0)
        qk = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
        qk += tl.dot(q, tl.trans(k))
        if not EVEN_N:
            qk += tl.where((start_n + offs_n)[None, :] < seqlen, 0, float("-inf"))
        m_ij = tl.maximum(tl.max(qk, 1) * softmax_scale, lse_i)
        p = tl.exp(qk * softmax_scale - m_ij[:, None])
        l_ij = tl.sum(p, 1)
        acc_o_scale = tl.exp(m_i - m_ij)
        acc_o = acc_o * acc_o_scale[:, None]
        acc_o += tl.dot(p.to(v.dtype), v)
        m_i = m_ij
        l_i_new = tl.exp(lse_i - m_ij) + l_ij
        lse_i = m_ij + tl.log(l_i_new)

    o_scale = tl.exp(m_i - lse_i)
    acc_o = acc_o * o_scale[:, None]
    tl.store(Lse + off_hb * seqlen_rounded + offs_m, lse_i)  # rounded up to whole tiles: no mask
    out_ptrs = Out + off_b * stride_ob + off_h * stride_oh + (offs_m[:, None] * stride_om + offs_d[None, :])
    tl.store(out_ptrs, acc_o, mask=(offs_m[:, None] < seqlen) & (offs_d[None, :] < headdim))


def flash_attention_forward(q, k, v, is_causal=False, softmax_scale=None):
    batch, nheads, seqlen, d = q.shape
    softmax_scale = softmax_scale or 1.0 / math.sqrt(d)
    BLOCK_M = BLOCK_N = 32 if d * q.element_size() > 256 else 64
    seqlen_rounded = triton.cdiv(seqlen, BLOCK_M) * BLOCK_M
    lse = torch.empty((batch, nheads, seqlen_rounded), device=q.device, dtype=torch.float32)
    o = torch.empty_like(q)
    _fwd_kernel[lambda META: (triton.cdiv(seqlen, META["BLOCK_M"]), batch * nheads)](
        q, k, v, o, lse, softmax_scale,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        nheads, seqlen, seqlen_rounded, d,
        BLOCK_HEADDIM=max(triton.next_power_of_2(d), 64), BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, num_warps=4, num_stages=1,
    )  # fmt: skip
    return o
