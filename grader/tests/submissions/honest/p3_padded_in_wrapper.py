"""The wrapper pads q, k and v with torch to whole tiles, so that no load or store is masked; the result is sliced,
and returned as that view."""

import math

import torch
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def whole_tiles_kernel(
    Q, K, V, O, stride_head, N, N_padded, scale_log2, D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr
):
    base = tl.program_id(1) * stride_head
    d = tl.arange(0, D)
    rows = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    q = tl.load(Q + base + rows[:, None] * D + d[None, :])
    m = tl.full([BLOCK_Q], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_Q], tl.float32)
    acc = tl.zeros([BLOCK_Q, D], tl.float32)
    for start in range(0, N_padded, BLOCK_K):
        cols = start + tl.arange(0, BLOCK_K)
        k = tl.load(K + base + cols[:, None] * D + d[None, :])
        v = tl.load(V + base + cols[:, None] * D + d[None, :])
        scores = tl.dot(q, tl.trans(k)) * scale_log2
        scores = tl.where(cols[None, :] < N, scores, float("-inf"))  # the true length
        m_new = tl.maximum(m, tl.max(scores, 1))
        p = tl.exp2(scores - m_new[:, None])
        alpha = tl.exp2(m - m_new)
        l = l * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        m = m_new
    tl.store(O + base + rows[:, None] * D + d[None, :], (acc / l[:, None]).to(O.dtype.element_ty))


def flash_attention_forward(q, k, v, is_causal=False):
    B, H, N, D = q.shape
    BLOCK = 32 if D * q.element_size() > 256 else 64
    extra = -N % BLOCK
    q, k, v = (F.pad(x, (0, 0, 0, extra)).contiguous() for x in (q, k, v))
    o = torch.empty_like(q)
    whole_tiles_kernel[((N + extra) // BLOCK, B * H)](
        q, k, v, o, (N + extra) * D, N, N + extra, math.log2(math.e) / math.sqrt(D),
        D, BLOCK, BLOCK, num_warps=4, num_stages=2,
    )  # fmt: skip
    return o[:, :, :N]
