"""A kernel of the notebook watched by the grader's trace: each load and store in order, faults, bytes.

Import it where TRITON_INTERPRET is 1 and set before triton was imported.
"""

from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from grader.core.interpret.patches import Patches
from grader.core.run.allocations import Allocations
from grader.core.run.hooks import BUILDER
from grader.core.run.trace import Trace


@dataclass(frozen=True)
class Step:
    """One load or store of one program: the elements of the argument's storage that its live lanes name.

    Elements below 0 or past the end lie outside. off: lanes that the mask switches off.
    """

    program: int
    kind: str
    argument: str
    elements: np.ndarray
    off: int


class Watched(Trace):
    """While open, notes every launch of the kernel and of others in its file. steps: [Step, ...] in order."""

    def __init__(self, kernel):
        super().__init__({}, Allocations(), kernel.fn.__code__.co_filename)
        self.steps = []

    def access(self, kind, pointers, mask, itemsize):
        live = np.asarray(pointers)[np.broadcast_to(np.asarray(mask, bool), np.shape(pointers))].astype(np.int64)
        region = self.region_at(int(live[0])) if live.size else None
        if region:
            elements = (live - region.virtual) // itemsize
            self.steps.append(Step(self.program, kind, region.name, elements, np.size(pointers) - live.size))
        return super().access(kind, pointers, mask, itemsize)

    def of(self, argument, program=None):
        """The steps of one argument, of all programs or of one."""
        return [step for step in self.steps if step.argument == argument and program in (None, step.program)]

    def moved(self):
        """{argument: bytes that all programs together loaded or stored}."""
        totals = [moved for kernel in self.costs.kernels.values() for moved in (kernel.loaded, kernel.stored)]
        return {name: number for total in totals for name, number in total.items()}

    def say(self):
        """Print what the trace found fault with, and the lines."""
        found = self.report()
        told = [(fault.kind, fault) for fault in found.faults]
        told += [("lanes that nobody defined", one) for one in found.undefined]
        for kind, one in told:
            print(f"{kind}: {one.argument}, {one.lanes} lanes\n    {one.source.split('  # ')[0]}")
        if not told:
            print("no fault")


@contextmanager
def in_reverse():
    """While open, the interpreter runs the programs of a grid from the last to the first."""

    def backwards(old):
        def set_grid_idx(builder, *index):
            return old(builder, *(size - 1 - i for size, i in zip(builder.grid_dim, index, strict=True)))

        return set_grid_idx

    patches = Patches()
    patches.replace(BUILDER, "set_grid_idx", backwards)
    try:
        yield
    finally:
        patches.undo()
