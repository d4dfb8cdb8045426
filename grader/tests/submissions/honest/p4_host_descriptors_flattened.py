"""Contiguous copies seen as one (B*H*N, D) matrix through host descriptors: a tile may reach into the next head,
whose keys the mask hides."""

import math

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def attention(
    q_desc, k_desc, v_desc, O, N, scale_log2,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, IS_CAUSAL: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    base = tl.program_id(1) * N  # the first row of this batch and head
    rows = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    q = q_desc.load([base + tile * BLOCK_M, 0])
    m = tl.zeros([BLOCK_M], tl.float32) - float("inf")
    l = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, D], tl.float32)
    for start in range(0, tl.minimum((tile + 1) * BLOCK_M, N) if IS_CAUSAL else N, BLOCK_N):
        cols = start + tl.arange(0, BLOCK_N)
        k = k_desc.load([base + start, 0])
        s = tl.dot(q, tl.trans(k)) * scale_log2
        # Rows past N are never stored, and causal rows before N see no column past N.
        s = tl.where(rows[:, None] >= cols[None, :] if IS_CAUSAL else cols[None, :] < N, s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - m_new[:, None])
        alpha = tl.exp2(m - m_new)
        l = l * alpha + tl.sum(p, 1)
        acc *= alpha[:, None]
        v = v_desc.load([base + start, 0])
        acc += tl.dot(p.to(v.dtype), v)
        m = m_new
    out = (acc / l[:, None]).to(O.dtype.element_ty)
    # A descriptor would write over the next head: this store goes through pointers, masked.
    tl.store(O + (base + rows)[:, None] * D + tl.arange(0, D)[None, :], out, mask=(rows < N)[:, None])


def flash_attention_forward(q, k, v, is_causal=True):
    B, H, N, D = q.shape
    o = torch.empty(B, H, N, D, dtype=q.dtype, device=q.device)
    BLOCK_M, BLOCK_N = (32, 16) if D * q.element_size() > 256 else (64, 32)
    flat = [t.contiguous().view(B * H * N, D) for t in (q, k, v)]
    q_desc = TensorDescriptor.from_tensor(flat[0], [BLOCK_M, D])
    k_desc = TensorDescriptor.from_tensor(flat[1], [BLOCK_N, D])
    v_desc = TensorDescriptor.from_tensor(flat[2], [BLOCK_N, D])
    attention[(triton.cdiv(N, BLOCK_M), B * H)](
        q_desc, k_desc, v_desc, o, N, 1.4426950408889634 / math.sqrt(D), D, BLOCK_M, BLOCK_N, is_causal,
        num_warps=4, num_stages=2,
    )  # fmt: skip
    return o
