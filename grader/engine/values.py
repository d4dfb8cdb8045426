"""Inputs by named classes, for any kind: which values a tensor has, and how it lies in memory."""

import hashlib
import zlib

import torch

from grader.course.tensors import Placed

HUGE = 30000.0  # around a tensor; still finite in float16
OFFSET = 400.0  # exp of it is past float32; 200 of this size add up past float16
FAR = 20_000.0  # and below a padding of -10000
SLOPE = 3.0  # from an element to the next: 30 later, exp of the difference is past float32
VALUES = {  # of independent standard normal numbers: no two rows agree by chance
    "normal": lambda x: x,
    "offset": lambda x: OFFSET + x,
    "high": lambda x: FAR + 10.0 * x,
    "low": lambda x: -FAR + 10.0 * x,
    "falling": lambda x: x - SLOPE * torch.arange(x.shape[-1]),
    "uneven": lambda x: x + OFFSET * (torch.arange(x.shape[-2]) % 2)[:, None],  # each row needs its own maximum
}


def make(case, seed, *shapes):
    """A Placed tensor of each shape, with the case's dtype, values and layout."""
    source, dtype = generator(case, seed), getattr(torch, case.dtype)
    drawn = (VALUES[case.values](torch.randn(shape, generator=source)) for shape in shapes)
    return [place(values.to(dtype), case.layout) for values in drawn]


def generator(case, seed):
    """The same case and seed always give the same numbers."""
    return torch.Generator().manual_seed(zlib.crc32(f"{seed} {case}".encode()))


def place(values, layout):
    """`values`, of any number of dims, in a buffer of their own; what is left over is HUGE."""
    *more, last = shape = tuple(values.shape)
    before, beyond = ([*[1] * len(shape[2:]), rows, 16][-len(shape) :] for rows in (3, 5))
    size, part = {
        "contiguous": (shape, ...),
        "slice": (map(sum, zip(shape, beyond)), tuple(slice(m, m + n) for n, m in zip(shape, before))),  # noqa: B905
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


def digest(placed):
    """Bytes that tell inputs apart."""
    found = hashlib.sha256()
    for each in placed:
        found.update(each.base.contiguous().view(torch.uint8).numpy())
    return found.digest()
