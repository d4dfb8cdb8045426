"""Beside the machine: which rows of inputs each line of a kernel reads; a row is one index of all dims but the last.

reads.py puts them into words and draws them. Rows that are needed and never read make a case wrong.
"""

import math

import numpy as np
import torch

from grader.core.machine.observer import Observer
from grader.core.machine.rows import touched_rows


class RowLog(Observer):
    """rows: {(kernel, line, input): [(place of the program, number of the row) of each read, as columns]}."""

    def __init__(self, inputs):
        self.shapes = {name: tensor.shape[:-1] for name, tensor in inputs.items() if tensor.dim() > 1}
        self.rows = {}

    def begin_launch(self, launch):
        self.launch = launch

    def accessed(self, access):
        if access.kind == "load" and access.buffer.input in self.shapes:
            line = self.lines.kernel_line(access.operation.where) or 0
            numbers, rows = touched_rows(access)
            columns = torch.stack([*self.launch.place(numbers), rows], 1).numpy()
            self.rows.setdefault((self.launch.kernel, line, access.buffer.input), []).append(columns)

    def report(self):
        """[{"kernel", "line", "input", "programs": [[place, [[first row, last row, step]]]]}]."""
        return [
            {"kernel": kernel, "line": line, "input": name, "programs": programs(np.concatenate(parts), shape)}
            for (kernel, line, name), parts in self.rows.items()
            if (shape := self.shapes[name]) and sum(map(len, parts))
        ]


def programs(found, shape):
    """[[place, stretches]] of (place, row); rows of one stretch lie along one dim: that which gives the fewest."""
    steps = {math.prod(shape[dim + 1 :]): size for dim, size in enumerate(shape) if size > 1} or {1: 1}
    cut = min((stretches(found, step, size) for step, size in steps.items()), key=len)
    by_place = {}
    for *place, first, last, step in cut.tolist():
        by_place.setdefault(tuple(place), []).append([first, last, step])
    return [[list(place), parts] for place, parts in by_place.items()]


def stretches(found, step, size):
    """(stretches, 6): place, first row, last row, step; neighbours along the dim of this size are `step` apart."""
    index = found[:, 3] // step % size
    table = np.c_[found[:, :3], found[:, 3] - index * step, index]
    table = table[np.lexsort(table.T[::-1])]
    moved = np.diff(table, axis=0)
    begins = np.r_[True, moved[:, :4].any(1) | (moved[:, 4] > 1)]
    first, last = table[begins], table[np.r_[begins[1:], True]]
    rows = (part[:, 3] + part[:, 4] * step for part in (first, last))
    return np.column_stack([first[:, :3], *rows, np.full(len(first), step)])


OBSERVER = RowLog
