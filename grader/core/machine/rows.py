"""Which rows of an input an access touches: a row is one index of each dim but the last."""

import math

import torch
from torch import Tensor

from grader.core.machine.buffers import Buffer
from grader.core.machine.observer import Access

HIGHEST = 1 << 62


def touched_rows(access: Access) -> tuple[Tensor, Tensor]:
    """(numbers of programs, rows), both (touches,), program after program: each row that it touches at least once."""
    offsets, live, numbers = access.offsets, access.live, access.frame.numbers
    if live is not None:
        offsets, live = torch.broadcast_tensors(offsets, live)
    for axis in range(offsets.dim() - 1, 0, -1):  # along one axis of a block lie the columns of a row
        low, high = offsets, offsets
        if live is not None:
            low, high = torch.where(live, offsets, HIGHEST), torch.where(live, offsets, -1)
        low, high = low.amin(axis), high.amax(axis)
        some = high >= 0
        row = row_at(low, access.buffer)
        if bool((row == row_at(high, access.buffer))[some].all()):
            numbers = numbers.view(-1, *(1,) * (row.dim() - 1)).expand(len(numbers), *row.shape[1:])
            some, row = some.expand(numbers.shape), row.expand(numbers.shape)
            return numbers[some], row[some]
    numbers, offsets = access.lanes()
    return numbers, row_at(offsets, access.buffer)


def row_at(offsets: Tensor, buffer: Buffer) -> Tensor:
    """Which row of its input each byte offset lies in."""
    assert buffer.view is not None
    found, rows = torch.zeros_like(offsets), buffer.tensor.shape[:-1]
    for dim, index in buffer.view.indices(offsets).items():
        if dim < len(rows):
            found = found + index * math.prod(rows[dim + 1 :])
    return found
