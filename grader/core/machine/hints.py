"""Do the hints that a kernel gives the compiler hold for its values?

What each hint says: Triton's language reference, tl.multiple_of, tl.max_contiguous and tl.max_constancy. In the IR a
hint is an attribute of the operation that makes the value; of an argument, or of what a loop carries, there is none.
"""

import re
from typing import Any

import torch
from torch import Tensor

from grader.core.machine.batch import Frame, Value
from grader.core.machine.text import Operation

HINTS = {
    "tt.divisibility": "tl.multiple_of", "tt.contiguity": "tl.max_contiguous", "tt.constancy": "tl.max_constancy",
}  # fmt: skip


def checking(run: Any, operation: Operation) -> Any:
    """What runs an operation, and holds the hints that it carries against its result."""
    given = operation.attributes
    found = [(hint, sizes_of(given[name])) for name, hint in HINTS.items() if name in given]
    kind = operation.made[0] if operation.made else None
    if not found or kind is None or kind.kind == "descriptor" or kind.dtype.is_floating_point:
        return run
    step = kind.pointee.itemsize if kind.kind == "pointer" else 1  # neighbours are an element apart

    def checked(machine: Any, operation: Operation, frame: Frame, *values: Value) -> Any:
        made = run(machine, operation, frame, *values)
        first = made[0] if isinstance(made, list) else made
        data = first.whole(frame.count, kind.shape)
        for hint, sizes in found:
            if lanes := count_broken(hint, data.to(torch.int64), sizes, step):
                machine.hear("noted", "hint that does not hold", operation, hint, lanes)
        return made

    return checked


def sizes_of(attribute: str) -> list[int]:
    """One for each axis of `dense<[16, 1]>`; of `dense<16>`, the one of all."""
    return [max(1, int(number)) for number in re.findall(r"\d{1,9}", attribute)] or [1]


def count_broken(hint: str, data: Tensor, sizes: list[int], step: int) -> int:
    """How many numbers are not as the hint says. data: (programs, *shape); sizes: one for each axis."""
    shape = data.shape[1:]
    if shape.numel() == 1:
        return int((data % sizes[0] != 0).sum()) if hint == "tl.multiple_of" else 0
    sizes = sizes * len(shape) if len(sizes) == 1 else sizes
    if len(sizes) != len(shape):
        return 0
    axes = enumerate(sizes, 1)
    found = [broken_along(hint, data.movedim(axis, -1), size, step).flatten(1).sum(1) for axis, size in axes]
    return int(torch.stack(found).amax(0).sum())


def broken_along(hint: str, rows: Tensor, size: int, step: int) -> Tensor:
    """Which are not so along the last axis."""
    if hint == "tl.multiple_of":  # of the first of each run of neighbours
        begins = torch.ones_like(rows, dtype=torch.bool)
        begins[..., 1:] = rows.diff(dim=-1) != step
        return begins & (rows % size != 0)
    if size <= 1 or rows.shape[-1] % size:
        return torch.zeros_like(rows, dtype=torch.bool)
    groups = rows.unflatten(-1, (-1, size))
    return groups != groups[..., :1] + (torch.arange(size) * step if hint == "tl.max_contiguous" else 0)
