"""Loads, stores and atomic operations: lanes that are legal are read or written, the others are told of and left out.

Programs of one launch run in any order: what one writes no other may touch. Lanes of one program run in any order, too:
what one stores, another may load after a barrier alone. Values of atomics come in the order of the programs' numbers.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from grader.core.machine import arithmetic
from grader.core.machine.batch import Frame, Value
from grader.core.machine.buffers import NOBODY, SPAN, Buffer
from grader.core.machine.observer import Access
from grader.core.machine.text import Operation, Type, need, parse_type

Types = tuple[Type, ...]
Execute = Callable[[Any, Operation, Frame], None]
LARGE = 16384.0  # finite in every dtype but those of 8 bits
EIGHT_BITS, BYTES = ("f8E4M3FN", "f8E5M2"), parse_type("i8")
NO_ATOMICS = (*EIGHT_BITS, "i1", "i8")


# Rules ---------------------------------------------------------------------------------------------------------------


def behind(pointer: Type) -> Type:
    """What lies behind a pointer, or a block of pointers."""
    shape = "x".join(map(str, pointer.shape))
    return parse_type(f"tensor<{shape}x{pointer.element}>" if pointer.shape else pointer.element)


def fits(value: Type, wanted: Type) -> bool:
    return (value.kind, value.shape, value.element) == (wanted.kind, wanted.shape, wanted.element)


def is_mask(kind: Type, pointer: Type) -> bool:
    return (kind.kind, kind.element, kind.shape) == ("number", "i1", pointer.shape)


def load_rule(operation: Operation, given: Types) -> Types:
    need(len(operation.types) == 1 and 1 <= len(given) <= 3, operation)
    (pointer,) = operation.types
    need(given[0] == pointer and pointer.kind == "pointer", operation)
    need("boundaryCheck" not in operation.attributes, operation)
    made = behind(pointer)
    if len(given) > 1:
        need(is_mask(given[1], pointer), operation)
    if len(given) > 2:
        need(fits(given[2], made), operation)
    return (made,)


def store_rule(operation: Operation, given: Types) -> Types:
    need(len(operation.types) == 1 and 2 <= len(given) <= 3 and not operation.results, operation)
    (pointer,) = operation.types
    need(given[0] == pointer and pointer.kind == "pointer" and fits(given[1], behind(pointer)), operation)
    need("boundaryCheck" not in operation.attributes, operation)
    need(len(given) < 3 or is_mask(given[2], pointer), operation)
    return ()


def atomic_rule(operation: Operation, given: Types) -> Types:
    need(len(given) in (2, 3) and operation.types[:-1] == given and given[0].kind == "pointer", operation)
    made = behind(given[0])
    need(fits(given[1], made) and operation.types[-1] == made, operation)
    name = rmw_of(operation)
    need((name in FLOAT_ATOMICS) if made.dtype.is_floating_point else (name in ATOMICS), operation)
    need(made.element not in NO_ATOMICS and (len(given) < 3 or is_mask(given[2], given[0])), operation)
    return (made,)


def atomic_load_rule(operation: Operation, given: Types) -> Types:
    need(1 <= len(given) <= 3 and operation.types[:-1] == given and given[0].kind == "pointer", operation)
    need(operation.types[-1] == behind(given[0]), operation)
    need(len(given) == 1 or is_mask(given[1], given[0]), operation)
    need(len(given) < 3 or fits(given[2], operation.types[-1]), operation)
    return operation.types[-1:]


def cas_rule(operation: Operation, given: Types) -> Types:
    need(len(given) == 3 and operation.types[:-1] == given and given[0].kind == "pointer", operation)
    made = behind(given[0])
    need(fits(given[1], made) and fits(given[2], made) and operation.types[-1] == made, operation)
    need(made.element not in NO_ATOMICS, operation)
    return (made,)


def rmw_of(operation: Operation) -> str:
    return operation.body.strip().partition(",")[0]


# Where lanes lie -----------------------------------------------------------------------------------------------------


def lanes_by_buffer(
    machine: Any, pointer: Value, frame: Frame, shape: tuple[int, ...]
) -> list[tuple[Buffer | None, Tensor | None]]:
    """[(buffer, which lanes are its, or None: all)] of a block of pointers."""
    if pointer.buffer is not None:
        return [(pointer.buffer, None)]
    windows = torch.div(pointer.data, SPAN, rounding_mode="floor")
    numbers = windows.unique().tolist()
    buffers = machine.memory.buffers
    if len(numbers) == 1:
        return [(buffers.get(numbers[0]), None)]
    known = [number for number in numbers if number in buffers]
    nowhere = ~torch.isin(windows, torch.tensor(known, dtype=torch.int64))
    found: list[tuple[Buffer | None, Tensor | None]] = [(buffers[number], windows == number) for number in known]
    return [*found, (None, nowhere)] if len(known) < len(numbers) else found


def check(
    machine: Any, kind: str, operation: Operation, frame: Frame, buffer: Buffer | None,
    addresses: Tensor, mask: Tensor | None, itemsize: int, shape: tuple[int, ...],
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """(offsets in bytes, which lanes are live and legal, or None: all); observers hear of the access."""
    if buffer is None:
        live = torch.ones((1, *(1,) * len(shape)), dtype=torch.bool) if mask is None else mask
        if bool(live.any()):
            machine.hear("lost", kind, operation, frame, live, addresses, shape)
        return addresses, torch.zeros_like(live)
    offsets = addresses - buffer.base
    outside = None
    live = mask = None if mask is not None and bool(mask.all()) else mask
    low, high = (int(bound) for bound in torch.aminmax(offsets))
    aligned = machine.aligned or itemsize == 1 or bool((offsets % itemsize == 0).all())
    if not (buffer.dense and low >= buffer.first and high + itemsize <= buffer.last and aligned):
        legal = buffer.legal(offsets, itemsize)
        if mask is None:
            if not bool(legal.all()):
                live, outside = legal, ~legal
        else:
            wrong = mask & ~legal
            if bool(wrong.any()):
                outside = wrong
            live = mask & legal
    if machine.observers:
        machine.hear("accessed", Access(kind, operation, frame, buffer, offsets, live, itemsize, shape, outside))
    return offsets, live


# Loads ---------------------------------------------------------------------------------------------------------------


def load(operation: Operation) -> Execute:
    pointer, *rest = operation.operands
    mask, other = (*rest, None, None)[:2]
    (result,), (kind,) = operation.results, operation.made
    shape = operation.types[0].shape

    def execute(machine: Any, operation: Operation, frame: Frame) -> None:
        frame.values[result] = read(
            machine, operation, frame, frame[pointer], frame[mask].data if mask else None,
            frame[other].data if other else None, kind, shape,
        )  # fmt: skip

    return execute


def read(
    machine: Any, operation: Operation, frame: Frame, pointer: Value, mask: Tensor | None, other: Tensor | None,
    kind: Type, shape: tuple[int, ...],
) -> Value:  # fmt: skip
    """What lies at these addresses."""
    if kind.element in EIGHT_BITS:  # which torch moves as bytes alone
        other = None if other is None else other.view(torch.int8)
        made_as_bytes = read(machine, operation, frame, pointer, mask, other, BYTES, shape)
        return Value(made_as_bytes.data.view(kind.dtype))
    made: Tensor | None = None
    for buffer, its in lanes_by_buffer(machine, pointer, frame, shape):
        wanted = its if mask is None else mask if its is None else mask & its
        part = read_one(machine, operation, frame, buffer, pointer.data, wanted, kind, shape)
        made = part if made is None else torch.where(its, part, made)  # type: ignore[arg-type]
    assert made is not None
    if mask is not None:
        if other is None:
            other = undefined(machine, operation, frame, pointer, mask, kind, shape)
        if other is not None:
            made = torch.where(mask, made, other)
    return Value(made)


def read_one(
    machine: Any, operation: Operation, frame: Frame, buffer: Buffer | None, addresses: Tensor, mask: Tensor | None,
    kind: Type, shape: tuple[int, ...],
) -> Tensor:  # fmt: skip
    """Lanes that are not live, or not legal, give 0."""
    itemsize = kind.dtype.itemsize
    offsets, live = check(machine, "load", operation, frame, buffer, addresses, mask, itemsize, shape)
    if buffer is None:
        return torch.zeros((1, *(1,) * len(shape)), dtype=kind.dtype)
    index = offsets.div(itemsize, rounding_mode="floor") if itemsize & (itemsize - 1) else offsets >> SHIFTS[itemsize]
    flat = buffer.flat(kind.dtype)
    if live is None:
        return torch.take(flat, index)
    safe = torch.where(live, index, buffer.first // itemsize)
    if not flat.numel():
        return torch.zeros(safe.shape, dtype=kind.dtype)
    taken = torch.take(flat, safe.clamp_(0, flat.numel() - 1))
    return taken if mask is live else torch.where(live, taken, torch.zeros((), dtype=kind.dtype))


SHIFTS = {1: 0, 2: 1, 4: 2, 8: 3}


def undefined(
    machine: Any, operation: Operation, frame: Frame, pointer: Value, mask: Tensor, kind: Type, shape: tuple[int, ...]
) -> Tensor | None:
    """What a mask without `other` leaves undefined: NaN in one program, a large number in the next that asks.

    On a GPU the lanes may hold anything, and a kernel that looks for NaN there must not find it each time.
    """
    hidden = ~mask
    lanes = hidden.expand(frame.count, *shape).reshape(frame.count, -1).sum(1)
    asking = lanes > 0
    if not bool(asking.any()):
        return None
    if machine.observers:
        machine.hear("undefined", operation, frame, pointer.buffer, int(lanes.sum()))
    which = machine.rank_of_asking(frame.numbers, asking).view(-1, *(1,) * len(shape)) % 2 == 0
    if kind.kind == "number" and kind.dtype.is_floating_point:
        nan, large = float("nan"), LARGE
    else:
        nan = large = True if kind.element == "i1" else 0x7F
    return torch.where(which, nan, large).to(kind.dtype)


# Stores --------------------------------------------------------------------------------------------------------------


def store(operation: Operation) -> Execute:
    pointer, value, *rest = operation.operands
    mask = rest[0] if rest else None
    kind, shape = operation.types[0], operation.types[0].shape

    def execute(machine: Any, operation: Operation, frame: Frame) -> None:
        write(machine, operation, frame, frame[pointer], frame[value].data, frame[mask].data if mask else None,
              kind.pointee, shape)  # fmt: skip

    return execute


def write(
    machine: Any, operation: Operation, frame: Frame, pointer: Value, value: Tensor, mask: Tensor | None,
    dtype: torch.dtype, shape: tuple[int, ...],
) -> None:  # fmt: skip
    if dtype.is_floating_point and dtype.itemsize == 1:
        value, dtype = value.view(torch.int8), torch.int8
    for buffer, its in lanes_by_buffer(machine, pointer, frame, shape):
        wanted = its if mask is None else mask if its is None else mask & its
        offsets, live = check(machine, "store", operation, frame, buffer, pointer.data, wanted, dtype.itemsize, shape)
        if buffer is None:
            continue
        whole = (frame.count, *shape)
        index = (offsets >> SHIFTS[dtype.itemsize]).expand(whole)
        values = value.expand(whole)
        if live is None:
            buffer.flat(dtype)[index.reshape(-1)] = values.reshape(-1)
        else:
            live = live.expand(whole)
            buffer.flat(dtype)[index[live]] = values[live]


# Atomics -------------------------------------------------------------------------------------------------------------


def exchanged(old: Tensor, new: Tensor) -> Tensor:
    return new


ATOMICS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add, "and": torch.bitwise_and, "or": torch.bitwise_or, "xor": torch.bitwise_xor, "exch": exchanged,
    "max": arithmetic.chosen_by(arithmetic.signed, True), "min": arithmetic.chosen_by(arithmetic.signed, False),
    "umax": arithmetic.chosen_by(arithmetic.ordered, True), "umin": arithmetic.chosen_by(arithmetic.ordered, False),
}  # fmt: skip
FLOAT_ATOMICS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"fadd": torch.add, "exch": exchanged}


def atomic(operation: Operation) -> Execute:
    pointer, value, *rest = operation.operands
    mask = rest[0] if rest else None
    name, shape, kind = rmw_of(operation), operation.made[0].shape, operation.made[0]
    function = (FLOAT_ATOMICS if kind.dtype.is_floating_point else ATOMICS)[name]

    def execute(machine: Any, operation: Operation, frame: Frame) -> None:
        lanes = frame[mask].data if mask else None
        made = update(machine, operation, frame, frame[pointer], frame[value].data, lanes, kind.dtype, shape, function)
        for result in operation.results:
            frame.values[result] = Value(made)

    return execute


def compare_and_swap(operation: Operation) -> Execute:
    (pointer, compare, value), (result,) = operation.operands, operation.results
    kind, shape = operation.made[0], operation.made[0].shape

    def execute(machine: Any, operation: Operation, frame: Frame) -> None:
        whole = (frame.count, *shape)
        pairs = torch.stack([frame[name].data.expand(whole) for name in (compare, value)], -1)

        def swap(old: Tensor, pair: Tensor) -> Tensor:
            return torch.where(old == pair[..., 0], pair[..., 1], old)

        made = update(machine, operation, frame, frame[pointer], pairs, None, kind.dtype, shape, swap)
        frame.values[result] = Value(made)

    return execute


def update(
    machine: Any, operation: Operation, frame: Frame, pointer: Value, value: Tensor, mask: Tensor | None,
    dtype: torch.dtype, shape: tuple[int, ...], function: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:  # fmt: skip
    """What was there before, program by program in the order of their numbers, and lane by lane where two are one.

    Where another program's atomics were before, a block has NaN, or the largest integer: which programs came before is
    not known, and a counter alone may ask, as a queue of tiles does.
    """
    whole = (frame.count, *shape)
    before = torch.zeros(whole, dtype=dtype)
    values = value.expand(*whole, *value.shape[len(whole) :])
    order = torch.argsort(frame.numbers).tolist()
    for buffer, its in lanes_by_buffer(machine, pointer, frame, shape):
        wanted = its if mask is None else mask if its is None else mask & its
        offsets, live = check(machine, "atomic", operation, frame, buffer, pointer.data, wanted, dtype.itemsize, shape)
        if buffer is None:
            continue
        flat = buffer.flat(dtype)
        index = (offsets >> SHIFTS[dtype.itemsize]).expand(whole)
        lanes = torch.ones(whole, dtype=torch.bool) if live is None else live.expand(whole)
        for program in order:
            here = lanes[program].nonzero(as_tuple=True) if shape else ()
            if not shape and not bool(lanes[program]):
                continue
            at = index[program][here].reshape(-1)
            new = values[program][here].reshape(at.shape[0], *value.shape[len(whole) :])
            one_by_one = at.unique().numel() < at.numel()
            machine.steps += len(at) if one_by_one else 1
            machine.count(operation)
            old = update_program(flat, at, new, function, one_by_one)
            if (before[program].numel() > 1 or dtype.is_floating_point) and not buffer.far:
                wide = max(1, dtype.itemsize // buffer.itemsize)  # elements that a lane covers
                elements = (at * dtype.itemsize // buffer.itemsize)[:, None] + torch.arange(wide)
                by, number = buffer.table("changed by"), int(frame.numbers[program])
                others = ((by[elements] != NOBODY) & (by[elements] != number)).any(1)
                old = torch.where(others, unknown_number(dtype), old)
                by[elements] = number
            before[program][here] = old.view(before[program][here].shape)
    return before


def update_program(
    flat: Tensor, at: Tensor, new: Tensor, function: Callable[[Tensor, Tensor], Tensor], one_by_one: bool
) -> Tensor:
    """The lanes of one program, one after the other where several change one element."""
    if not one_by_one:
        old = flat[at]
        flat[at] = function(old, new).to(flat.dtype)
        return old
    old = torch.empty_like(flat[at])
    for lane, place in enumerate(at.tolist()):
        old[lane] = flat[place]
        flat[place] = function(old[lane : lane + 1], new[lane : lane + 1])[0]
    return old


def unknown_number(dtype: torch.dtype) -> Any:
    """NaN; of integers the largest, which read as a float is NaN too."""
    return float("nan") if dtype.is_floating_point else torch.iinfo(dtype).max
