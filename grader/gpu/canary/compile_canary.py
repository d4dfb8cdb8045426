"""A kernel that every Triton compiles: where it does not, the fault is not the student's. Never run."""

import torch
import triton
import triton.language as tl


@triton.jit
def canary_kernel(Q, K, O, D: tl.constexpr):
    row, d = tl.arange(0, 16), tl.arange(0, D)
    at = row[:, None] * D + d[None, :]  # (16, D)
    scores = tl.dot(tl.load(Q + at), tl.trans(tl.load(K + at)))
    tl.store(O + row[:, None] * 16 + row[None, :], scores.to(O.dtype.element_ty))


def flash_attention_forward(q, k, v, **arguments):
    o = torch.empty((16, 16), dtype=q.dtype, device=q.device)
    canary_kernel[(1,)](q, k, o, q.shape[-1])
    return o
