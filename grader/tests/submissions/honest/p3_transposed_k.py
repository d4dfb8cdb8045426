"""K and V of a tile are loaded before Q is (again in each step), and K arrives already transposed by pointer
arithmetic."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def transposed_k_kernel(
    O, V, K, Q, strides_q, strides_k, strides_v, strides_o, N, scale_log2,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    batch, head = tl.program_id(2).to(tl.int64), tl.program_id(1).to(tl.int64)
    d = tl.arange(0, D)
    q_pos = (tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)).to(tl.int64)
    row_max = tl.full([BLOCK_Q], float("-inf"), tl.float32)
    row_sum = tl.zeros([BLOCK_Q], tl.float32)
    acc = tl.zeros([BLOCK_Q, D], tl.float32)
    for k_start in tl.range(0, N, BLOCK_K):
        k_pos = (k_start + tl.arange(0, BLOCK_K)).to(tl.int64)
        kt_offsets = batch * strides_k[0] + head * strides_k[1] + d[:, None] + k_pos[None, :] * strides_k[2]
        kt = tl.load(K + kt_offsets, mask=k_pos[None, :] < N, other=0.0)  # (D, BLOCK_K)
        v_offsets = batch * strides_v[0] + head * strides_v[1] + k_pos[:, None] * strides_v[2] + d[None, :]
        v = tl.load(V + v_offsets, mask=k_pos[:, None] < N, other=0.0)
        q_offsets = batch * strides_q[0] + head * strides_q[1] + q_pos[:, None] * strides_q[2] + d[None, :]
        q = tl.load(Q + q_offsets, mask=q_pos[:, None] < N, other=0.0)

        scores = tl.dot(q, kt)
        scores = tl.where(k_pos[None, :] < N, scores, float("-inf"))
        new_max = tl.maximum(row_max, tl.max(scores, 1))  # not yet scaled
        p = tl.exp2((scores - new_max[:, None]) * scale_log2)
        alpha = tl.exp2((row_max - new_max) * scale_log2)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        row_sum = row_sum * alpha + tl.sum(p, 1)
        row_max = new_max
    o_offsets = batch * strides_o[0] + head * strides_o[1] + q_pos[:, None] * strides_o[2] + d[None, :]
    tl.store(O + o_offsets, (acc / row_sum[:, None]).to(O.dtype.element_ty), mask=q_pos[:, None] < N)


def flash_attention_forward(q, k, v, is_causal=False):
    B, H, N, D = q.shape
    o = torch.empty_like(q)
    BLOCK_Q, BLOCK_K = (32, 16) if D * q.element_size() > 256 else (64, 32)
    transposed_k_kernel[(triton.cdiv(N, BLOCK_Q), H, B)](
        o, v, k, q, q.stride(), k.stride(), v.stride(), o.stride(), N, math.log2(math.e) / math.sqrt(D),
        D, BLOCK_Q, BLOCK_K, num_warps=4, num_stages=2,
    )  # fmt: skip
    return o
