"""Loads, stores and atomic operations: lanes that are legal are read or written, the others are told of and left out.

Programs of one launch run in any order: what one writes no other may touch. Lanes of one program run in any order, too:
what one stores, another may load after a barrier alone. Values of atomics come in the order of the programs' numbers.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from grader.core.machine.batch import Frame, Value
from grader.core.machine.buffers import NOBODY, SPAN, Buffer
from grader.core.machine.observer import Access
from grader.core.machine.text import Operation

LARGE = 16384.0  # finite in every dtype but those of 8 bits
Combine = Callable[[Tensor, Tensor], Tensor]


@dataclass(eq=False)
class Lanes:
    """What one operation reads or writes. pointers: an address for each lane; mask: which lanes it lets through, or
    None: all, both broadcastable to (programs, *shape). dtype: of what lies there; floats of 8 bits go as bytes, as
    torch moves no others."""

    machine: Any
    operation: Operation
    frame: Frame
    pointers: Value
    mask: Tensor | None
    dtype: torch.dtype
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.dtype.is_floating_point and self.dtype.itemsize == 1:
            self.dtype = torch.int8

    @property
    def whole(self) -> tuple[int, ...]:
        return self.frame.count, *self.shape

    def parts(self, kind: str) -> Iterator[tuple[Buffer | None, Tensor | None, Tensor, Tensor | None]]:
        """For each buffer (it, which lanes are its own or None: all, where in it as one row of the dtype, which of
        them are live and legal, or None: all). Observers hear of each. No buffer: addresses that lie nowhere."""
        for buffer, its in self.by_buffer():
            live = its if self.mask is None else self.mask if its is None else self.mask & its
            if buffer is None:
                self.lost(kind, live)
                yield None, its, self.pointers.data, None
                continue
            offsets, live = self.check(kind, buffer, live)
            yield buffer, its, offsets >> (self.dtype.itemsize.bit_length() - 1), live

    def by_buffer(self) -> list[tuple[Buffer | None, Tensor | None]]:
        """[(buffer, which lanes are its, or None: all)]."""
        if self.pointers.buffer is not None:
            return [(self.pointers.buffer, None)]
        windows = torch.div(self.pointers.data, SPAN, rounding_mode="floor")
        numbers, buffers = windows.unique().tolist(), self.machine.memory.buffers
        if len(numbers) == 1:
            return [(buffers.get(numbers[0]), None)]
        known = [number for number in numbers if number in buffers]
        found: list[tuple[Buffer | None, Tensor | None]] = [(buffers[number], windows == number) for number in known]
        if len(known) < len(numbers):
            found.append((None, ~torch.isin(windows, torch.tensor(known, dtype=torch.int64))))
        return found

    def lost(self, kind: str, live: Tensor | None) -> None:
        lanes = self.frame.count * torch.Size(self.shape).numel()
        if live is not None:
            lanes = int(live.expand(self.whole).sum())
        if lanes:
            self.machine.hear("lost", kind, self.operation, self.frame, lanes)

    def check(self, kind: str, buffer: Buffer, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """(offsets in bytes, which lanes are live and legal, or None: all)."""
        itemsize, offsets, outside = self.dtype.itemsize, self.pointers.data - buffer.base, None
        live = mask = None if mask is not None and bool(mask.all()) else mask
        low, high = (int(bound) for bound in torch.aminmax(offsets))
        aligned = self.machine.aligned or itemsize == 1 or bool((offsets % itemsize == 0).all())
        if not (buffer.dense and low >= buffer.first and high + itemsize <= buffer.last and aligned):
            legal = buffer.legal(offsets, itemsize)
            wrong = ~legal if mask is None else mask & ~legal
            if bool(wrong.any()):
                outside, live = wrong, legal if mask is None else mask & legal
        if self.machine.observers:
            access = Access(kind, self.operation, self.frame, buffer, offsets, live, itemsize, self.shape, outside)
            self.machine.hear("accessed", access)
        return offsets, live


# Loads ---------------------------------------------------------------------------------------------------------------


def load(
    machine: Any, operation: Operation, frame: Frame, pointers: Value, mask: Value | None = None,
    other: Value | None = None,
) -> Value:  # fmt: skip
    (kind,) = operation.made
    lanes = Lanes(machine, operation, frame, pointers, mask.data if mask else None, kind.dtype, kind.shape)
    return Value(read(lanes, kind.dtype, other.data if other else None))


def read(lanes: Lanes, dtype: torch.dtype, other: Tensor | None) -> Tensor:
    """What lies at these addresses; lanes that are not legal give 0, those that the mask hides `other`."""
    made: Tensor | None = None
    for buffer, its, index, live in lanes.parts("load"):
        part = take(buffer, lanes, index, live)
        made = part if made is None else torch.where(its, part, made)  # type: ignore[arg-type]
    assert made is not None
    if lanes.mask is not None:
        other = undefined(lanes) if other is None else other.view(lanes.dtype)
        if other is not None:
            made = torch.where(lanes.mask, made, other)
    return made if lanes.dtype == dtype else made.view(dtype)


def take(buffer: Buffer | None, lanes: Lanes, index: Tensor, live: Tensor | None) -> Tensor:
    """Lanes that are not live give 0, or what `read` puts another number in the place of."""
    flat = buffer.flat(lanes.dtype) if buffer else None
    if flat is None or not (flat.numel() or live is None):
        return torch.zeros((1, *(1,) * len(lanes.shape)), dtype=lanes.dtype)
    if live is None:
        return torch.take(flat, index)
    taken = torch.take(flat, torch.where(live, index, 0).clamp_(0, flat.numel() - 1))
    return taken if live is lanes.mask else torch.where(live, taken, torch.zeros((), dtype=lanes.dtype))


def undefined(lanes: Lanes) -> Tensor | None:
    """What a mask without `other` leaves undefined: NaN in one program, a large number in the next that asks.

    On a GPU the lanes may hold anything, and a kernel that looks for NaN there must not find it each time.
    """
    frame, dtype = lanes.frame, lanes.dtype
    assert lanes.mask is not None
    hidden = (~lanes.mask).expand(lanes.whole).reshape(frame.count, -1).sum(1)
    asking = hidden > 0
    if not bool(asking.any()):
        return None
    lanes.machine.hear("undefined", lanes.operation, lanes.pointers.buffer, int(hidden.sum()))
    ranks = lanes.machine.rank_of_asking(frame.numbers, asking).view(-1, *(1,) * len(lanes.shape))
    if dtype.is_floating_point:
        return torch.where(ranks % 2 == 0, float("nan"), LARGE).to(dtype)
    return torch.full_like(ranks, 0x7F).to(dtype)


# Stores --------------------------------------------------------------------------------------------------------------


def store(
    machine: Any, operation: Operation, frame: Frame, pointers: Value, value: Value, mask: Value | None = None
) -> None:
    kind = operation.types[0]
    lanes = Lanes(machine, operation, frame, pointers, mask.data if mask else None, kind.pointee, kind.shape)
    write(lanes, value.data)


def write(lanes: Lanes, value: Tensor) -> None:
    values = value.view(lanes.dtype).expand(lanes.whole)
    for buffer, _, index, live in lanes.parts("store"):
        if buffer is not None:
            where: Any = ... if live is None else live.expand(lanes.whole)
            buffer.flat(lanes.dtype)[index.expand(lanes.whole)[where].reshape(-1)] = values[where].reshape(-1)


# Atomics -------------------------------------------------------------------------------------------------------------


def atomic(
    machine: Any, operation: Operation, frame: Frame, pointers: Value, value: Value, mask: Value | None = None
) -> Value:
    (kind,) = operation.made
    lanes = Lanes(machine, operation, frame, pointers, mask.data if mask else None, kind.dtype, kind.shape)
    return Value(update(lanes, value.data, operation.prepared))


def compare_and_swap(
    machine: Any, operation: Operation, frame: Frame, pointers: Value, compare: Value, value: Value
) -> Value:
    (kind,) = operation.made
    lanes = Lanes(machine, operation, frame, pointers, None, kind.dtype, kind.shape)
    pairs = torch.stack([each.data.expand(lanes.whole) for each in (compare, value)], -1)
    return Value(update(lanes, pairs, lambda old, pair: torch.where(old == pair[..., 0], pair[..., 1], old)))


def update(lanes: Lanes, value: Tensor, combine: Combine) -> Tensor:
    """What was there before, program by program in the order of their numbers, and lane by lane where two are one.

    Where another program's atomics were before, a block has NaN, or the largest integer: which programs came before is
    not known, and a counter alone may ask, as a queue of tiles does. value: (programs, *shape, what a lane is given).
    """
    shape, whole, machine, numbers = lanes.shape, lanes.whole, lanes.machine, lanes.frame.numbers
    before = torch.zeros(whole, dtype=lanes.dtype).view(whole[0], -1)
    inner = value.shape[len(whole) :]
    values = value.expand(*whole, *inner).reshape(*before.shape, *inner)
    asks = torch.Size(shape).numel() == 1 and not lanes.dtype.is_floating_point
    for buffer, _, index, live in lanes.parts("atomic"):
        if buffer is None:
            continue
        flat, index = buffer.flat(lanes.dtype), index.expand(whole).reshape(before.shape)
        let = torch.ones(whole, dtype=torch.bool) if live is None else live.expand(whole)
        let = let.reshape(before.shape)
        for program in torch.argsort(numbers).tolist():
            here = let[program].nonzero().flatten()
            at, new = index[program][here], values[program][here]
            if not len(at):
                continue
            one_by_one = at.unique().numel() < at.numel()
            machine.steps += len(at) if one_by_one else 1
            machine.count(lanes.operation)
            old = update_program(flat, at, new, combine, one_by_one)
            if not asks and not buffer.far:
                old = hide_order(buffer, at, old, int(numbers[program]))
            before[program, here] = old
    return before.view(whole)


def update_program(flat: Tensor, at: Tensor, new: Tensor, combine: Combine, one_by_one: bool) -> Tensor:
    """The lanes of one program, one after the other where several change one element."""
    if not one_by_one:
        old = flat[at]
        flat[at] = combine(old, new).to(flat.dtype)
        return old
    old = torch.empty_like(flat[at])
    for lane, place in enumerate(at.tolist()):
        old[lane] = flat[place]
        flat[place] = combine(old[lane : lane + 1], new[lane : lane + 1])[0]
    return old


def hide_order(buffer: Buffer, at: Tensor, old: Tensor, number: int) -> Tensor:
    """What this program's lanes learn: NaN where another program's atomics were before; of integers the largest, which
    read as a float is NaN too."""
    dtype = old.dtype
    wide = max(1, dtype.itemsize // buffer.itemsize)  # elements that a lane covers
    elements = (at * dtype.itemsize // buffer.itemsize)[:, None] + torch.arange(wide)
    by = buffer.table("changed by")
    others = ((by[elements] != NOBODY) & (by[elements] != number)).any(1)
    by[elements] = number
    return torch.where(others, float("nan") if dtype.is_floating_point else torch.iinfo(dtype).max, old)
