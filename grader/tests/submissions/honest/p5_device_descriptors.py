"""Tensor descriptors made inside the kernel (tl.make_tensor_descriptor), one for each head, with an allocator for
their scratch memory."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def gqa_kernel(
    Q, K, V, O, q_b, q_h, q_n, k_b, k_h, k_n, v_b, v_h, v_n, o_b, o_h, o_n,
    N, heads, group, scale_log2,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, IS_CAUSAL: tl.constexpr,
):  # fmt: skip
    q_b, q_h, q_n = tl.cast(q_b, tl.int64), tl.cast(q_h, tl.int64), tl.cast(q_n, tl.int64)
    k_b, k_h, k_n = tl.cast(k_b, tl.int64), tl.cast(k_h, tl.int64), tl.cast(k_n, tl.int64)
    v_b, v_h, v_n = tl.cast(v_b, tl.int64), tl.cast(v_h, tl.int64), tl.cast(v_n, tl.int64)
    o_b, o_h, o_n = tl.cast(o_b, tl.int64), tl.cast(o_h, tl.int64), tl.cast(o_n, tl.int64)
    q_start = tl.program_id(0) * BLOCK_Q
    batch = tl.program_id(1) // heads
    head = tl.program_id(1) % heads
    kv_head = head // group
    q_desc = tl.make_tensor_descriptor(Q + batch * q_b + head * q_h, [N, D], [q_n, 1], [BLOCK_Q, D])
    k_desc = tl.make_tensor_descriptor(K + batch * k_b + kv_head * k_h, [N, D], [k_n, 1], [BLOCK_K, D])
    v_desc = tl.make_tensor_descriptor(V + batch * v_b + kv_head * v_h, [N, D], [v_n, 1], [BLOCK_K, D])
    o_desc = tl.make_tensor_descriptor(O + batch * o_b + head * o_h, [N, D], [o_n, 1], [BLOCK_Q, D])

    q = q_desc.load([q_start, 0])
    q_pos = q_start + tl.arange(0, BLOCK_Q)
    m = tl.full([BLOCK_Q], -float("inf"), tl.float32)
    l = tl.zeros([BLOCK_Q], tl.float32)
    acc = tl.zeros([BLOCK_Q, D], tl.float32)
    for k_start in range(0, tl.minimum(q_start + BLOCK_Q, N) if IS_CAUSAL else N, BLOCK_K):
        k = k_desc.load([k_start, 0])
        scores = tl.dot(q, k.T) * scale_log2
        k_pos = k_start + tl.arange(0, BLOCK_K)
        if not IS_CAUSAL:
            scores = tl.where(k_pos[None, :] < N, scores, -float("inf"))
        elif k_start + BLOCK_K > q_start:
            scores = tl.where(q_pos[:, None] >= k_pos[None, :], scores, -float("inf"))
        m_new = tl.maximum(m, tl.max(scores, 1))
        p = tl.exp2(scores - m_new[:, None])
        fade = tl.exp2(m - m_new)
        l = l * fade + tl.sum(p, 1)
        v = v_desc.load([k_start, 0])
        acc = tl.dot(p.to(v.dtype), v, acc * fade[:, None])
        m = m_new
    o_desc.store([q_start, 0], (acc / l[:, None]).to(O.dtype.element_ty))


def flash_attention_forward(q, k, v, is_causal=True):
    B, Hq, N, D = q.shape
    # A descriptor's rows begin at multiples of 16 bytes.
    odd = (any(stride * each.element_size() % 16 for stride in each.stride()[:3]) for each in (q, k, v))
    fresh = torch.contiguous_format  # of one row, `contiguous()` would keep the strides
    q, k, v = (each.clone(memory_format=fresh) if is_odd else each for each, is_odd in zip((q, k, v), odd, strict=True))
    o = torch.empty_like(q)
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device=q.device))
    wide = D * q.element_size() > 256
    BLOCK_Q, BLOCK_K = (32, 32) if wide else (64, 64)
    gqa_kernel[(triton.cdiv(N, BLOCK_Q), B * Hq)](
        q, k, v, o, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        N, Hq, Hq // k.shape[1], math.log2(math.e) / math.sqrt(D),
        D, BLOCK_Q, BLOCK_K, is_causal, num_warps=4, num_stages=1 if wide else 2,
    )  # fmt: skip
    return o
