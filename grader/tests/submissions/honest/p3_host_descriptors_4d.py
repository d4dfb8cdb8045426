"""Four-dimensional tensor descriptors made on the host, one for each tensor with its own strides; loads and stores
cut off at N by themselves."""

import math

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def attention(
    q_desc, k_desc, v_desc, o_desc, N, scale_log2, D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr
):
    first = tl.program_id(0) * BLOCK_Q
    head = tl.program_id(1)
    batch = tl.program_id(2)
    q = q_desc.load([batch, head, first, 0]).reshape(BLOCK_Q, D)
    row_max = tl.full([BLOCK_Q], float("-inf"), tl.float32)
    row_sum = tl.zeros([BLOCK_Q], tl.float32)
    acc = tl.zeros([BLOCK_Q, D], tl.float32)
    for k_start in range(0, N, BLOCK_K):
        k = k_desc.load([batch, head, k_start, 0]).reshape(BLOCK_K, D)
        v = v_desc.load([batch, head, k_start, 0]).reshape(BLOCK_K, D)
        scores = tl.dot(q, k.T) * scale_log2
        scores = tl.where(k_start + tl.arange(0, BLOCK_K)[None, :] < N, scores, float("-inf"))
        new_max = tl.maximum(row_max, tl.max(scores, axis=1))
        p = tl.exp2(scores - new_max[:, None])
        alpha = tl.exp2(row_max - new_max)
        row_sum = row_sum * alpha + tl.sum(p, axis=1)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        row_max = new_max
    o = acc / row_sum[:, None]
    o_desc.store([batch, head, first, 0], o.to(o_desc.dtype).reshape(1, 1, BLOCK_Q, D))


def flash_attention_forward(q, k, v, is_causal=False):
    B, H, N, D = q.shape
    o = torch.empty((B, H, N, D), dtype=q.dtype, device=q.device)
    wide = D * q.element_size() > 256
    BLOCK_Q, BLOCK_K = (32, 32) if wide else (64, 64)

    def describe(tensor, rows):
        if any(stride * tensor.element_size() % 16 for stride in tensor.stride()[:3]):
            tensor = tensor.contiguous()  # a descriptor's rows begin at multiples of 16 bytes
        return TensorDescriptor(tensor, list(tensor.shape), list(tensor.stride()), [1, 1, rows, D])

    attention[(triton.cdiv(N, BLOCK_Q), H, B)](
        describe(q, BLOCK_Q), describe(k, BLOCK_K), describe(v, BLOCK_K), describe(o, BLOCK_Q),
        N, math.log2(math.e) / math.sqrt(D), D, BLOCK_Q, BLOCK_K, num_warps=4, num_stages=1 if wide else 2,
    )  # fmt: skip
    return o
