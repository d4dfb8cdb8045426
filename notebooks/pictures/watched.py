"""A kernel of the notebook watched by observers of the grader's machine: each load and store in order, faults, bytes.

Programs run one after the other here, so that the steps have an order to show.
"""

from dataclasses import dataclass

import numpy as np

from grader.core import in_process
from grader.core.machine.observer import Observer
from grader.core.machine.report import Report


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


class Watched(Observer):
    """While open, notes every launch. steps: [Step, ...] in order. backwards: the last program runs first."""

    def __init__(self, backwards=False):
        self.steps, self.report = [], Report({})
        self.opened = in_process.machine([self, *self.report.observers], one_by_one=True, backwards=backwards)

    def __enter__(self):
        self.opened.__enter__()
        return self

    def __exit__(self, *exception):
        return self.opened.__exit__(*exception)

    def accessed(self, access):
        shape, masks = (1, *access.shape), [mask for mask in (access.live, access.outside) if mask is not None]
        live = np.ones(shape, bool) if access.live is None else sum(np.broadcast_to(mask, shape) for mask in masks) > 0
        elements = np.broadcast_to(access.offsets, shape)[live] // access.itemsize
        step = Step(int(access.frame.numbers), access.kind, access.buffer.name, elements, live.size - elements.size)
        self.steps += [step] if elements.size else []

    def of(self, argument, program=None):
        """The steps of one argument, of all programs or of one."""
        return [step for step in self.steps if step.argument == argument and program in (None, step.program)]

    def moved(self):
        """{argument: bytes that all programs together loaded or stored}."""
        totals = [moved for kernel in self.report.costs.kernels.values() for moved in (kernel.loaded, kernel.stored)]
        return {name: number for total in totals for name, number in total.items()}

    def say(self):
        """Print what the observers found fault with, and the lines."""
        found = self.report.make()
        told = [(fault.kind, fault) for fault in found.faults]
        told += [("lanes that nobody defined", one) for one in found.undefined]
        for kind, one in told:
            print(f"{kind}: {one.argument}, {one.lanes} lanes\n    {one.source.split('  # ')[0]}")
        if not told:
            print("no fault")
