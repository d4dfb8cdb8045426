"""A tensor and its strides travel as one argument, a NamedTuple whose fields the kernel and a helper name."""

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl


class Heads(NamedTuple):
    start: torch.Tensor
    per_batch: int
    per_head: int
    per_row: int


def heads_of(tensor):
    return Heads(tensor, *tensor.stride()[:3])


@triton.jit
def pointers(heads, pos, D: tl.constexpr):
    first = (
        heads.start + tl.program_id(2).to(tl.int64) * heads.per_batch + tl.program_id(1).to(tl.int64) * heads.per_head
    )
    return first + pos[:, None].to(tl.int64) * heads.per_row + tl.arange(0, D)[None, :]


@triton.jit
def kernel(q_heads, k_heads, v_heads, o_heads, N, scale, D: tl.constexpr, BLOCK: tl.constexpr):
    q_pos = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    q = tl.load(pointers(q_heads, q_pos, D), mask=q_pos[:, None] < N, other=0.0)
    m = tl.full([BLOCK], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([BLOCK, D], tl.float32)
    for k_start in range(0, N, BLOCK):
        k_pos = k_start + tl.arange(0, BLOCK)
        k = tl.load(pointers(k_heads, k_pos, D), mask=k_pos[:, None] < N, other=0.0)
        v = tl.load(pointers(v_heads, k_pos, D), mask=k_pos[:, None] < N, other=0.0)
        s = tl.where(k_pos[None, :] < N, tl.dot(q, tl.trans(k)) * scale, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m_new[:, None])
        alpha = tl.exp(m - m_new)
        l = l * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v)
        m = m_new
    o = (acc / l[:, None]).to(o_heads.start.dtype.element_ty)
    tl.store(pointers(o_heads, q_pos, D), o, mask=q_pos[:, None] < N)


def flash_attention_forward(q, k, v, is_causal=False):
    B, H, N, D = q.shape
    o, block = torch.empty_like(q), 32 if D * q.element_size() > 256 else 64
    grid = (triton.cdiv(N, block), H, B)
    kernel[grid](*map(heads_of, (q, k, v, o)), N, 1.0 / math.sqrt(D), D, block)
    return o
