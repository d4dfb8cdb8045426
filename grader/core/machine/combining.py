"""Functions by which two numbers become one: along an axis of a block, or in memory.

Bits: a sum is a tree of halves along its axis, whatever else there is.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from grader.core.machine import arithmetic
from grader.core.machine.text import Region

Combine = Callable[[Tensor, Tensor], Tensor]
Reduction = Callable[[Tensor, int], Tensor]


def only_operation(region: Region) -> str:
    """The name of the one operation that combines two numbers, or ""."""
    operations = region.entry.operations
    if len(operations) != 2 or len(region.entry.arguments) != 2:
        return ""
    combine, leave = operations
    given = set(combine.operands) == set(region.entry.arguments) and leave.operands == combine.results
    return combine.name if given and not combine.regions else ""


def halving(combine: Combine) -> Reduction:
    def reduce(x: Tensor, axis: int) -> Tensor:
        size = x.shape[axis]
        while size > 1:
            size //= 2
            x = combine(x.narrow(axis, 0, size), x.narrow(axis, size, size))
        return x.squeeze(axis)

    return reduce


def extreme(quick: Callable[..., Tensor], combine: Combine) -> Reduction:
    """NaN counts only where there is nothing else; of zeros the positive one is larger."""
    slow = halving(combine)

    def reduce(x: Tensor, axis: int) -> Tensor:
        made = quick(x, axis)
        return slow(x, axis) if bool((made.isnan() | (made == 0)).any()) else made

    return reduce


MAXIMUM, MINIMUM = (arithmetic.chosen_by(arithmetic.signed, larger) for larger in (True, False))
REDUCTIONS: dict[str, Reduction] = {
    "arith.addf": halving(torch.add), "arith.addi": halving(arithmetic.add), "arith.mulf": halving(torch.mul),
    "arith.maxnumf": extreme(torch.amax, arithmetic.fmax), "arith.minnumf": extreme(torch.amin, arithmetic.fmin),
    "arith.maximumf": halving(arithmetic.maximum), "arith.minimumf": halving(arithmetic.minimum),
    "arith.maxsi": halving(MAXIMUM), "arith.minsi": halving(MINIMUM), "arith.xori": halving(torch.bitwise_xor),
    "arith.ori": halving(torch.bitwise_or), "arith.andi": halving(torch.bitwise_and),
}  # fmt: skip
ATOMICS: dict[str, Combine] = {
    "add": torch.add, "and": torch.bitwise_and, "or": torch.bitwise_or, "xor": torch.bitwise_xor,
    "exch": lambda old, new: new, "max": MAXIMUM, "min": MINIMUM,
    "umax": arithmetic.chosen_by(arithmetic.ordered, True), "umin": arithmetic.chosen_by(arithmetic.ordered, False),
}  # fmt: skip
FLOAT_ATOMICS: dict[str, Combine] = {"fadd": torch.add, "exch": ATOMICS["exch"]}
REDUCES = {name: ATOMICS[name] for name in ("add", "min", "max", "and", "or", "xor")}  # of descriptors
FLOAT_REDUCES = {"add": torch.add, "min": torch.minimum, "max": torch.maximum}
