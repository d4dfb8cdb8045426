"""n1: each row over the root of its mean square, times a weight."""

import torch
import triton
import triton.language as tl

EPS = 1e-6


@triton.jit
def rmsnorm_kernel(X, Weight, Out, Rstd, columns, stride_x, eps, BLOCK: tl.constexpr):
    """One program: one row. Grid: (rows,)."""
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    inside = column < columns
    x = tl.load(X + row * stride_x + column, mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(Weight + column, mask=inside, other=0.0).to(tl.float32)
    # gap 1: the norm of this row
    #   `rstd`, float32: one over the root of its mean square; `out` (BLOCK,), float32
    rstd = 1.0 / tl.sqrt(tl.sum(x * x, 0) / columns + eps)
    out = x * rstd * weight
    # end gap
    tl.store(Rstd + row, rstd)
    tl.store(Out + row * columns + column, out.to(Out.dtype.element_ty), mask=inside)


def rmsnorm(x, weight):
    """x: (rows, columns), last stride 1; weight: (columns,). Returns out, like x, and rstd (rows,), float32."""
    rows, columns = x.shape
    out = torch.empty(rows, columns, dtype=x.dtype, device=x.device)
    rstd = torch.empty(rows, dtype=torch.float32, device=x.device)
    rmsnorm_kernel[(rows,)](x, weight, out, rstd, columns, x.stride(0), EPS, triton.next_power_of_2(columns))
    return out, rstd
