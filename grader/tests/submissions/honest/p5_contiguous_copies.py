"""The wrapper makes everything contiguous and flattens batch and head, so that the kernel needs no strides at all."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def contiguous_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, N, GROUP, scale_log2,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, IS_CAUSAL: tl.constexpr,
):  # fmt: skip
    bh = tl.program_id(1)  # batch * Hq + head
    kv = bh // GROUP  # batch * Hkv + kv_head, because Hq = Hkv * GROUP
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    d = tl.arange(0, D)
    q = tl.load(q_ptr + bh * N * D + rows[:, None] * D + d, mask=rows[:, None] < N, other=0)
    m = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    l = tl.full((BLOCK_M,), 0, tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    lo = 0
    hi = tl.minimum((tl.program_id(0) + 1) * BLOCK_M, N) if IS_CAUSAL else N
    for start in range(lo, hi, BLOCK_N):
        cols = start + tl.arange(0, BLOCK_N)
        at = kv * N * D + cols[:, None] * D + d
        k = tl.load(k_ptr + at, mask=cols[:, None] < N, other=0)
        v = tl.load(v_ptr + at, mask=cols[:, None] < N, other=0)
        s = tl.dot(q, k.trans(1, 0)) * scale_log2
        seen = rows[:, None] >= cols[None, :] if IS_CAUSAL else cols[None, :] < N
        s = tl.where(seen, s, float("-inf"))
        m_new = tl.maximum(m, s.max(axis=1))
        p = tl.exp2(s - m_new[:, None])
        alpha = tl.exp2(m - m_new)
        l = l * alpha + p.sum(axis=1)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        m = m_new
    acc /= l[:, None]
    tl.store(o_ptr + bh * N * D + rows[:, None] * D + d, acc.to(o_ptr.dtype.element_ty), mask=rows[:, None] < N)


def flash_attention_forward(q, k, v, is_causal=True):
    B, Hq, N, D = q.shape
    Hkv = k.size(1)
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    o = torch.empty(B * Hq, N, D, device=q.device, dtype=q.dtype)
    BLOCK_M, BLOCK_N = (32, 32) if D * q.element_size() > 256 else (64, 64)
    contiguous_kernel[(triton.cdiv(N, BLOCK_M), B * Hq)](
        q, k, v, o, N, Hq // Hkv, math.log2(math.e) / math.sqrt(D),
        D=D, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, IS_CAUSAL=is_causal, num_stages=2,
    )  # fmt: skip
    return o.view(B, Hq, N, D)
