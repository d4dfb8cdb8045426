"""Persistent: a fixed number of programs, fewer than there are tiles, each walking over tiles with a stride."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def one_tile(
    Q, K, V, O, stride_qn, stride_kn, stride_vn, stride_on, tile, N, scale_log2,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, IS_CAUSAL: tl.constexpr,
):  # fmt: skip
    q_pos = tile * BLOCK_Q + tl.arange(0, BLOCK_Q)
    d = tl.arange(0, D)
    q = tl.load(Q + q_pos[:, None] * stride_qn + d[None, :], mask=q_pos[:, None] < N, other=0.0)
    m = tl.full([BLOCK_Q], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_Q], tl.float32)
    acc = tl.zeros([BLOCK_Q, D], tl.float32)
    for k_start in range(0, tl.minimum((tile + 1) * BLOCK_Q, N) if IS_CAUSAL else N, BLOCK_K):
        k_pos = k_start + tl.arange(0, BLOCK_K)
        k = tl.load(K + k_pos[:, None] * stride_kn + d[None, :], mask=k_pos[:, None] < N, other=0.0)
        v = tl.load(V + k_pos[:, None] * stride_vn + d[None, :], mask=k_pos[:, None] < N, other=0.0)
        scores = tl.dot(q, tl.trans(k)) * scale_log2
        scores = tl.where(q_pos[:, None] >= k_pos[None, :] if IS_CAUSAL else k_pos[None, :] < N, scores, float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, 1))
        p = tl.exp2(scores - m_new[:, None])
        alpha = tl.exp2(m - m_new)
        l = l * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        m = m_new
    o = (acc / l[:, None]).to(O.dtype.element_ty)
    tl.store(O + q_pos[:, None] * stride_on + d[None, :], o, mask=q_pos[:, None] < N)


@triton.jit
def persistent_kernel(
    Q, K, V, O, qb, qh, qn, kb, kh, kn, vb, vh, vn, ob, oh, on, B, H, N, scale_log2,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, IS_CAUSAL: tl.constexpr,
):  # fmt: skip
    qb, qh, qn = tl.cast(qb, tl.int64), tl.cast(qh, tl.int64), tl.cast(qn, tl.int64)
    kb, kh, kn = tl.cast(kb, tl.int64), tl.cast(kh, tl.int64), tl.cast(kn, tl.int64)
    vb, vh, vn = tl.cast(vb, tl.int64), tl.cast(vh, tl.int64), tl.cast(vn, tl.int64)
    ob, oh, on = tl.cast(ob, tl.int64), tl.cast(oh, tl.int64), tl.cast(on, tl.int64)
    tiles = tl.cdiv(N, BLOCK_Q)
    for work in range(tl.program_id(0), B * H * tiles, tl.num_programs(0)):
        b = work % B
        h = work // B % H
        tile = work // (B * H)
        one_tile(
            Q + b * qb + h * qh, K + b * kb + h * kh, V + b * vb + h * vh, O + b * ob + h * oh,
            qn, kn, vn, on, tile, N, scale_log2, D, BLOCK_Q, BLOCK_K, IS_CAUSAL,
        )  # fmt: skip


def flash_attention_forward(q, k, v, is_causal=True):
    B, H, N, D = q.shape
    o = torch.empty_like(q)
    programs = torch.cuda.get_device_properties(q.device).multi_processor_count * 2 if q.is_cuda else 3
    BLOCK_Q, BLOCK_K = (32, 32) if D * q.element_size() > 256 else (64, 64)
    work = B * H * triton.cdiv(N, BLOCK_Q)
    persistent_kernel[(min(programs, work),)](
        q, k, v, o, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        B, H, N, math.log2(math.e) / math.sqrt(D), D, BLOCK_Q, BLOCK_K, is_causal, num_warps=4, num_stages=2,
    )  # fmt: skip
    return o
