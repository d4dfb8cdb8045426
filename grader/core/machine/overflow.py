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


@dataclass(eq=False)
class Wrapped:
    """Where numbers wrapped. told: its use was heard of; shifted: a bit was moved into the sign, which may be meant."""

    operation: Operation
    lanes: int
    shifted: bool
    told: bool = False


def sum_wraps(a: Value, b: Value) -> tuple[int, int]:
    (al, ah), (bl, bh) = a.bounds(), b.bounds()
    return al + bl, ah + bh


def difference_wraps(a: Value, b: Value) -> tuple[int, int]:
    (al, ah), (bl, bh) = a.bounds(), b.bounds()
    return al - bh, ah - bl


def product_wraps(a: Value, b: Value) -> tuple[int, int]:
    products = [x * y for x in a.bounds() for y in b.bounds()]
    return min(products), max(products)


def shift_wraps(a: Value, b: Value) -> tuple[int, int]:
    count = b.bounds()[1]
    if not 0 <= count < 64:
        return 0, 0
    low, high = a.bounds()
    return min(low, low << count), max(high, high << count)


EXACT: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "arith.addi": lambda a, b: a.long() + b.long(),
    "arith.subi": lambda a, b: a.long() - b.long(),
    "arith.muli": lambda a, b: a.long() * b.long(),
}


def noticing(
    function: Callable[[Tensor, Tensor], Tensor],
    bounds: Callable[[Value, Value], tuple[int, int]],
    operation: Operation,
) -> Callable[[Any, Operation, Frame], None]:
    """What runs an operation whose result may not fit. bounds(a, b): between which numbers it lies."""
    (first, second), (result,), (kind,) = operation.operands, operation.results, operation.made
    watched, shifts = kind.element == "i32", operation.name == "arith.shli"

    def execute(machine: Any, operation: Operation, frame: Frame) -> None:
        a, b = frame[first], frame[second]
        made = frame.values[result] = Value(function(a.data, b.data))
        made.wrapped = a.wrapped or b.wrapped
        if watched:
            low, high = bounds(a, b)
            if low < LOW or high > HIGH:
                wrong = lanes_of(operation, a.data, b.data, made.data)
                if wrong:
                    made.wrapped = Wrapped(operation, wrong, shifts)
            elif made.data.numel() > a.data.numel() + b.data.numel():
                made.limits = low, high  # wider than need be, and without a look at each number

    return execute


def lanes_of(operation: Operation, a: Tensor, b: Tensor, made: Tensor) -> int:
    """How many numbers did not fit."""
    if operation.name == "arith.shli":
        back = torch.bitwise_right_shift(made, b.clamp(0, 31))
        return int((back != a).sum())
    return int((EXACT[operation.name](a, b) != made).sum())


def handing_on(function: Callable[..., Tensor], operation: Operation) -> Callable[[Any, Operation, Frame], None]:
    """What runs an operation whose result is wrapped where an operand is."""
    operands, (result,) = operation.operands, operation.results

    def execute(machine: Any, operation: Operation, frame: Frame) -> None:
        given = [frame[name] for name in operands]
        made = frame.values[result] = Value(function(*(value.data for value in given)))
        for value in given:
            if value.wrapped:
                made.wrapped = value.wrapped

    return execute


def using(
    function: Callable[[Tensor, Tensor], Tensor], operation: Operation, compares: bool = False
) -> Callable[[Any, Operation, Frame], None]:
    """What runs an operation that uses its operands as the numbers they are meant to be."""
    (first, second), (result,) = operation.operands, operation.results

    def execute(machine: Any, operation: Operation, frame: Frame) -> None:
        a, b = frame[first], frame[second]
        frame.values[result] = Value(function(a.data, b.data))
        for value in (a, b):
            if value.wrapped and not (compares and value.wrapped.shifted):
                report(machine, value)

    return execute


def report(machine: Any, value: Value) -> None:
    """Tell the observers of a wrapped number that is used, once."""
    wrapped = value.wrapped
    assert isinstance(wrapped, Wrapped)
    if not wrapped.told:
        wrapped.told = True
        machine.hear("overflowed", wrapped.operation, wrapped.lanes)
    value.wrapped = None
