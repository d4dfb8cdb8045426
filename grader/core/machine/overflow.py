"""Integers of 32 bits that pass 2^31: noticed where it happens, told where the wrapped number is used.

A hash may wrap; an address, a bound or a mask may not. From the first wrapped number on, each value that comes of it
says so, until it moves a pointer, is compared, or is the smaller or larger of two.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from grader.core.machine.batch import Frame, Value
from grader.core.machine.text import Operation

LOW, HIGH = -(1 << 31), (1 << 31) - 1
Bounds = tuple[int, int]


@dataclass(eq=False)
class Wrapped:
    """Where numbers wrapped. told: its use was heard of; shifted: a bit was moved into the sign, which may be meant."""

    operation: Operation
    lanes: int
    shifted: bool
    told: bool = False


def sum_bounds(a: Bounds, b: Bounds) -> Bounds:
    return a[0] + b[0], a[1] + b[1]


def difference_bounds(a: Bounds, b: Bounds) -> Bounds:
    return a[0] - b[1], a[1] - b[0]


def product_bounds(a: Bounds, b: Bounds) -> Bounds:
    products = [x * y for x in a for y in b]
    return min(products), max(products)


def shift_bounds(a: Bounds, b: Bounds) -> Bounds:
    if not 0 <= b[1] < 64:
        return 0, 0
    return min(a[0], a[0] << b[1]), max(a[1], a[1] << b[1])


EXACT: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "arith.addi": lambda a, b: a.long() + b.long(),
    "arith.subi": lambda a, b: a.long() - b.long(),
    "arith.muli": lambda a, b: a.long() * b.long(),
}


def noticing(function: Callable[[Tensor, Tensor], Tensor], bounds: Callable[[Bounds, Bounds], Bounds]) -> Any:
    """What runs an operation whose result may not fit. bounds(those of the operands): between which numbers it lies."""

    def run(machine: Any, operation: Operation, frame: Frame, a: Value, b: Value) -> Value:
        made = Value(function(a.data, b.data))
        made.wrapped = a.wrapped or b.wrapped
        if operation.made[0].element == "i32":
            low, high = bounds(a.bounds(), b.bounds())
            if low < LOW or high > HIGH:
                if wrong := lanes_of(operation, a.data, b.data, made.data):
                    made.wrapped = Wrapped(operation, wrong, operation.name == "arith.shli")
            elif made.data.numel() > a.data.numel() + b.data.numel():
                made.limits = low, high  # wider than need be, and without a look at each number
        return made

    return run


def lanes_of(operation: Operation, a: Tensor, b: Tensor, made: Tensor) -> int:
    """How many numbers did not fit."""
    if operation.name == "arith.shli":
        return int((torch.bitwise_right_shift(made, b.clamp(0, 31)) != a).sum())
    return int((EXACT[operation.name](a, b) != made).sum())


def handing_on(function: Callable[..., Tensor]) -> Any:
    """What runs an operation whose result is wrapped where an operand is."""

    def run(machine: Any, operation: Operation, frame: Frame, *values: Value) -> Value:
        made = Value(function(*(value.data for value in values)))
        made.wrapped = next((value.wrapped for value in reversed(values) if value.wrapped), None)
        return made

    return run


def using(function: Callable[[Tensor, Tensor], Tensor]) -> Any:
    """What runs an operation that uses its operands as the numbers they are meant to be."""

    def run(machine: Any, operation: Operation, frame: Frame, a: Value, b: Value) -> Value:
        use(machine, a, b)
        return Value(function(a.data, b.data))

    return run


def compare(machine: Any, operation: Operation, frame: Frame, a: Value, b: Value) -> Value:
    name, function = operation.prepared
    if name[0] == "s":
        use(machine, *(value for value in (a, b) if value.wrapped and not value.wrapped.shifted))
    return Value(function(a.data, b.data))


def use(machine: Any, *values: Value) -> None:
    """Tell the observers of wrapped numbers that are used, once."""
    for value in values:
        if wrapped := value.wrapped:
            if not wrapped.told:
                wrapped.told = True
                machine.hear("noted", "int32 overflow", wrapped.operation, "?", wrapped.lanes)
            value.wrapped = None
