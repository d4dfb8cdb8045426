"""W3, a warm-up before P3: the softmax of each row of a matrix, without overflow.

What to build
    One program owns a tile of BLOCK_ROWS whole rows, a block of two axes. It loads the tile once, makes the softmax of
    each row, exp(x) over its sum, and stores the tile once. exp of 89 is infinite in float32, so each row's largest
    number is taken off first: the softmax stays the same, and no argument of exp is above 0.

    A block's sides are powers of two, so most blocks are wider than a row. Past the end of a row the mask keeps
    every lane out of the load; `other` says which number it has instead, and both the maximum and the sum see it.

Shapes
    x and out (rows, columns): float16, bfloat16 or float32, rows from 1, columns from 1 to a few thousand; the last
    stride is 1, a row may begin anywhere. The softmax is made in float32.

The tiles of two programs (6 rows, 5 columns, BLOCK_ROWS = 4, BLOCK_COLUMNS = 8): '>' loaded, '.' past an end, masked

        program 0       program 1
        > > > > > . . .   > > > > > . . .
        > > > > > . . .   > > > > > . . .
        > > > > > . . .   . . . . . . . .
        > > > > > . . .   . . . . . . . .

Given: the launch, the positions, the mask. Asked: three short gaps, marked TODO.

Triton's reference is at triton-lang.org; you need tl.load, tl.max, tl.sum, tl.exp, tl.store.

Questions that catch most mistakes
    - Which number adds nothing to a sum of exp, and is never the largest of a row?
    - A block (BLOCK_ROWS, BLOCK_COLUMNS): which axis does the maximum of each row go along?
    - One number a row, and a block of two axes: how are they subtracted? ([:, None] or [None, :])

Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018, section 2, the safe softmax.
"""

import torch
import triton
import triton.language as tl

BLOCK_ROWS = 4


@triton.jit
def softmax_kernel(X, Out, rows, columns, stride_x, stride_out, BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr):
    """One program: BLOCK_ROWS rows. Grid: (tiles of rows,)."""
    row = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    column = tl.arange(0, BLOCK_COLUMNS)
    in_bounds = (row[:, None] < rows) & (column[None, :] < columns)  # (BLOCK_ROWS, BLOCK_COLUMNS)
    offset = row.to(tl.int64)[:, None]  # rows x columns can pass 2^31: offsets of rows are int64

    # TODO 1: load the tile (about 1 line; then delete the failing line)
    #   `x` (BLOCK_ROWS, BLOCK_COLUMNS), float32: row i begins i * stride_x elements behind X; a lane past an end gets a
    #   number that changes neither the maximum of its row nor the sum of its exp
    tl.static_assert(False, "TODO 1: load the tile")

    # TODO 2: the softmax of each row (about 3 lines; then delete the failing line)
    #   `row_max` (BLOCK_ROWS,), each row's largest number; `p` (BLOCK_ROWS, BLOCK_COLUMNS), exp of x minus
    #   its row's maximum; `row_sum` (BLOCK_ROWS,), the sum of each row's p
    tl.static_assert(False, "TODO 2: the softmax of each row")

    # TODO 3: store the tile (about 2 lines; then delete the failing line)
    #   p over its row's sum, in out's dtype (Out.dtype.element_ty); rows of out are stride_out elements apart
    tl.static_assert(False, "TODO 3: store the tile")


def row_softmax(x):
    """The softmax of each row.

    x: (rows, columns), last stride 1. Returns out (rows, columns), same dtype. Raises ValueError where x is no such
    matrix. Method: Milakov and Gimelshein, 2018, section 2.
    """
    if x.dim() != 2 or 0 in x.shape or x.stride(1) != 1:
        raise ValueError(
            f"x must be (rows, columns), not empty, with a last stride of 1; got {tuple(x.shape)}, {x.stride()}"
        )
    rows, columns = x.shape
    out = torch.empty(rows, columns, dtype=x.dtype, device=x.device)
    BLOCK_COLUMNS = triton.next_power_of_2(columns)
    softmax_kernel[(triton.cdiv(rows, BLOCK_ROWS),)](
        x, out, rows, columns, x.stride(0), out.stride(0), BLOCK_ROWS, BLOCK_COLUMNS
    )
    return out
