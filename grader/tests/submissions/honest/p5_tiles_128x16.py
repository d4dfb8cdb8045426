"""Tall tiles (BLOCK_Q=128, BLOCK_K=16), eight warps; most tiles of a short sequence are larger than the sequence."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def tall_tiles(
    q_ptr, k_ptr, v_ptr, o_ptr, qb, qh, qn, kb, kh, kn, vb, vh, vn, ob, oh, on,
    N, num_q_heads, num_kv_heads, scale_log2,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, IS_CAUSAL: tl.constexpr,
):  # fmt: skip
    qb, qh, qn = tl.cast(qb, tl.int64), tl.cast(qh, tl.int64), tl.cast(qn, tl.int64)
    kb, kh, kn = tl.cast(kb, tl.int64), tl.cast(kh, tl.int64), tl.cast(kn, tl.int64)
    vb, vh, vn = tl.cast(vb, tl.int64), tl.cast(vh, tl.int64), tl.cast(vn, tl.int64)
    ob, oh, on = tl.cast(ob, tl.int64), tl.cast(oh, tl.int64), tl.cast(on, tl.int64)
    tile = tl.program_id(0)
    batch = tl.program_id(1) // num_q_heads
    head = tl.program_id(1) % num_q_heads
    kv_head = head * num_kv_heads // num_q_heads
    q_pos = tile * BLOCK_Q + tl.arange(0, BLOCK_Q)
    d = tl.arange(0, D)
    q_mask = (q_pos < N)[:, None]
    q = tl.load(q_ptr + batch * qb + head * qh + q_pos[:, None] * qn + d[None, :], mask=q_mask, other=0.0)
    k_ptr += batch * kb + kv_head * kh
    v_ptr += batch * vb + kv_head * vh

    m = tl.full([BLOCK_Q], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_Q], tl.float32)
    acc = tl.zeros([BLOCK_Q, D], tl.float32)
    end = tl.minimum(tile * BLOCK_Q + BLOCK_Q, N) if IS_CAUSAL else N
    for k_start in range(0, end, BLOCK_K):
        k_pos = k_start + tl.arange(0, BLOCK_K)
        k_mask = (k_pos < N)[:, None]
        k = tl.load(k_ptr + k_pos[:, None] * kn + d[None, :], mask=k_mask, other=0.0)
        s = tl.dot(q, tl.trans(k)) * scale_log2
        seen = q_pos[:, None] >= k_pos[None, :] if IS_CAUSAL else k_pos[None, :] < N
        s = tl.where(seen, s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - m_new[:, None])
        alpha = tl.exp2(m - m_new)
        v = tl.load(v_ptr + k_pos[:, None] * vn + d[None, :], mask=k_mask, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        l = l * alpha + tl.sum(p, 1)
        m = m_new
    out = acc / l[:, None]
    tl.store(o_ptr + batch * ob + head * oh + q_pos[:, None] * on + d[None, :], out.to(q.dtype), mask=q_mask)


def flash_attention_forward(q, k, v, is_causal=True):
    B, Hq, N, D = q.shape
    o = torch.empty_like(q)
    tall_tiles[(triton.cdiv(N, 128), B * Hq)](
        q, k, v, o, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        N, Hq, k.shape[1], math.log2(math.e) / math.sqrt(D), D, 128, 16, is_causal, num_warps=8, num_stages=2,
    )  # fmt: skip
    return o
