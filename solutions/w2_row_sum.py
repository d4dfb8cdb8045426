"""W2, a warm-up before P3: the sum of each row of a matrix, tile by tile.

What to build
    One program owns one row. It walks along the row in a loop, a tile of BLOCK columns at a time, and adds each tile to
    a running sum: the same loop that P3 makes over tiles of keys. The sum is kept in float32, whatever x is: a float16
    holds no number above 65504, and 2048 plus a number smaller than 1 stays 2048 in it.

    The last tile reaches past the end of the row. What the mask keeps out of the load must not change the sum: `other`
    says which number those lanes have instead.

Shapes
    x (rows, columns): float16, bfloat16 or float32, any sizes from 1; the last stride is 1, a row may begin anywhere.
    out (rows,), float32.

The tiles of one program (columns = 2.5 tiles): '>' whole, 'r' the ragged tail, masked

                  tile  0 1 2
            row 3       > > r

Given: the launch, the loop. Asked: three short gaps, marked TODO.

Triton's reference is at triton-lang.org; you need tl.arange, tl.load, tl.sum, tl.store.

Questions that catch most mistakes
    - Where does row 3 begin, if rows are stride_row elements apart?
    - Which number can be added to any sum and changes nothing?
    - A block of BLOCK numbers and one number: which of the two does the loop carry, and which is stored?

Source: Higham, "The accuracy of floating point summation", 1993, for what a sum loses in few bits.
"""

import torch
import triton
import triton.language as tl

BLOCK = 128


@triton.jit
def row_sum_kernel(X, Out, columns, stride_row, BLOCK: tl.constexpr):
    """One program: one row. Grid: (rows,)."""
    row = tl.program_id(0)
    X += row.to(tl.int64) * stride_row  # rows x columns can pass 2^31: the offset of a row is int64
    row_sum = 0.0
    for start in range(0, columns, BLOCK):
        # gap 1: this tile of the row
        #   `x` (BLOCK,), float32: the columns from `start` on; those past the end of the row must not change the sum
        column = start + tl.arange(0, BLOCK)
        x = tl.load(X + column, mask=column < columns, other=0.0).to(tl.float32)
        # end gap

        # gap 2: add it to what earlier tiles gave
        #   `row_sum`, one float32
        row_sum += tl.sum(x, 0)
        # end gap

    # gap 3: store the sum of this row
    tl.store(Out + row, row_sum)
    # end gap


def row_sum(x):
    """The sum of each row.

    x: (rows, columns), last stride 1. Returns out (rows,), float32. Raises ValueError where x is no such matrix.
    """
    if x.dim() != 2 or 0 in x.shape or x.stride(1) != 1:
        raise ValueError(
            f"x must be (rows, columns), not empty, with a last stride of 1; got {tuple(x.shape)}, {x.stride()}"
        )
    rows, columns = x.shape
    out = torch.empty(rows, dtype=torch.float32, device=x.device)
    row_sum_kernel[(rows,)](x, out, columns, x.stride(0), BLOCK)
    return out
