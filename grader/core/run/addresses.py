"""In the runner, interpreted: where each program's first load and store of each argument begins, outside or not.

An address is told as an offset in elements from the argument's first element; what it means, the tensor's strides say.
"""

import numpy as np

PROGRAMS = 4096  # noted for each argument


class Addresses:
    """A table for each (argument, kind of access) of one launch: the last, or the first with a fault."""

    def __init__(self):
        self.tables, self.closed = {}, False

    def begin_launch(self, faulty):
        """faulty: one of the launches before had a fault."""
        self.closed = faulty
        if not faulty:
            self.tables = {}

    def note(self, kind, region, place, pointers):
        """A program's first access of this kind to an argument: `pointers` are its lanes, masked ones too."""
        key, tensor = (region.name, kind), region.tensor
        if self.closed:
            return
        if key not in self.tables:
            self.tables[key] = {
                "argument": region.name, "role": region.role, "kind": kind,
                "shape": list(tensor.shape), "strides": list(tensor.stride()), "programs": [],
            }  # fmt: skip
        programs = self.tables[key]["programs"]
        if len(programs) < PROGRAMS:
            programs.append({"place": place, **described(region, pointers)})

    def report(self, kinds):
        return [table for (_, kind), table in self.tables.items() if kind in kinds]


def described(region, pointers):
    """{"first": offset of the first lane, "block": its sides, "steps": from one lane to the next along each}."""
    bytes_in = np.asarray(pointers).astype(np.int64) - region.virtual
    offsets = bytes_in // region.itemsize - region.tensor.storage_offset()
    origin = (0,) * offsets.ndim
    next_ones = [(*origin[:axis], min(1, size - 1), *origin[axis + 1 :]) for axis, size in enumerate(offsets.shape)]
    first = int(offsets[origin])
    return {"first": first, "block": list(offsets.shape), "steps": [int(offsets[one]) - first for one in next_ones]}
