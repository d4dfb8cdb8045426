"""In the runner: the line after which a number is NaN or infinite for the first time, in a kernel or beside one."""

import contextlib
import re
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import numpy as np
import torch
import triton.language as tl

from grader.core.interpret.patches import Patches
from grader.core.protocol.messages import Exponents, FirstBad, Held
from grader.core.protocol.program import Operation
from grader.core.run.hooks import BUILDER
from grader.core.run.operations import UNWRITTEN
from grader.core.run.replay import list_tensors
from grader.core.worker.frames import running_line

MOST_LINES = 64  # whose exponents are told


class Follower:
    """While open, follows the lines of kernels in `file`, and the operations of a replay that it observes.

    found: the FirstBad, or None. A number is bad if it is NaN or +inf; -inf is not, because masks write it on purpose.
    """

    def __init__(self, file: str, texts: str) -> None:
        self.file, self.lines, self.patches = file, texts.split("\n"), Patches()
        self.found: FirstBad | None = None
        self.exponent: float | None = None
        self.exponents: dict[int, Exponents] = {}  # by line, of blocks of two dims
        self.before: dict[int, tuple[int | None, dict[str, str]]] = {}  # by frame: its line, its bad names
        self.since: dict[tuple[int, str], int | None] = {}

    @contextlib.contextmanager
    def open(self) -> Iterator["Follower"]:
        kept = sys.gettrace()
        for name in ("create_exp", "create_exp2"):
            self.patches.replace(BUILDER, name, self.noting)
        sys.settrace(self.called)
        try:
            yield self
        finally:
            sys.settrace(kept)
            self.patches.undo()

    def noting(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """exp or exp2 of the interpreter, which now notes the largest finite number of its operand."""

        def noted(builder: Any, operand: Any) -> Any:
            data = np.asarray(operand.data)
            finite = data[np.isfinite(data)] if data.dtype.kind == "f" else data[:0]
            self.exponent = float(finite.max()) if finite.size else None
            line = running_line(self.file)
            if data.ndim == 2 and finite.size and line:
                rows = np.where(np.isfinite(data), data, -np.inf).max(1)
                lowest, known = float(rows[np.isfinite(rows)].min()), self.exponents.get(line)
                highest = max(float(finite.max()), known.highest) if known else float(finite.max())
                self.exponents[line] = Exponents(line, highest, min(lowest, known.lowest) if known else lowest)
            return method(builder, operand)

        return noted

    def called(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self.stepped if frame.f_code.co_filename == self.file and not self.found else None

    def stepped(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Before the next line: compare what the last line left in the names with what was in them before it ran."""
        if self.found or event not in ("line", "return"):
            return self.stepped
        now = {name: what for name, value in list(frame.f_locals.items()) if (what := bad(value))}
        line, before = self.before.get(id(frame), (None, now))
        new = [name for name in now if name not in before]
        if new and line:
            words = re.findall(r"\w+", self.source(line))
            since = {name: made for (at, name), made in self.since.items() if at == id(frame)}
            held = [Held(name, since[name]) for name in dict.fromkeys(words) if name in since and name not in new]
            self.found = FirstBad(
                line, now[new[0]], self.source(line), held, self.exponent, [*self.exponents.values()][:MOST_LINES]
            )
        for name, value in list(frame.f_locals.items()):
            if holds_inf(value):
                self.since.setdefault((id(frame), name), line)
            else:
                self.since.pop((id(frame), name), None)
        self.before[id(frame)], self.exponent = (frame.f_lineno, now), None
        return self.stepped

    def operation(self, step: Operation, args: list[Any], named: dict[str, Any], made: list[torch.Tensor]) -> None:
        """After an operation of PyTorch's: note it if it made a bad number and its operands have none."""
        if self.found or step.op.startswith(UNWRITTEN) or any(map(bad_tensor, list_tensors(args, named))):
            return
        if what := next(filter(None, map(bad_tensor, made)), ""):
            exponent = max((float(each.max()) for each in list_tensors(args, named)), default=None)
            exponent = exponent if step.op in ("exp", "exp2") else None
            self.found = FirstBad(step.line, what, self.source(step.line), [], exponent)

    def source(self, line: int | None) -> str:
        return self.lines[line - 1].strip() if line and line <= len(self.lines) else ""


def holds_inf(value: Any) -> bool:
    """True for a block with +inf or -inf in it."""
    data = np.asarray(value.handle.data) if isinstance(value, tl.tensor) else np.zeros(0)
    return data.dtype.kind == "f" and bool(np.isinf(data).any())


def bad_tensor(tensor: torch.Tensor) -> str:
    """Which bad number a tensor of PyTorch's holds: "NaN", "infinite" or ""."""
    if not tensor.is_floating_point():
        return ""
    return "NaN" if bool(tensor.isnan().any()) else "infinite" if bool((tensor == torch.inf).any()) else ""


def bad(value: Any) -> str:
    """Which bad number a block holds: "NaN", "infinite" or ""."""
    if not isinstance(value, tl.tensor) or not value.dtype.scalar.is_floating():
        return ""
    data = np.asarray(value.handle.data)
    if data.dtype.kind != "f":
        return ""  # bfloat16 travels as its bits
    return "NaN" if np.isnan(data).any() else "infinite" if np.isposinf(data).any() else ""
