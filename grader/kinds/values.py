"""Inputs by named classes, for any kind: which values a tensor has, and how it lies in memory."""

import zlib

import torch

from grader.course.tensors import Placed

HUGE = 30000.0  # around a tensor; still finite in float16
OFFSET = 400.0  # exp of it is past float32; 200 of this size add up past float16
FAR = 20_000.0  # and below a padding of -10000
SLOPE = 3.0  # from an element to the next: 30 later, exp of the difference is past float32


def make(case, seed, *shapes):
    """A Placed tensor of each shape, with the case's dtype, values and layout."""
    source, dtype = generator(case, seed), getattr(torch, case.dtype)
    return [place(VALUES[case.values](shape, source).to(dtype), case.layout) for shape in shapes]


def generator(case, seed):
    """The same case and seed always give the same numbers."""
    return torch.Generator().manual_seed(zlib.crc32(f"{seed} {case}".encode()))


def normal(shape, source):
    """Independent standard normal numbers, so that no two rows agree by chance."""
    return torch.randn(shape, generator=source)


def falling(shape, source):
    """Along the last dim, each element SLOPE below the one before it."""
    return normal(shape, source) - SLOPE * torch.arange(shape[-1])


def uneven(shape, source):
    """Every other row OFFSET above the rows beside it: each needs a maximum of its own."""
    return normal(shape, source) + OFFSET * (torch.arange(shape[-2]) % 2)[:, None]


VALUES = {
    "normal": normal, "falling": falling, "uneven": uneven,
    "offset": lambda shape, source: OFFSET + normal(shape, source),
    "low": lambda shape, source: -FAR + 10.0 * normal(shape, source),
    "high": lambda shape, source: FAR + 10.0 * normal(shape, source),
}  # fmt: skip


def place(values, layout):
    """`values`, of any number of dims, in a buffer of their own; what is left over is HUGE."""
    *more, last = shape = tuple(values.shape)
    before, beyond = (*[1] * (len(shape) - 2), 3, 16)[-len(shape) :], (*[1] * (len(shape) - 2), 5, 16)[-len(shape) :]
    size, part = {
        "contiguous": (shape, ...),
        "slice": (
            [n + m for n, m in zip(shape, beyond, strict=True)],
            tuple(slice(m, m + n) for n, m in zip(shape, before, strict=True)),
        ),
        "odd rows": ((*more, last + 1), (..., slice(last))),
        "every third": ((*shape, 3), (..., 1)),
    }[layout]
    return frame(values, HUGE, size, lambda buffer: buffer[part])


def frame(values, fill, size, window):
    """`values` as the part `window(buffer)` of a buffer of this size that has `fill` everywhere else."""
    base = torch.full(tuple(size), fill, dtype=values.dtype)
    view = window(base)
    view.copy_(values)
    return Placed(base.reshape(-1), tuple(view.shape), view.stride(), view.storage_offset())
