"""Tensor descriptors: blocks of a tensor by their first index; what lies past its shape is never touched.

The value of a descriptor is a row of numbers for each program: its first address, whether lanes past the shape give
NaN (else 0), its shape, and its strides in elements. One of the launch's is the same for all programs.
"""

from typing import Any

import torch
from torch import Tensor

from grader.core.machine import accesses
from grader.core.machine.accesses import Lanes
from grader.core.machine.batch import Frame, Value
from grader.core.machine.text import Operation

NAN = "2"  # how the IR writes that padding


def make(machine: Any, operation: Operation, frame: Frame, base: Value, *sizes: Value) -> Value:
    padding = torch.tensor([int(operation.attributes.get("padding") == NAN)])
    columns = [base.data, padding, *(size.data.to(torch.int64) for size in sizes)]
    return Value(torch.stack(torch.broadcast_tensors(*columns), 1), base.buffer)


def lanes_of(
    machine: Any, operation: Operation, frame: Frame, descriptor: Value, starts: tuple[Value, ...]
) -> tuple[Lanes, Tensor]:
    """(the lanes of a block, what those past the shape give). starts: its first index along each axis, or, of the first
    axis, the index of each row."""
    kind, rows = operation.types[-1], starts[0].data.dim() > 1
    shape = kind.shape if rows else operation.types[0].shape
    columns = descriptor.data.view(len(descriptor.data), -1, *(1,) * len(shape)).unbind(1)
    addresses, padding, sizes, strides = columns[0], columns[1], columns[2:], columns[2 + len(shape) :]
    inside: Any = True
    for axis, start in enumerate(starts):
        view = [-1 if at == axis else 1 for at in range(len(shape))]
        places = start.data.to(torch.int64)
        if places.dim() > 1:
            places = places.view(len(places), *view)
        else:
            places = places.view(-1, *(1,) * len(shape)) + torch.arange(shape[axis]).view(view)
        inside = inside & (places >= 0) & (places < sizes[axis])
        addresses = addresses + places * strides[axis] * kind.dtype.itemsize
    lanes = Lanes(machine, operation, frame, Value(addresses, descriptor.buffer), inside, kind.dtype, shape)
    if kind.dtype.is_floating_point:
        return lanes, torch.where(padding != 0, float("nan"), 0.0).to(kind.dtype)
    return lanes, torch.zeros(1, dtype=kind.dtype)


def load(machine: Any, operation: Operation, frame: Frame, descriptor: Value, *starts: Value) -> Value:
    lanes, padding = lanes_of(machine, operation, frame, descriptor, starts)
    (made,) = operation.made
    return Value(accesses.read(lanes, made.dtype, padding).expand(-1, *lanes.shape).reshape(-1, *made.shape))


def store(machine: Any, operation: Operation, frame: Frame, descriptor: Value, *given: Value) -> None:
    lanes, _ = lanes_of(machine, operation, frame, descriptor, given[:-1])
    accesses.write(lanes, stored(operation, lanes, given[-1]))


def reduce(machine: Any, operation: Operation, frame: Frame, descriptor: Value, *given: Value) -> None:
    lanes, _ = lanes_of(machine, operation, frame, descriptor, given[:-1])
    accesses.update(lanes, stored(operation, lanes, given[-1]), operation.prepared)


def stored(operation: Operation, lanes: Lanes, value: Value) -> Tensor:
    """The block in the shape that the descriptor has for it."""
    return value.data.expand(-1, *operation.types[-1].shape).reshape(-1, *lanes.shape)
