"""The scale and log2(e) are multiplied into q, which is rounded to its dtype again, as Triton's own tutorial did
for years: one rounding more than others make."""

import torch
import triton
import triton.language as tl


@triton.jit
def _attn(
    q_ptr, k_ptr, v_ptr, out_ptr,
    sqz, sqh, sqm, skz, skh, skn, svz, svh, svn, soz, soh, som,
    seqlen, HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    sqz, sqh, sqm = tl.cast(sqz, tl.int64), tl.cast(sqh, tl.int64), tl.cast(sqm, tl.int64)
    skz, skh, skn = tl.cast(skz, tl.int64), tl.cast(skh, tl.int64), tl.cast(skn, tl.int64)
    svz, svh, svn = tl.cast(svz, tl.int64), tl.cast(svh, tl.int64), tl.cast(svn, tl.int64)
    soz, soh, som = tl.cast(soz, tl.int64), tl.cast(soh, tl.int64), tl.cast(som, tl.int64)
    pid_m, pid_h, pid_z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, HEAD_DIM)
    q_ptrs = q_ptr + pid_z * sqz + pid_h * sqh + offs_m[:, None] * sqm + offs_d[None, :]
    q = tl.load(q_ptrs, mask=offs_m[:, None] < seqlen, other=0.0)
    q = (q * (1.44269504 / tl.sqrt(HEAD_DIM + 0.0))).to(q.dtype)

    m_i = tl.zeros([BLOCK_M], dtype=tl.float32) - float("inf")
    l_i = tl.zeros([BLOCK_M], dtype=tl.float32)
    acc = tl.zeros([BLOCK_M, HEAD_DIM], dtype=tl.float32)
    for lo in range(0, seqlen, BLOCK_N):
        offs_n = lo + tl.arange(0, BLOCK_N)
        inside = offs_n[:, None] < seqlen
        k = tl.load(k_ptr + pid_z * skz + pid_h * skh + offs_n[:, None] * skn + offs_d[None, :], mask=inside, other=0.0)
        qk = tl.dot(q, tl.trans(k))
        qk = tl.where(offs_n[None, :] < seqlen, qk, float("-inf"))
        m_ij = tl.maximum(m_i, tl.max(qk, axis=1))
        alpha = tl.exp2(m_i - m_ij)
        p = tl.exp2(qk - m_ij[:, None])
        l_i = alpha * l_i + tl.sum(p, axis=1)
        v = tl.load(v_ptr + pid_z * svz + pid_h * svh + offs_n[:, None] * svn + offs_d[None, :], mask=inside, other=0.0)
        acc = alpha[:, None] * acc + tl.dot(p.to(v.dtype), v)
        m_i = m_ij

    out = acc * (1.0 / l_i)[:, None]
    o_ptrs = out_ptr + pid_z * soz + pid_h * soh + offs_m[:, None] * som + offs_d[None, :]
    tl.store(o_ptrs, out.to(out_ptr.dtype.element_ty), mask=offs_m[:, None] < seqlen)


def flash_attention_forward(q, k, v, is_causal=False):
    Z, H, N, D = q.shape
    out = torch.empty_like(q)
    BLOCK_M, BLOCK_N = (32, 32) if D == 256 else (64, 32)
    _attn[(triton.cdiv(N, BLOCK_M), H, Z)](
        q, k, v, out,
        q.stride(0), q.stride(1), q.stride(2), k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2), out.stride(0), out.stride(1), out.stride(2),
        N, HEAD_DIM=D, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, num_warps=4, num_stages=2,
    )  # fmt: skip
    return out
