"""Tensor descriptors: blocks of a tensor by their first index; what lies past its shape is never touched.

A descriptor of the kernel's own belongs to each program; one of the launch's is the same for all.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from grader.core.machine import accesses
from grader.core.machine.batch import Frame, Value, joined
from grader.core.machine.text import Operation, Type, need

Types = tuple[Type, ...]
Execute = Callable[[Any, Operation, Frame], None]
REDUCES = {"add": "add", "min": "min", "max": "max", "and": "and", "or": "or", "xor": "xor"}


class Described(Value):
    """A descriptor. data: its first address, (programs,); shape, strides: one value for each dim, strides in elements.

    padding: what lanes past the shape give when they are loaded, NaN or 0.
    """

    __slots__ = ("padding", "shape", "strides")

    def __init__(self, base: Value, shape: list[Tensor], strides: list[Tensor], padding: float) -> None:
        super().__init__(base.data, base.buffer)
        self.shape, self.strides, self.padding = shape, strides, padding

    def rows(self, index: Tensor) -> "Value":
        return self.changed(lambda x: x if x.shape[0] == 1 else x.index_select(0, index))

    def first(self, count: int) -> "Value":
        return self.changed(lambda x: x if x.shape[0] == 1 else x[:count])

    def changed(self, change: Callable[[Tensor], Tensor]) -> "Described":
        base = Value(change(self.data), self.buffer)
        return Described(base, list(map(change, self.shape)), list(map(change, self.strides)), self.padding)

    def join_with(self, parts: list[tuple[Tensor, Value]], programs: int) -> Value:
        def join(read: Callable[[Any], Tensor]) -> Value:
            return joined([(places, Value(read(value), value.buffer)) for places, value in parts], programs)

        dims = range(len(self.shape))
        shape = [join(lambda value, axis=axis: value.shape[axis]).data for axis in dims]  # type: ignore[misc]
        strides = [join(lambda value, axis=axis: value.strides[axis]).data for axis in dims]  # type: ignore[misc]
        return Described(join(lambda value: value.data), shape, strides, self.padding)


def make_rule(operation: Operation, given: Types) -> Types:
    need(len(operation.types) == 2 and operation.types[1].kind == "descriptor", operation)
    made = operation.types[1]
    rank = len(made.shape)
    need(given[0].kind == "pointer" and given[0].element == made.element and not given[0].shape, operation)
    need(len(given) == 1 + 2 * rank and all(kind.text in ("i32", "i64") for kind in given[1:]), operation)
    return (made,)


def make(operation: Operation) -> Execute:
    base, *sizes = operation.operands
    (result,), rank = operation.results, len(operation.made[0].shape)
    padding = float("nan") if operation.attributes.get("padding") == "2" else 0.0

    def execute(machine: Any, operation: Operation, frame: Frame) -> None:
        numbers = [frame[name].data.to(torch.int64) for name in sizes]
        frame.values[result] = Described(frame[base], numbers[:rank], numbers[rank:], padding)

    return execute


def block_rule(operation: Operation, given: Types, offsets: int, value: int | None) -> Type:
    described = given[0]
    need(described.kind == "descriptor" and described == operation.types[0], operation)
    need(offsets == len(described.shape), operation)
    need(all(kind.text == "i32" for kind in given[1 : 1 + offsets]), operation)
    block = operation.types[-1]
    need(block.kind == "number" and block.element == described.element, operation)
    need(block.elements == Type("", "number", described.shape, "i8").elements, operation)
    need(value is None or given[value] == block, operation)
    return block


def load_rule(operation: Operation, given: Types) -> Types:
    return (block_rule(operation, given, len(given) - 1, None),)


def store_rule(operation: Operation, given: Types) -> Types:
    block_rule(operation, given, len(given) - 2, len(given) - 1)
    return ()


def reduce_rule(operation: Operation, given: Types) -> Types:
    name, kind = accesses.rmw_of(operation), given[0]
    need(name in REDUCES and kind.element not in accesses.NO_ATOMICS, operation)
    need(name in ("add", "min", "max") or kind.element in ("i16", "i32", "i64"), operation)
    return store_rule(operation, given)


def addresses_of(described: Described, starts: list[Tensor], shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """(offsets in elements, which lanes lie in the tensor), (programs, *shape). starts: each broadcastable to that."""
    inside: Any = True
    offsets: Any = 0
    for axis, (start, size) in enumerate(zip(starts, shape, strict=True)):
        if start.dim() == 1:
            places = torch.arange(size).view(1, *(-1 if at == axis else 1 for at in range(len(shape))))
            start = start.view(-1, *(1,) * len(shape)) + places
        view = (-1, *(1,) * len(shape))
        inside = inside & (start >= 0) & (start < described.shape[axis].view(view))
        offsets = offsets + start * described.strides[axis].view(view)
    return offsets, inside


def block_of(
    operation: Operation, frame: Frame, starts: list[Tensor], shape: tuple[int, ...], itemsize: int
) -> tuple[Described, Value, Tensor]:
    described = frame[operation.operands[0]]
    assert isinstance(described, Described)
    offsets, inside = addresses_of(described, starts, shape)
    base = described.data.view(-1, *(1,) * len(shape))
    return described, Value(base + offsets * itemsize, described.buffer), inside


def starts_of(frame: Frame, names: tuple[str, ...]) -> list[Tensor]:
    return [frame[name].data.to(torch.int64) for name in names]


def load(operation: Operation) -> Execute:
    _, *names = operation.operands
    (result,), (made,) = operation.results, operation.made
    block = operation.types[0].shape
    kind = Type("", "number", block, made.element)

    def execute(machine: Any, operation: Operation, frame: Frame) -> None:
        starts = starts_of(frame, tuple(names))
        described, pointers, inside = block_of(operation, frame, starts, block, kind.dtype.itemsize)
        frame.values[result] = Value(shaped(machine, operation, frame, described, pointers, inside, kind, made))

    return execute


def shaped(
    machine: Any, operation: Operation, frame: Frame, described: Described, pointers: Value, inside: Tensor,
    kind: Type, made: Type,
) -> Tensor:  # fmt: skip
    padding = torch.full((1,), described.padding if kind.dtype.is_floating_point else 0).to(kind.dtype)
    data = accesses.read(machine, operation, frame, pointers, inside, padding, kind, kind.shape).data
    return data.expand(-1, *kind.shape).reshape(-1, *made.shape)


def store(operation: Operation) -> Execute:
    _, *names, value = operation.operands
    block, stored = operation.types[0].shape, operation.types[1]

    def execute(machine: Any, operation: Operation, frame: Frame) -> None:
        starts = starts_of(frame, tuple(names))
        _, pointers, inside = block_of(operation, frame, starts, block, stored.dtype.itemsize)
        data = frame[value].data.expand(-1, *stored.shape).reshape(-1, *block)
        accesses.write(machine, operation, frame, pointers, data, inside, stored.dtype, block)

    return execute


def reduce(operation: Operation) -> Execute:
    _, *names, value = operation.operands
    block, stored = operation.types[0].shape, operation.types[1]
    name = REDUCES[accesses.rmw_of(operation)]
    function = {**accesses.ATOMICS, "add": torch.add, **({"min": torch.minimum, "max": torch.maximum} if
                stored.dtype.is_floating_point else {})}[name]  # fmt: skip

    def execute(machine: Any, operation: Operation, frame: Frame) -> None:
        starts = starts_of(frame, tuple(names))
        _, pointers, inside = block_of(operation, frame, starts, block, stored.dtype.itemsize)
        data = frame[value].data.expand(-1, *stored.shape).reshape(-1, *block)
        accesses.update(machine, operation, frame, pointers, data, inside, stored.dtype, block, function)

    return execute


def gather_rule(operation: Operation, given: Types) -> Types:
    rows_rule(operation, given, operation.types[-1])
    return (operation.types[-1],)


def scatter_rule(operation: Operation, given: Types) -> Types:
    need(len(given) == 4 and given[3] == operation.types[-1], operation)
    rows_rule(operation, given, operation.types[-1])
    return ()


def rows_rule(operation: Operation, given: Types, block: Type) -> None:
    described, rows, column = given[:3]
    need(described.kind == "descriptor" and len(described.shape) == 2 and described.shape[0] == 1, operation)
    need(rows.text == f"tensor<{math.prod(rows.shape)}x{rows.element}>" and column.text == "i32", operation)
    need(rows.element in ("i16", "i32") and block.kind == "number", operation)
    need(block.shape == (rows.shape[0], described.shape[1]) and block.element == described.element, operation)


def rows_starts(frame: Frame, names: tuple[str, ...], shape: tuple[int, ...]) -> list[Tensor]:
    rows, column = (frame[name].data.to(torch.int64) for name in names)
    return [rows.view(rows.shape[0], -1, 1).expand(-1, shape[0], 1), column.view(-1, 1, 1) + torch.arange(shape[1])]


def gather(operation: Operation) -> Execute:
    _, *names = operation.operands
    (result,), (made,) = operation.results, operation.made

    def execute(machine: Any, operation: Operation, frame: Frame) -> None:
        starts = rows_starts(frame, tuple(names), made.shape)
        described, pointers, inside = block_of(operation, frame, starts, made.shape, made.dtype.itemsize)
        frame.values[result] = Value(shaped(machine, operation, frame, described, pointers, inside, made, made))

    return execute


def scatter(operation: Operation) -> Execute:
    _, rows, column, value = operation.operands
    stored = operation.types[-1]

    def execute(machine: Any, operation: Operation, frame: Frame) -> None:
        starts = rows_starts(frame, (rows, column), stored.shape)
        _, pointers, inside = block_of(operation, frame, starts, stored.shape, stored.dtype.itemsize)
        accesses.write(machine, operation, frame, pointers, frame[value].data, inside, stored.dtype, stored.shape)

    return execute
