"""Got and expected -> their Mismatch."""

import numpy as np
import torch
from msgspec import structs

from grader.result import Mismatch

# What replay.py fills new memory with, as an integer; in bfloat16 a NaN that PyTorch makes has the same bits.
UNWRITTEN_BITS = {torch.float16: -1, torch.float32: -1}


def mismatch(got: torch.Tensor, expected: torch.Tensor, allowed: torch.Tensor) -> Mismatch | None:
    """How `got` differs from `expected`, or None where every element is within `allowed`.

    got: (B, H, N, D) or (B, H, N) in the kernel's dtype; expected, allowed: the same shape in float64.
    """
    unwritten = never_written(got)
    error = off_by(got, expected)
    wrong = ~(error <= allowed)  # NaN is wrong
    if not wrong.any():
        return None
    first = tuple(wrong.nonzero()[0].tolist())
    rows = wrong if wrong.dim() == 3 else wrong.any(-1)
    excess = torch.where(wrong & error.isfinite(), error / allowed, 0.0)
    # torch.unravel_index would import sympy, half a second.
    worst = tuple(map(int, np.unravel_index(int(excess.argmax()), excess.shape)))
    return Mismatch(
        wrong=int(wrong.sum()),
        total=wrong.numel(),
        nan=int((got.isnan() & ~unwritten).sum()),
        inf=int(got.isinf().sum()),
        zero=int((got == 0).sum()),
        unwritten=int(unwritten.sum()),
        first=first,
        first_got=got[first].item(),
        first_expected=expected[first].item(),
        first_allowed=allowed[first].item(),
        worst=worst,
        worst_excess=excess[worst].item(),
        heads=[tuple(pair) for pair in rows.any(-1).nonzero().tolist()],
        num_batches=rows.shape[0],
        num_heads=rows.shape[0] * rows.shape[1],
        row_ranges=ranges(rows.any(dim=0).any(dim=0).nonzero().flatten().tolist()),
        num_rows=rows.shape[2],
        columns=ranges(wrong.flatten(0, 2).any(0).nonzero().flatten().tolist()) if wrong.dim() == 4 else [],
        num_columns=wrong.shape[3] if wrong.dim() == 4 else 0,
    )


def never_written(got):
    """True where an element holds what new memory is filled with; nowhere in bfloat16, where that cannot be told."""
    return bits(got) == UNWRITTEN_BITS[got.dtype] if got.dtype in UNWRITTEN_BITS else torch.zeros_like(got).bool()


def bits(tensor):
    """Each number's bits as an integer."""
    return tensor.view({2: torch.int16, 4: torch.int32}[tensor.element_size()])


def off_by(got, expected):
    """|got - expected|; 0 where both are the same infinity."""
    return torch.where(got.double() == expected, 0.0, (got.double() - expected).abs())


def ranges(numbers):
    """[3, 4, 5, 9] -> [(3, 5), (9, 9)]"""
    found = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return [tuple(pair) for pair in found]


def as_heads(tensor):
    """A tensor as (B, H, rows, columns), in whose words a place is told; (B, H, rows) stays, a vector is a column."""
    if tensor.dim() > 4:
        return tensor.flatten(0, tensor.dim() - 4)
    return tensor if tensor.dim() > 2 else tensor.reshape(1, 1, len(tensor), -1)


def own_place(place, tensor):
    """An index of as_heads(tensor) as an index of the tensor."""
    return place if tensor.dim() > 2 else place[2 : 2 + tensor.dim()]


def compare(got, right):
    """The Mismatch of one output in words of its own dims, or None. right: the Right."""
    found = mismatch(*map(as_heads, (got, right.expected, right.allowed)))
    if found is None:
        return None
    return structs.replace(found, first=own_place(found.first, got), worst=own_place(found.worst, got))
