"""The grid is (B, H, tiles) instead of (tiles, H, B), last tile first, and the statistics are kept as (BLOCK_Q, 1)
columns."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def grid_order_kernel(
    Q, K, V, O, q_b, q_h, q_n, k_b, k_h, k_n, v_b, v_h, v_n, o_b, o_h, o_n, N, scale_log2,
    IS_CAUSAL: tl.constexpr, D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    q_b, q_h, q_n = tl.cast(q_b, tl.int64), tl.cast(q_h, tl.int64), tl.cast(q_n, tl.int64)
    k_b, k_h, k_n = tl.cast(k_b, tl.int64), tl.cast(k_h, tl.int64), tl.cast(k_n, tl.int64)
    v_b, v_h, v_n = tl.cast(v_b, tl.int64), tl.cast(v_h, tl.int64), tl.cast(v_n, tl.int64)
    o_b, o_h, o_n = tl.cast(o_b, tl.int64), tl.cast(o_h, tl.int64), tl.cast(o_n, tl.int64)
    b = tl.program_id(0)
    h = tl.program_id(1)
    q_start = (tl.num_programs(2) - 1 - tl.program_id(2)) * BLOCK_Q
    q_pos = q_start + tl.arange(0, BLOCK_Q)[:, None]
    d = tl.arange(0, D)
    q = tl.load(Q + b * q_b + h * q_h + q_pos * q_n + d[None, :], mask=q_pos < N, other=0.0)
    row_max = tl.full([BLOCK_Q, 1], float("-inf"), tl.float32)
    row_sum = tl.zeros([BLOCK_Q, 1], tl.float32)
    acc = tl.zeros([BLOCK_Q, D], tl.float32)
    if IS_CAUSAL:
        k_end = tl.minimum(q_start + BLOCK_Q, N)
    else:
        k_end = N
    for k_start in range(0, k_end, BLOCK_K):
        k_pos = k_start + tl.arange(0, BLOCK_K)[:, None]
        k = tl.load(K + b * k_b + h * k_h + k_pos * k_n + d[None, :], mask=k_pos < N, other=0.0)
        v = tl.load(V + b * v_b + h * v_h + k_pos * v_n + d[None, :], mask=k_pos < N, other=0.0)
        k_row = tl.trans(k_pos)
        visible = k_row < N
        if IS_CAUSAL:
            visible = visible & (q_pos >= k_row)
        scores = tl.where(visible, tl.dot(q, tl.trans(k)) * scale_log2, float("-inf"))
        new_max = tl.maximum(row_max, tl.max(scores, axis=1, keep_dims=True))
        p = tl.exp2(scores - new_max)
        alpha = tl.exp2(row_max - new_max)
        row_sum = row_sum * alpha + tl.sum(p, axis=1, keep_dims=True)
        acc = acc * alpha + tl.dot(p.to(v.dtype), v, out_dtype=tl.float32)
        row_max = new_max
    tl.store(O + b * o_b + h * o_h + q_pos * o_n + d[None, :], (acc / row_sum).to(O.dtype.element_ty), mask=q_pos < N)


def flash_attention_forward(q, k, v, is_causal=True):
    B, H, N, D = q.shape
    o = torch.empty_like(q)
    BLOCK_Q, BLOCK_K = (32, 32) if D * q.element_size() > 256 else (64, 64)
    grid_order_kernel[(B, H, triton.cdiv(N, BLOCK_Q))](
        q, k, v, o, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        N, math.log2(math.e) / math.sqrt(D), is_causal, D, BLOCK_Q, BLOCK_K, num_warps=4, num_stages=2,
    )  # fmt: skip
    return o
