"""Where each program's first load and store of each argument begins, outside or not.

An address is told as an offset in elements from the argument's first element; what it means, the tensor's strides say.
"""

import heapq
from dataclasses import dataclass, field

import torch
from torch import Tensor

from grader.core.machine.buffers import Buffer
from grader.core.machine.legality import Legality
from grader.core.machine.observer import Access, Launch, Observer
from grader.core.protocol.reports import AddressTable, BlockAddress, FirstAccess, InsideRow

PROGRAMS = 4096  # noted for each argument


@dataclass(eq=False)
class Table:
    """First accesses of one kind to one buffer. seen: (programs,); left: how many of them are not.

    parts: for each access (numbers of the programs, their BlockAddresses in three columns).
    """

    buffer: Buffer
    launch: Launch
    seen: Tensor
    left: int
    parts: list[tuple[Tensor, Tensor, list[int], Tensor]] = field(default_factory=list)

    def programs(self) -> list[FirstAccess]:
        found = (
            (number, BlockAddress(first, block, step))
            for numbers, firsts, block, steps in self.parts
            for number, first, step in zip(numbers.tolist(), firsts.tolist(), steps.tolist(), strict=True)
        )
        least = heapq.nsmallest(PROGRAMS, found, key=lambda each: each[0])
        return [FirstAccess(self.launch.place(number), address) for number, address in least]


class Addresses(Observer):
    """A table for each (argument, kind of access) of one launch: the last, or the first with a fault.

    inside_rows: {argument: InsideRow} of the first block of whole rows of an input that begins inside a row.
    """

    def __init__(self, legality: Legality) -> None:
        self.legality = legality
        self.tables: dict[tuple[str, str], Table] = {}
        self.inside_rows: dict[str, InsideRow] = {}
        self.closed = False

    def begin_launch(self, launch: Launch) -> None:
        self.closed, self.launch = bool(self.legality.faults), launch
        if not self.closed:
            self.tables = {}

    def accessed(self, access: Access) -> None:
        buffer, kind, numbers = access.buffer, access.kind, access.frame.numbers
        if kind == "load" and buffer.view and buffer.name not in self.inside_rows:
            self.note_inside_row(access)
        if self.closed:
            return
        key = buffer.name, kind
        if key not in self.tables:
            programs = self.launch.programs
            self.tables[key] = Table(buffer, self.launch, torch.zeros(programs, dtype=torch.bool), programs)
        table = self.tables[key]
        if table.left:
            new = (~table.seen[numbers] & touching(access)).nonzero().flatten()
            if len(new):
                table.seen[numbers[new]] = True
                table.left -= len(new)
                first, steps = corners(access.offsets, buffer)
                whole = access.frame.count
                block = list(access.shape) or [1]
                table.parts.append((numbers[new], first.expand(whole)[new], block, steps.expand(whole, -1)[new]))

    def note_inside_row(self, access: Access) -> None:
        """Note a block as wide as the input's rows whose first lane is not a row's first."""
        buffer, shape = access.buffer, access.buffer.tensor.shape
        if buffer.view is None or len(access.shape) != 2 or len(shape) < 2 or shape[-1] not in access.shape:
            return
        found = buffer.view.indices(access.offsets[:, 0, 0])
        row, column = (found.get(len(shape) - dim) for dim in (2, 1))
        if column is None or not bool((column != 0).any()):
            return
        wrong = ((column != 0) & touching(access)).nonzero().flatten()
        if len(wrong):
            at = int(wrong[access.frame.numbers[wrong].argmin()])
            line = self.lines.line(access.operation.where) or 0
            row, column = (0 if x is None else int(x.expand(access.frame.count)[at]) for x in (row, column))
            self.inside_rows[buffer.name] = InsideRow(row, column, line)

    def tables_of_kinds(self, *kinds: str) -> list[AddressTable]:
        return [
            AddressTable(name, table.buffer.input, kind, list(table.buffer.tensor.shape),
                         list(table.buffer.tensor.stride()), table.programs())
            for (name, kind), table in self.tables.items() if kind in kinds and table.parts
        ]  # fmt: skip


def touching(access: Access) -> Tensor:
    """(programs,): which have a lane that their mask lets through."""
    live = access.counts > 0
    if access.outside is not None:
        live |= access.outside.reshape(access.outside.shape[0], -1).any(1)
    return live


def corners(offsets: Tensor, buffer: Buffer) -> tuple[Tensor, Tensor]:
    """(elements of the first lanes from the argument's first (programs,), the steps along the axes (programs, axes)).

    A number is a block of one lane.
    """
    axes, first = range(1, max(2, offsets.dim())), elements_at(offsets, 0, buffer)
    return first, torch.stack([elements_at(offsets, axis, buffer) - first for axis in axes], 1)


def elements_at(offsets: Tensor, axis: int, buffer: Buffer) -> Tensor:
    """Of the second lane along this axis, 0 for the first lane of all."""
    for each in range(offsets.dim() - 1, 0, -1):
        offsets = offsets.select(each, min(int(each == axis), offsets.shape[each] - 1))
    return torch.div(offsets, buffer.itemsize, rounding_mode="floor") - buffer.tensor.storage_offset()


def describe(block: Tensor, buffer: Buffer) -> BlockAddress:
    """The BlockAddress of one program's block of byte offsets."""
    first, steps = corners(block[None], buffer)
    return BlockAddress(int(first), list(block.shape) or [1], steps[0].tolist())
