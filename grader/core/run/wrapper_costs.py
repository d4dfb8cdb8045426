"""In the runner: what PyTorch does outside of kernels, counted."""

from typing import Any

import torch

from grader.core.protocol.program import Operation
from grader.core.protocol.reports import Most, WrapperCosts
from grader.core.run.operations import PRODUCTS, UNWRITTEN

POINTWISE_PRODUCTS = ("mul", "div", "addcmul", "addcdiv")


class WrapperMeter:
    """Hears of each operation of a replay; costs: the WrapperCosts so far."""

    def __init__(self) -> None:
        self.costs = WrapperCosts()

    def operation(self, step: Operation, args: list[Any], named: dict[str, Any], made: list[torch.Tensor]) -> None:
        given, line = list_tensors([*args, *named.values()]), step.line
        known = {tensor.untyped_storage()._cdata for tensor in given}
        new = [tensor for tensor in made if tensor.untyped_storage()._cdata not in known]
        self.note("made", sum(extent(tensor) * tensor.element_size() for tensor in new) // 4, line)
        self.costs.largest = max([self.costs.largest, *map(extent, new)])
        if step.op in PRODUCTS:
            a, b = list_tensors(args)[-2:]  # and not what `out=` names
            self.note("multiply_adds", a.numel() * (b.shape[-1] if b.dim() > 1 else 1), line)
        elif step.op.rstrip("_") in POINTWISE_PRODUCTS:
            self.note("multiply_adds", max(tensor.numel() for tensor in made), line)
        if not step.op.startswith(UNWRITTEN):  # these touch nothing
            self.note("touched", max((tensor.numel() for tensor in (*given, *made)), default=0), line)

    def note(self, cost: str, amount: int, line: int | None) -> None:
        setattr(self.costs, cost, getattr(self.costs, cost) + amount)
        most = self.costs.lines.get(cost)
        if most is None or amount > most.amount:
            self.costs.lines[cost] = Most(amount, line)


def list_tensors(values: list[Any]) -> list[torch.Tensor]:
    """The tensors among the values, and those in lists of them."""
    each = (inner for value in values for inner in (value if isinstance(value, list) else [value]))
    return [value for value in each if isinstance(value, torch.Tensor)]


def extent(tensor: torch.Tensor) -> int:
    """From a tensor's first element to its last: what lies between is made, too, and a view may have it."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return max(tensor.numel(), 1 + sum((size - 1) * stride for size, stride in pairs)) if tensor.numel() else 0
