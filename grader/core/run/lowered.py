"""In the runner: launches of Triton's IR, which the machine executes. Neither knows Triton.

It runs beside Triton's interpreter until verdicts agree.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from msgspec.structs import astuple

from grader.core.machine import execution
from grader.core.machine.buffers import Memory
from grader.core.machine.execution import Machine
from grader.core.machine.lines import Lines
from grader.core.machine.observer import Observer
from grader.core.protocol.messages import Raised
from grader.core.protocol.program import Descriptor, Lowered, LoweredLaunch, Refused
from grader.core.run.allocations import GUARD, Allocations


@dataclass(frozen=True)
class Described:
    """A descriptor as the machine takes it."""

    base: torch.Tensor
    shape: list[int]
    strides: list[int]
    block_shape: list[int]
    padding: str


class Stopped(Exception):
    """A launch that the machine stopped. line: in the submission's file."""

    def __init__(self, text: str, line: int | None) -> None:
        super().__init__(text)
        self.line = line

    def as_reply(self, text: str) -> Raised:
        """text: of the submission's file."""
        lines, line = text.split("\n"), self.line
        return Raised("Stopped", str(self), line, lines[line - 1].strip() if line and line <= len(lines) else "")


class LoweredKernels:
    """Runs the launches of one program's IR. inputs: of the call, by name. observers: hear of all launches.

    texts: of the student's files, by name. lines: where operations of a kernel stand in them, by the kernel's number.
    """

    def __init__(
        self, kernels: list[Lowered], inputs: dict[str, torch.Tensor], allocations: Allocations,
        texts: Mapping[str, str], observers: Sequence[Observer] = (),
    ) -> None:  # fmt: skip
        self.kernels, self.inputs, self.allocations, self.texts = kernels, inputs, allocations, texts
        self.observers = list(observers)
        self.machines: dict[int, Machine] = {}
        self.lines: dict[int, Lines] = {}

    def machine(self, number: int) -> Machine:
        """The machine of a kernel; raises Refused where it does not run it."""
        if number not in self.machines:
            kernel = self.kernels[number]
            try:
                made = Machine(kernel.text, kernel.name, self.observers)
            except Refused as refused:
                raise Refused(str(refused), line_of(refused, kernel)) from None
            self.machines[number] = made
            self.lines[number] = Lines(made.module.locations, kernel.file, self.texts.get(kernel.file, ""))
        return self.machines[number]

    def launch(self, step: LoweredLaunch, args: list[Any]) -> None:
        """Raises Refused where the machine does not run the kernel, Stopped where it does not go on."""
        made = self.machine(step.kernel)
        for observer in self.observers:
            observer.lines = self.lines[step.kernel]
        fences = {
            buffer.untyped_storage().data_ptr(): (GUARD, GUARD + size) for buffer, size, _ in self.allocations.buffers
        }
        x, y, z = step.grid
        try:
            with torch._C._DisableTorchDispatch():
                made.launch((x, y, z), args, memory=Memory(self.inputs, fences), names=step.names)
        except execution.Stopped as stopped:
            raise Stopped(str(stopped), self.lines[step.kernel].line(stopped.where)) from None
        finally:
            for line in made.printed:
                print(line)
            made.printed.clear()


def line_of(refused: Refused, kernel: Lowered) -> int:
    """The line of what the machine refuses; the kernel's own where that is not known."""
    where = getattr(refused, "where", None)
    found = Lines(getattr(refused, "locations", {}), kernel.file).line(where) if where else None
    return found or kernel.line


def described(value: Descriptor, base: torch.Tensor) -> Described:
    _, shape, strides, block, padding, _ = astuple(value)
    return Described(base, shape, strides, block, padding)
