"""W1, a warm-up before P3: copy a vector, a tile of elements for each program.

What to build
    The smallest kernel that is right for every length. A launch starts many *programs*; each has a number and copies
    BLOCK elements. The last program's tile reaches past the end, where there is nothing to read and nothing may be
    written: a *mask* keeps those lanes out, of the load and of the store.

Shapes
    x and out (N,): float16, bfloat16 or float32; N is any length from 1. x has any stride: every third element of a
    larger buffer is a vector, too. out is new, with a stride of 1.

The tiles of 3 programs (N = 20, BLOCK = 8): '>' copied, '.' past the end, masked

        program 0  > > > > > > > >
        program 1  > > > > > > > >
        program 2  > > > > . . . .

Given: the launch. Asked: two gaps, marked TODO.

Triton's reference is at triton-lang.org; you need tl.program_id, tl.arange, tl.load, tl.store.

Questions that catch most mistakes
    - Which is the first element of program 2?
    - A pointer plus 1 is the next element of the buffer. Where is the next element of x?
    - Is the store masked as the load is?

Source: Tillet, Kung, Cox, "Triton: an intermediate language and compiler for tiled neural network computations", 2019.
"""

import torch
import triton
import triton.language as tl

BLOCK = 256


@triton.jit
def masked_copy_kernel(X, Out, N, stride_x, BLOCK: tl.constexpr):
    """One program: BLOCK elements. Grid: (tiles,)."""
    # TODO 1: which elements are this program's (about 2 lines; then delete the failing line)
    #   `position` (BLOCK,), their numbers in x, and `in_bounds` (BLOCK,), which of them exist
    tl.static_assert(False, "TODO 1: which elements are this program's")

    # TODO 2: load them, and store them (about 2 lines; then delete the failing line)
    #   element i of x lies stride_x * i elements behind X, element i of out lies i elements behind Out
    tl.static_assert(False, "TODO 2: load them, and store them")


def masked_copy(x):
    """A copy of a vector.

    x: (N,), any stride. Returns out (N,), same dtype. Raises ValueError where x is no vector or is empty.
    """
    if x.dim() != 1 or x.numel() == 0:
        raise ValueError(f"x must be (N,) with N of at least 1; got {tuple(x.shape)}")
    N = x.numel()
    out = torch.empty(N, dtype=x.dtype, device=x.device)
    masked_copy_kernel[(triton.cdiv(N, BLOCK),)](x, out, N, x.stride(0), BLOCK)
    return out
