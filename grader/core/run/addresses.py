"""In the runner, interpreted: where each program's first load and store of each argument begins, outside or not.

An address is told as an offset in elements from the argument's first element; what it means, the tensor's strides say.
"""

from typing import Any

import numpy as np

from grader.core.protocol.reports import AddressTable, BlockAddress, FirstAccess, InsideRow, Place
from grader.core.run.observe import Observer
from grader.core.run.regions import Region

PROGRAMS = 4096  # noted for each argument


class Addresses(Observer):
    """A table for each (argument, kind of access) of one launch: the last, or the first with a fault.

    inside_rows: {argument: InsideRow} of the first block of whole rows of an input that begins inside a row.
    """

    def __init__(self, watch: Any) -> None:
        super().__init__(watch)
        self.tables: dict[tuple[str, str], AddressTable] = {}
        self.inside_rows: dict[str, InsideRow] = {}
        self.closed, self.place = False, (0, 0, 0)

    def begin_launch(self) -> None:
        self.closed = bool(self.watch.faults)
        if not self.closed:
            self.tables = {}

    def begin_program(self, place: Place) -> None:
        self.place = place

    def addressed(self, kind: str, region: Region, pointers: np.ndarray) -> None:
        is_new = kind == "load" and region.input and region.name not in self.inside_rows
        if is_new and (found := begins_inside_a_row(region, pointers)):
            self.inside_rows[region.name] = InsideRow(*found, self.watch.line())
        if region.seen_by.get(kind) != self.watch.program:
            region.seen_by[kind] = self.watch.program
            self.note(kind, region, pointers)

    def note(self, kind: str, region: Region, pointers: np.ndarray) -> None:
        """Note a program's first access of this kind to an argument."""
        if self.closed:
            return
        key, tensor = (region.name, kind), region.tensor
        if key not in self.tables:
            shape, strides = list(tensor.shape), list(tensor.stride())
            self.tables[key] = AddressTable(region.name, region.input, kind, shape, strides, [])
        programs = self.tables[key].programs
        if len(programs) < PROGRAMS:
            programs.append(FirstAccess(self.place, describe(region, pointers)))

    def tables_of_kinds(self, *kinds: str) -> list[AddressTable]:
        return [table for (_, kind), table in self.tables.items() if kind in kinds]


def describe(region: Region, pointers: np.ndarray) -> BlockAddress:
    """The BlockAddress of a block of pointers into this region."""
    bytes_in = np.asarray(pointers).astype(np.int64) - region.virtual
    offsets = bytes_in // region.itemsize - region.tensor.storage_offset()
    origin = (0,) * offsets.ndim
    next_ones = [(*origin[:axis], min(1, size - 1), *origin[axis + 1 :]) for axis, size in enumerate(offsets.shape)]
    first = int(offsets[origin])
    return BlockAddress(first, list(offsets.shape), [int(offsets[one]) - first for one in next_ones])


def begins_inside_a_row(region: Region, pointers: np.ndarray) -> tuple[int, int] | None:
    """(row, column) of a block as wide as the input's rows whose first lane is not a row's first, else None."""
    shape, view = region.tensor.shape, region.view
    if view is None or pointers.ndim != 2 or len(shape) < 2 or shape[-1] not in pointers.shape:
        return None
    left, place = int(pointers[0, 0]) - region.virtual - view.start, [0] * len(shape)
    for stride, _, dim in view.dims:
        place[dim], left = divmod(left, stride)
    return (place[-2], place[-1]) if place[-1] else None
