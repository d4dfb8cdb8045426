"""The wrapper sees q and o as (B, Hkv, group, N, D) views, so that the kernel never divides; grouped heads are a
loop in the program."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def grouped_kernel(
    Q, K, V, O, qb, qk, qg, qn, kb, kh, kn, vb, vh, vn, ob, ok, og, on, N, scale_log2,
    GROUP: tl.constexpr, D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, IS_CAUSAL: tl.constexpr,
):  # fmt: skip
    qb, qk, qg, qn = tl.cast(qb, tl.int64), tl.cast(qk, tl.int64), tl.cast(qg, tl.int64), tl.cast(qn, tl.int64)
    kb, kh, kn = tl.cast(kb, tl.int64), tl.cast(kh, tl.int64), tl.cast(kn, tl.int64)
    vb, vh, vn = tl.cast(vb, tl.int64), tl.cast(vh, tl.int64), tl.cast(vn, tl.int64)
    ob, ok, og, on = tl.cast(ob, tl.int64), tl.cast(ok, tl.int64), tl.cast(og, tl.int64), tl.cast(on, tl.int64)
    q_start = tl.program_id(0) * BLOCK_Q
    kv_head, batch = tl.program_id(1), tl.program_id(2)
    d = tl.arange(0, D)
    q_pos = q_start + tl.arange(0, BLOCK_Q)
    q_live = q_pos[:, None] < N
    for g in range(GROUP):
        q_ptrs = Q + batch * qb + kv_head * qk + g * qg + q_pos[:, None] * qn + d[None, :]
        q = tl.load(q_ptrs, mask=q_live, other=0.0)
        k_ptrs = K + batch * kb + kv_head * kh + tl.arange(0, BLOCK_K)[:, None] * kn + d[None, :]
        v_ptrs = V + batch * vb + kv_head * vh + tl.arange(0, BLOCK_K)[:, None] * vn + d[None, :]
        m = tl.full([BLOCK_Q], float("-inf"), tl.float32)
        l = tl.zeros([BLOCK_Q], tl.float32)
        acc = tl.zeros([BLOCK_Q, D], tl.float32)
        for k_start in range(0, tl.minimum(q_start + BLOCK_Q, N) if IS_CAUSAL else N, BLOCK_K):
            k_pos = k_start + tl.arange(0, BLOCK_K)
            k = tl.load(k_ptrs, mask=k_pos[:, None] < N, other=0.0)
            v = tl.load(v_ptrs, mask=k_pos[:, None] < N, other=0.0)
            s = tl.dot(q, tl.trans(k)) * scale_log2
            seen = q_pos[:, None] >= k_pos[None, :] if IS_CAUSAL else k_pos[None, :] < N
            s = tl.where(seen, s, float("-inf"))
            m_new = tl.maximum(m, tl.max(s, 1))
            p = tl.exp2(s - m_new[:, None])
            alpha = tl.exp2(m - m_new)
            l = l * alpha + tl.sum(p, 1)
            acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
            m = m_new
            k_ptrs += BLOCK_K * kn
            v_ptrs += BLOCK_K * vn
        o_ptrs = O + batch * ob + kv_head * ok + g * og + q_pos[:, None] * on + d[None, :]
        tl.store(o_ptrs, (acc / l[:, None]).to(O.dtype.element_ty), mask=q_live)


def flash_attention_forward(q, k, v, is_causal=True):
    B, Hq, N, D = q.shape
    Hkv = k.shape[1]
    o = torch.empty_like(q)
    q5, o5 = q.unflatten(1, (Hkv, Hq // Hkv)), o.unflatten(1, (Hkv, Hq // Hkv))
    BLOCK_Q, BLOCK_K = (32, 32) if D * q.element_size() > 256 else (64, 64)
    grouped_kernel[(triton.cdiv(N, BLOCK_Q), Hkv, B)](
        q5, k, v, o5, *q5.stride()[:4], *k.stride()[:3], *v.stride()[:3], *o5.stride()[:4],
        N, math.log2(math.e) / math.sqrt(D), Hq // Hkv, D, BLOCK_Q, BLOCK_K, is_causal, num_warps=4, num_stages=2,
    )  # fmt: skip
    return o
