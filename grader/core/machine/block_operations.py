"""Operations on whole blocks: products, reductions, scans, gathering, counting.

Bits: a product of two blocks is made by one call for each program where `bits_trial.py` finds that a call for many
programs gives other bits.
"""

from typing import Any

import torch
from torch import Tensor

from grader.core.machine.batch import Frame, Stopped, Value
from grader.core.machine.text import Operation, Region

# Products ------------------------------------------------------------------------------------------------------------


class Products:
    """How products of many programs are made. one_by_one: a call for each program; bits_trial.py decides it."""

    one_by_one = False


def dot(machine: Any, operation: Operation, frame: Frame, *values: Value) -> Value:
    a, b, c = operation.types
    inner = torch.float64 if a.element in ("i8", "f64") else torch.float32  # exact for integers
    x, y, start = (value.data for value in values)
    count = max(x.shape[0], y.shape[0])
    x, y = (each.expand(count, *kind.shape).to(inner) for each, kind in ((x, a), (y, b)))
    product = multiply(x, y)
    if a.element == "i8":
        return Value(product.to(torch.int32) + start)
    return Value((product + start.to(inner)).to(c.dtype))


def multiply(x: Tensor, y: Tensor) -> Tensor:
    """(programs, *batch, rows, depth) times (programs, *batch, depth, columns), the same bits whatever the programs."""
    x, y = x.contiguous(), y.contiguous()
    a, b = x.view(-1, *x.shape[-2:]), y.view(-1, *y.shape[-2:])
    if Products.one_by_one:
        made = torch.stack([torch.mm(c.clone(), d.clone()) for c, d in zip(a, b, strict=True)])
    else:
        made = torch.bmm(a, b)
    return made.view(*x.shape[:-1], y.shape[-1])


E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0])


def scaled(machine: Any, operation: Operation, frame: Frame, *values: Value) -> Value:
    """Blocks with a scale of 8 bits for each 32 numbers along the depth (OCP Microscaling Formats, MX, v1.0)."""
    pairs = zip(values, operation.types, strict=True)
    blocks, given = list[Tensor](), [value.data.expand(-1, *kind.shape) for value, kind in pairs]
    for side, (form, has_scale) in enumerate(operation.prepared):
        x = given.pop(0)
        numbers = unpacked(x, side) if form == "e2m1" else x.to(torch.float32)
        if has_scale:
            scale = (given.pop(0).to(torch.int32) & 255).to(torch.float32)
            factor = torch.exp2(scale - 127).repeat_interleave(32, -1)
            numbers = numbers * (factor if side == 0 else factor.transpose(-1, -2))
        blocks.append(numbers)
    count = max(each.shape[0] for each in blocks)
    x, y = (each.expand(count, *each.shape[1:]) for each in blocks)
    return Value(multiply(x, y) + given.pop().to(torch.float32))


def unpacked(x: Tensor, side: int) -> Tensor:
    """Two numbers of 4 bits from each byte, the lower first, along the depth."""
    bits = x.to(torch.int64) & 255
    pair = torch.stack([E2M1[bits & 15], E2M1[bits >> 4]], -1 if side == 0 else -2)
    return pair.flatten(-2) if side == 0 else pair.flatten(-3, -2)


# Reductions and scans ------------------------------------------------------------------------------------------------


def reduce(machine: Any, operation: Operation, frame: Frame, *values: Value) -> list[Value]:
    axis, known = operation.prepared
    axis += 1
    size = operation.types[0].shape[axis - 1]
    if known:
        (x,) = (value.data for value in values)
        sizes = [-1] * x.dim()
        sizes[axis] = size
        return [Value(known(x.expand(sizes), axis))]
    parts = whole(operation, values)
    while size > 1:
        size //= 2
        sides = [[x.narrow(axis, start, size) for x in parts] for start in (0, size)]
        parts = combined(machine, frame, operation.regions[0], *sides)
    return [Value(part.squeeze(axis)) for part in parts]


def scan(machine: Any, operation: Operation, frame: Frame, *values: Value) -> list[Value]:
    """One place after the other along the axis: the order of a scan by hand."""
    (axis, reverse), parts = operation.prepared, whole(operation, values)
    axis += 1
    made = [torch.empty_like(x) for x in parts]
    before: list[Tensor] = []
    for place in range(parts[0].shape[axis])[:: -1 if reverse else 1]:
        here = [x.narrow(axis, place, 1) for x in parts]
        before = combined(machine, frame, operation.regions[0], before, here) if before else here
        for target, x in zip(made, before, strict=True):
            target.narrow(axis, place, 1).copy_(x)
    return list(map(Value, made))


def map_elements(machine: Any, operation: Operation, frame: Frame, *values: Value) -> list[Value]:
    return list(map(Value, combined(machine, frame, operation.regions[0], whole(operation, values), [])))


def whole(operation: Operation, values: tuple[Value, ...]) -> list[Tensor]:
    count = max(value.data.shape[0] for value in values)
    pairs = zip(values, operation.types, strict=False)
    return [value.data.expand(count, *kind.shape).contiguous() for value, kind in pairs]


def combined(machine: Any, frame: Frame, region: Region, left: list[Tensor], right: list[Tensor]) -> list[Tensor]:
    """The region on the numbers in each place of these blocks: each place is a program of its own."""
    shape = left[0].shape
    count = shape.numel()
    if shape[0] == 1:  # the same for all programs: any of them stands for it
        places = torch.zeros(count, dtype=torch.int64)
    else:
        places = torch.arange(shape[0]).repeat_interleave(count // shape[0])
    inner = frame.some(places)
    given = [Value(x.reshape(-1)) for x in (*left, *right)]
    inner.values.update(zip(region.entry.arguments, given, strict=True))
    return [value.data.expand(count).view(shape) for value in machine.run_region(region, inner)]


# Gathering and counting ----------------------------------------------------------------------------------------------


def gather(machine: Any, operation: Operation, frame: Frame, origin: Value, index: Value) -> Value:
    count, axis = max(origin.data.shape[0], index.data.shape[0]), operation.prepared
    x, places = (
        value.data.expand(count, *kind.shape) for value, kind in zip((origin, index), operation.types, strict=False)
    )
    places = places.to(torch.int64)
    if not bool(((places >= 0) & (places < x.shape[axis + 1])).all()):
        raise Stopped(
            "tl.gather with an index outside of the block: on a GPU nobody knows what comes of it", operation.where
        )
    return Value(torch.gather(x, axis + 1, places))


def histogram(machine: Any, operation: Operation, frame: Frame, *values: Value) -> Value:
    origin, target = operation.types
    count = max(value.data.shape[0] for value in values)
    numbers, *masks = (value.data.expand(count, *origin.shape).to(torch.int64) for value in values)
    counted = (numbers >= 0) & (numbers < target.shape[0])
    if masks:
        counted &= masks[0] != 0
    made = torch.zeros((count, *target.shape), dtype=torch.int64)
    made.scatter_add_(1, numbers.clamp(0, target.shape[0] - 1), counted.to(torch.int64))
    return Value(made.to(target.dtype))
