"""A kernel that every Triton compiles: where it does not, the fault is not the student's. Never run."""

import torch
import triton
import triton.language as tl


@triton.jit
def multiply_kernel(A, B, Out, SIZE: tl.constexpr):
    row, column = tl.arange(0, SIZE), tl.arange(0, SIZE)
    at = row[:, None] * SIZE + column[None, :]  # (SIZE, SIZE)
    product = tl.dot(tl.load(A + at), tl.load(B + at))
    tl.store(Out + at, product.to(Out.dtype.element_ty))


def multiply(a, b):
    out = torch.empty_like(a)
    multiply_kernel[(1,)](a, b, out, a.shape[0])
    return out
