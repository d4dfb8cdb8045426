"""Queries, keys and values are copied into zeroed buffers of whole tiles with one empty tile in front, which every
query tile near the beginning reads."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def banded_kernel(
    Q, K, V, O, N_q, N_k, front, group, heads, window_size, key_tiles, scale_log2,
    D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Buffers: q, o (B*Hq, N_q, D); k, v (B*Hkv, N_k, D) with `front` rows of zeros before key 0."""
    tile, bh = tl.program_id(0), tl.program_id(1)
    kv = bh // heads * (heads // group) + bh % heads // group
    d = tl.arange(0, D)
    q_pos = tile * BLOCK + tl.arange(0, BLOCK)
    q = tl.load(Q + bh * N_q * D + q_pos[:, None] * D + d[None, :])
    m = tl.full([BLOCK], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([BLOCK, D], tl.float32)
    for step in range(0, tl.minimum(key_tiles, tile + 2)):
        k_pos = (tile - step) * BLOCK + tl.arange(0, BLOCK)  # negative in front of the sequence
        offsets = kv * N_k * D + (front + k_pos)[:, None] * D + d[None, :]
        k = tl.load(K + offsets)
        v = tl.load(V + offsets)
        age = q_pos[:, None] - k_pos[None, :]
        visible = (age >= 0) & (age < window_size) & (k_pos[None, :] >= 0)
        scores = tl.where(visible, tl.dot(q, tl.trans(k)) * scale_log2, float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, 1))  # finite from the first step on: that one is the diagonal
        p = tl.exp2(scores - m_new[:, None])
        alpha = tl.exp2(m - m_new)
        l = l * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        m = m_new
    tl.store(O + bh * N_q * D + q_pos[:, None] * D + d[None, :], (acc / l[:, None]).to(O.dtype.element_ty))


def flash_attention_forward(q, k, v, is_causal=True, window_size=128):
    B, Hq, N, D = q.shape
    Hkv = k.shape[1]
    BLOCK = 16 if D * q.element_size() > 512 else 32
    window_size = min(window_size, N)
    key_tiles = 1 + triton.cdiv(window_size - 1, BLOCK)
    front = BLOCK
    padded = triton.cdiv(N, BLOCK) * BLOCK
    q_buffer = q.new_zeros(B, Hq, padded, D)
    q_buffer[:, :, :N] = q
    k_buffer = k.new_zeros(B, Hkv, front + padded, D)
    k_buffer[:, :, front : front + N] = k
    v_buffer = v.new_zeros(B, Hkv, front + padded, D)
    v_buffer[:, :, front : front + N].copy_(v)
    o_buffer = torch.empty_like(q_buffer)
    banded_kernel[(padded // BLOCK, B * Hq)](
        q_buffer, k_buffer, v_buffer, o_buffer, padded, front + padded, front, Hq // Hkv, Hq, window_size, key_tiles,
        math.log2(math.e) / math.sqrt(D), D, BLOCK, num_warps=4, num_stages=2,
    )  # fmt: skip
    o = torch.empty_like(q)
    o.copy_(o_buffer[:, :, :N])
    return o
