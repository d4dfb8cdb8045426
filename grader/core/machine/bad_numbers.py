"""The line of a kernel after which a number is NaN or infinite for the first time, with what was infinite before.

A number is bad if it is NaN or +inf. -inf is not: masks write it on purpose.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_iter

from grader.core.machine.batch import Frame
from grader.core.machine.lines import Lines
from grader.core.machine.observer import Observer
from grader.core.machine.text import Operation
from grader.core.protocol import program
from grader.core.protocol.messages import Exponents, FirstBad, Held

MOST_LINES = 64  # whose exponents are told
EXPONENTIALS = ("math.exp", "math.exp2")
QUIET = ("arith.constant", "ub.poison", "tt.splat", "tt.broadcast", "tt.expand_dims")  # they make no new number


class Follower(Observer):
    """found: the FirstBad, or None. source: the lines of the submission's file. lines: of the kernel that runs."""

    operations = ("*",)

    def __init__(self, source: str) -> None:
        self.source, self.lines = source.split("\n"), Lines({}, "")
        self.found: FirstBad | None = None
        self.exponents: dict[int, Exponents] = {}
        self.infinite: dict[str, tuple[str, int | None]] = {}  # by a value's name: the variable's, and its line

    def after(self, operation: Operation, frame: Frame) -> None:
        if self.found:
            return
        line = self.lines.line(operation.where)
        exponent = self.note_exponent(operation, frame, line) if operation.name in EXPONENTIALS else None
        for name, kind in zip(operation.results, operation.made, strict=False):
            if kind.kind != "number" or not kind.dtype.is_floating_point or kind.dtype.itemsize == 1:
                continue
            data = frame[name].data
            self.note_infinite(operation, name, data, line)
            what = bad(data)
            if what and operation.name not in QUIET and not any(bad_value(frame, each) for each in operation.operands):
                text = self.source[line - 1].strip() if line and line <= len(self.source) else ""
                held = {self.infinite[each] for each in operation.operands if each in self.infinite}
                self.found = FirstBad(
                    line, what, text, [Held(*each) for each in sorted(held, key=str)], exponent,
                    [*self.exponents.values()][:MOST_LINES],
                )  # fmt: skip
                return

    def step(self, step: program.Operation, args: list[Any], named: dict[str, Any], made: list[Tensor]) -> None:
        """After an operation of PyTorch's: note it if it made a bad number and its operands have none."""
        given = [x for x in tree_iter((args, named)) if isinstance(x, Tensor)]
        if self.found or step.op.startswith("empty") or any(x.is_floating_point() and bad(x) for x in given):
            return
        what = next(filter(None, (bad(x) for x in made if x.is_floating_point())), "")
        if what:
            line = step.line
            text = self.source[line - 1].strip() if line and line <= len(self.source) else ""
            exponent = max((float(x.max()) for x in given), default=None) if step.op in ("exp", "exp2") else None
            self.found = FirstBad(line, what, text, [], exponent)

    def note_infinite(self, operation: Operation, name: str, data: Tensor, line: int | None) -> None:
        if bool(torch.isinf(data).any()):
            variable = self.lines.variable(operation.where)
            if variable:
                self.infinite[name] = variable, line
        else:
            self.infinite.pop(name, None)

    def note_exponent(self, operation: Operation, frame: Frame, line: int | None) -> float | None:
        """The largest finite number of which exp, or exp2, is taken."""
        data = frame[operation.operands[0]].data
        finite = data[torch.isfinite(data)]
        if not finite.numel():
            return None
        highest = float(finite.max())
        if data.dim() == 3 and line:
            rows = torch.where(torch.isfinite(data), data, float("-inf")).amax(-1)
            lowest, known = float(rows[torch.isfinite(rows)].min()), self.exponents.get(line)
            most = max(highest, known.highest) if known else highest
            self.exponents[line] = Exponents(line, most, min(lowest, known.lowest) if known else lowest)
        return highest


def bad_value(frame: Frame, name: str) -> bool:
    data = frame[name].data
    return data.is_floating_point() and data.element_size() > 1 and bool(bad(data))


def bad(data: Tensor) -> str:
    """Which bad number a block holds: "NaN", "infinite" or ""."""
    if bool(data.isnan().any()):
        return "NaN"
    return "infinite" if bool((data == torch.inf).any()) else ""
