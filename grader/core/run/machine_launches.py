"""In the runner: launches of a program's kernels, which the machine executes. Neither knows Triton."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch

from grader.core.machine import execution
from grader.core.machine.buffers import Memory
from grader.core.machine.execution import Machine
from grader.core.machine.lines import Lines
from grader.core.machine.observer import Observer
from grader.core.protocol.program import Kernel, Launch, Refused
from grader.core.run.allocations import GUARD, Allocations
from grader.core.worker import sparse


class Stopped(Exception):
    """A launch that the machine stopped. line: in the submission's file."""

    def __init__(self, text: str, line: int | None) -> None:
        super().__init__(text)
        self.line = line


class MachineLaunches:
    """Runs the launches of one program. inputs: of the call, by name. observers: hear of all launches.

    texts: of the student's files, by name. lines: where operations of a kernel stand in them, by the kernel's number.
    """

    def __init__(
        self, kernels: list[Kernel], inputs: dict[str, torch.Tensor], allocations: Allocations,
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

    def launch(self, step: Launch, args: list[Any]) -> None:
        """Raises Refused where the machine does not run the kernel, Stopped where it does not go on."""
        made = self.machine(step.kernel)
        self.need_no_giants(step, args)
        for observer in self.observers:
            observer.lines = self.lines[step.kernel]
        fences = {
            buffer.untyped_storage().data_ptr(): (GUARD, GUARD + size) for buffer, size, _ in self.allocations.buffers
        }
        try:
            with torch._C._DisableTorchDispatch():
                made.launch(cast(Any, step.grid), args, memory=Memory(self.inputs, fences), names=step.names)
        except execution.Stopped as stopped:
            raise Stopped(str(stopped), self.lines[step.kernel].line(stopped.where)) from None
        finally:
            for line in made.printed:
                print(line)
            made.printed.clear()

    def need_no_giants(self, step: Launch, args: list[Any]) -> None:
        """Raise Refused where a tensor is too large to follow who writes it, and is no input, which nobody writes."""
        inputs = {tensor.untyped_storage().data_ptr() for tensor in self.inputs.values()}
        for name, each in zip(step.names, args, strict=True):
            tensor = getattr(each, "base", each)
            storage = tensor.untyped_storage() if isinstance(tensor, torch.Tensor) else None
            if storage is not None and sparse.is_far(storage) and storage.data_ptr() not in inputs:
                size = f"{storage.nbytes():,} bytes and is no input"
                raise Refused(f"{name} lies in memory of {size}: the machine takes {sparse.FAR_BYTES:,}", step.line)


def line_of(refused: Refused, kernel: Kernel) -> int:
    """The line of what the machine refuses; the kernel's own where that is not known."""
    where = getattr(refused, "where", None)
    found = Lines(getattr(refused, "locations", {}), kernel.file).line(where) if where else None
    return found or kernel.line
