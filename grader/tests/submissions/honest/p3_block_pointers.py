"""Block pointers throughout (tl.make_block_ptr, tl.advance) with boundary_check and zero padding; K is a
transposed block."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def kernel(
    Q, K, V, Out,
    sqb, sqh, sqn, sqd, skb, skh, skn, skd, svb, svh, svn, svd, sob, soh, son, sod,
    H, N, scale_log2,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    sqb, sqh, sqn = tl.cast(sqb, tl.int64), tl.cast(sqh, tl.int64), tl.cast(sqn, tl.int64)
    skb, skh, skn = tl.cast(skb, tl.int64), tl.cast(skh, tl.int64), tl.cast(skn, tl.int64)
    svb, svh, svn = tl.cast(svb, tl.int64), tl.cast(svh, tl.int64), tl.cast(svn, tl.int64)
    sob, soh, son = tl.cast(sob, tl.int64), tl.cast(soh, tl.int64), tl.cast(son, tl.int64)
    start_m = tl.program_id(0) * BLOCK_M
    b = tl.program_id(1) // H
    h = tl.program_id(1) % H
    q_ptr = tl.make_block_ptr(
        base=Q + b * sqb + h * sqh, shape=(N, D), strides=(sqn, sqd), offsets=(start_m, 0),
        block_shape=(BLOCK_M, D), order=(1, 0),
    )  # fmt: skip
    kt_ptr = tl.make_block_ptr(
        base=K + b * skb + h * skh, shape=(D, N), strides=(skd, skn), offsets=(0, 0),
        block_shape=(D, BLOCK_N), order=(0, 1),
    )  # fmt: skip
    v_ptr = tl.make_block_ptr(
        base=V + b * svb + h * svh, shape=(N, D), strides=(svn, svd), offsets=(0, 0),
        block_shape=(BLOCK_N, D), order=(1, 0),
    )  # fmt: skip
    o_ptr = tl.make_block_ptr(
        base=Out + b * sob + h * soh, shape=(N, D), strides=(son, sod), offsets=(start_m, 0),
        block_shape=(BLOCK_M, D), order=(1, 0),
    )  # fmt: skip

    q = tl.load(q_ptr, boundary_check=(0,), padding_option="zero")
    m_i = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
    l_i = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, D), dtype=tl.float32)

    for start_n in range(0, N, BLOCK_N):
        kt = tl.load(kt_ptr, boundary_check=(1,), padding_option="zero")
        qk = tl.dot(q, kt) * scale_log2
        qk = tl.where((start_n + tl.arange(0, BLOCK_N))[None, :] < N, qk, float("-inf"))
        m_new = tl.maximum(m_i, tl.max(qk, 1))
        p = tl.math.exp2(qk - m_new[:, None])
        alpha = tl.math.exp2(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, 1)
        v = tl.load(v_ptr, boundary_check=(0,), padding_option="zero")
        acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v)
        m_i = m_new
        kt_ptr = tl.advance(kt_ptr, (0, BLOCK_N))
        v_ptr = tl.advance(v_ptr, (BLOCK_N, 0))

    acc = acc / l_i[:, None]
    tl.store(o_ptr, acc.to(Out.type.element_ty), boundary_check=(0,))


def flash_attention_forward(q, k, v, is_causal=False):
    B, H, N, D = q.shape
    o = torch.empty_like(q)
    wide = D * q.element_size() > 256
    BLOCK_M, BLOCK_N = (32, 32) if wide else (64, 32)
    kernel[(triton.cdiv(N, BLOCK_M), B * H)](
        q, k, v, o, *q.stride(), *k.stride(), *v.stride(), *o.stride(),
        H, N, 1.44269504 / math.sqrt(D), D=D, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N,
        num_warps=4, num_stages=1 if wide else 2,
    )  # fmt: skip
    return o
