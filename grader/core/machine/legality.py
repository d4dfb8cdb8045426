"""Which accesses of a launch are not legal: outside of what they may touch, or in a race with another.

Programs of one launch run in any order, so each element remembers the program that wrote it last and the one that read
it: two programs, one of which writes, are a race, in whichever order the machine came by.
"""

import math
from collections import Counter
from dataclasses import dataclass

import torch
from torch import Tensor

from grader.core.machine.batch import Frame
from grader.core.machine.buffers import NOBODY, Buffer
from grader.core.machine.observer import Access, Launch, Observer
from grader.core.machine.text import Operation

ATOMIC, SEVERAL = -2, -3  # written by atomics, which any number of programs may; read by several
MOST_SHAPES = 64  # of blocks, by which lanes are told apart
UNDEFINED = "undefined lanes"
Key = tuple[str, Operation, str, str]
WRITTEN = "write of another program's element"


@dataclass(eq=False)
class First:
    """What is known of the first place of a fault: programs, the buffer, byte offsets of one program's block.

    numbers: {name in the text: value} of the whole numbers that this program had.
    """

    programs: list[int]
    buffer: Buffer | None
    block: Tensor | None
    launch: Launch
    numbers: dict[str, int]

    def comes_before(self, other: "First") -> bool:
        """True where the program of this one has the smaller number."""
        return self.launch is other.launch and self.programs[-1:] < other.programs[-1:]


class Legality(Observer):
    """faults: {(kind, operation, buffer's name, where): lanes}; hidden: the same of lanes that a load leaves undefined.
    first: {key of either: First}. written: names of inputs that a kernel stored to, if only for a moment."""

    launch: Launch

    def __init__(self) -> None:
        self.faults, self.hidden = Counter[Key](), Counter[Key]()
        self.first: dict[Key, First] = {}
        self.written: set[str] = set()
        self.shapes: dict[tuple[int, ...], int] = {}
        self.lanes: dict[tuple[int, ...], Tensor] = {}

    def begin_launch(self, launch: Launch) -> None:
        self.launch = launch

    def accessed(self, access: Access) -> None:
        buffer = access.buffer
        if access.outside is not None:
            self.note_outside(access)
        if buffer.input and access.kind != "load" and (access.live is None or bool(access.live.any())):
            self.written.add(buffer.input)
        if buffer.view is None and not buffer.far:  # an input is read alone
            numbers, offsets = access.lanes()
            if len(numbers):
                elements, numbers = access.elements(offsets), numbers.repeat_interleave(access.wide)
                self.check_sharing(access, numbers, elements)
                self.check_lanes(access, numbers, elements)

    def note_outside(self, access: Access) -> None:
        """Of several programs that fault alike, the first is told."""
        frame, whole = access.frame, access.whole
        assert access.outside is not None
        outside = access.outside.expand(whole).reshape(frame.count, -1)
        places = outside.any(1).nonzero().flatten()
        places = places[torch.argsort(frame.numbers[places])]
        outside, offsets = outside[places], access.offsets.expand(whole)[places]
        live = outside if access.live is None else outside | access.live.expand(whole).reshape(frame.count, -1)[places]
        parts = describe_outside(offsets.reshape(len(places), -1), live, outside)
        for part in set(parts):
            its = [i for i, each in enumerate(parts) if each == part]
            number, lanes = int(frame.numbers[places[its[0]]]), int(outside[its].sum())
            self.fault(f"out-of-bounds {access.kind}", access, lanes, part, [number], offsets[its[0]])

    def lost(self, kind: str, operation: Operation, frame: Frame, lanes: int) -> None:
        self.note((f"out-of-bounds {kind}", operation, "?", "whole"), lanes, [int(frame.numbers.min())], frame)

    def check_sharing(self, access: Access, numbers: Tensor, elements: Tensor) -> None:
        """What one program writes, no other may write or read."""
        buffer, kind = access.buffer, access.kind
        numbers = numbers.to(torch.int32)
        writers, readers = buffer.table("writers"), buffer.table("readers")
        before = writers[elements]
        others = (before >= 0) & (before != numbers)
        if kind != "atomic" and "atomics" in buffer.tables:  # taken as if all had come
            others |= (before == ATOMIC) & (buffer.table("atomics")[elements] != numbers)
        if kind == "load":
            remember(readers, elements, numbers)
            self.shared("read of another program's write", access, numbers, others, before)
            return
        self.shared(WRITTEN, access, numbers, others, before)
        read = readers[elements]
        by = (read != NOBODY) & (read != numbers)
        self.shared("write of what another program reads", access, numbers, by, read)
        if kind == "store":
            writers[elements] = numbers
            last = writers[elements]
            if bool((twice := last != numbers).any()):  # of the programs that store together
                pair = first_pair(elements, numbers, twice)
                self.fault(WRITTEN, access, int(twice.sum()), "", pair, None)
        else:
            writers[elements] = ATOMIC
            remember(buffer.table("atomics"), elements, numbers)

    def shared(self, kind: str, access: Access, numbers: Tensor, others: Tensor, before: Tensor) -> None:
        """Tell of the lanes where others were before: `before`, the programs."""
        lanes = others.nonzero().flatten()
        if not len(lanes):
            return
        at = lanes[numbers[lanes].argmin()]
        programs = [int(before[at]), int(numbers[at])] if kind == WRITTEN else [int(numbers[at])]
        self.fault(kind, access, len(lanes), "", [program for program in programs if program >= 0], None)

    def check_lanes(self, access: Access, numbers: Tensor, elements: Tensor) -> None:
        """What one lane of a program stores, another may load after a barrier alone."""
        buffer, kind = access.buffer, access.kind
        if kind == "atomic" or (kind == "load" and "lanes" not in buffer.tables):
            return
        shape = access.shape
        block = self.shapes.setdefault(shape, len(self.shapes) + 1) % MOST_SHAPES
        count = math.prod(shape)
        if shape not in self.lanes:
            self.lanes[shape] = torch.arange(count, dtype=torch.int32).view(1, *shape) * MOST_SHAPES
        lanes = self.lanes[shape].expand(access.whole)
        lanes = (lanes.reshape(-1) if access.live is None else lanes[access.live.expand(access.whole)]) + block
        lanes = lanes.repeat_interleave(access.wide)
        stored = buffer.table("lanes")
        if kind == "store":
            stored[elements] = lanes
        by = stored[elements]
        others = (buffer.table("writers")[elements] == numbers) & (by >= 0) & (by != lanes)
        what = "element written twice by one store" if kind == "store" else "read of another lane's write"
        self.shared(what, access, numbers, others, numbers)

    def barrier(self, frame: Frame) -> None:
        whole = frame.count == self.launch.programs
        for buffer in self.launch.buffers.values():
            stored = buffer.tables.get("lanes")
            if whole:
                buffer.tables.pop("lanes", None)
            elif stored is not None:  # the other programs have not come to it
                stored[torch.isin(buffer.table("writers"), frame.numbers.to(torch.int32))] = NOBODY

    def undefined(self, operation: Operation, buffer: Buffer | None, lanes: int) -> None:
        self.noted(UNDEFINED, operation, buffer.name if buffer else "?", lanes)

    def noted(self, kind: str, operation: Operation, name: str, lanes: int) -> None:
        self.note((kind, operation, name, ""), lanes, [], None)

    def fault(
        self, kind: str, access: Access, lanes: int, where: str, programs: list[int], block: Tensor | None
    ) -> None:
        key = kind, access.operation, access.buffer.name, where
        self.note(key, lanes, programs, access.frame, access.buffer, block)

    def note(
        self, key: Key, lanes: int, programs: list[int], frame: Frame | None,
        buffer: Buffer | None = None, block: Tensor | None = None,
    ) -> None:  # fmt: skip
        (self.hidden if key[0] == UNDEFINED else self.faults)[key] += lanes
        first = First(programs, buffer, block, self.launch, {})
        if key not in self.first or first.comes_before(self.first[key]):
            first.numbers = numbers_of(frame, programs[-1]) if frame else {}
            self.first[key] = first


def remember(table: Tensor, elements: Tensor, numbers: Tensor) -> None:
    """Note which program comes to each element; several may come together, and to one element."""
    before = table[elements]
    table[elements] = torch.where((before == NOBODY) | (before == numbers), numbers, SEVERAL)
    if bool((together := table[elements] != numbers).any()):
        table[elements[together]] = SEVERAL


def first_pair(elements: Tensor, numbers: Tensor, twice: Tensor) -> list[int]:
    """Of the programs that store the same elements, two: the first that comes second, and the one before it."""
    shared, programs = torch.isin(elements, elements[twice]), int(numbers.max()) + 1
    stores = torch.unique(elements[shared] * programs + numbers[shared])
    places, numbers = torch.div(stores, programs, rounding_mode="floor"), stores % programs
    pairs = (places[1:] == places[:-1]).nonzero().flatten()
    at = pairs[numbers[1:][pairs].argmin()]
    return [int(numbers[at]), int(numbers[at + 1])]


def numbers_of(frame: Frame, program: int) -> dict[str, int]:
    """{name: value} of all whole numbers that a program has, but for blocks."""
    found: dict[str, int] = {}
    place, here = int((frame.numbers == program).nonzero()[0]), frame
    while True:
        for name, value in here.values.items():
            if value.data.dim() == 1 and not value.data.dtype.is_floating_point and name not in found:
                found[name] = int(value.data[place if len(value.data) > 1 else 0])
        if here.outer is None:
            return found
        place = place if here.places is None else int(here.places[place])
        here = here.outer


def describe_outside(offsets: Tensor, live: Tensor, outside: Tensor) -> list[str]:
    """Which part of each program's block lies outside, of its live lanes by address: "whole", its "end" or its "start",
    else "scattered" lanes. All (programs, lanes)."""
    order = torch.where(live, offsets, torch.iinfo(torch.int64).max).argsort(stable=True, dim=1)
    inside, live = ~outside.gather(1, order), live.gather(1, order)
    turns = ((inside[:, 1:] != inside[:, :-1]) & live[:, 1:]).sum(1).tolist()
    some, first = (inside & live).any(1).tolist(), inside[:, 0].tolist()
    return [
        "whole" if not any_inside else "scattered" if turned > 1 else "end" if begins_inside else "start"
        for any_inside, turned, begins_inside in zip(some, turns, first, strict=True)
    ]
