"""In the runner, interpreted: the memory of one launch as the kernel sees it.

Each storage gets a window of virtual addresses of its own, a terabyte wide, so that a pointer that runs out of one
tensor can never land in another.
"""

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from grader.core.worker import sparse

SPAN = 1 << 40  # bytes of a window; storages lie in the middle of theirs, so that overruns stay in it both ways
MIDDLE = 1 << 39
NOBODY = -1  # no program has written, or read, this element


class Region:
    """One storage of a launch: its window of addresses, the elements of it that may be touched, and who touched them.

    number: of its window, from 1. input, tensor: the name of the call's input that it is, or None, and the tensor that
    a kernel is given. view: where that input's elements lie, as describe_view tells; none else may be touched then.
    Where it is None, all between `first` and `last` is legal. writers, readers, atomics: programs, by element. loaded:
    which elements were, or None. lanes: which lane of which block stored each element, where no barrier came since.
    seen_by: {"load" or "store": the last program that did}. views: {dtype: the storage as an array of it}.
    """

    def __init__(
        self, number: int, storage: torch.UntypedStorage, name: str, tensor: torch.Tensor, itemsize: int
    ) -> None:
        self.name, self.real, self.bytes, self.storage = name, storage.data_ptr(), storage.nbytes(), storage
        self.virtual, self.tensor = number * SPAN + MIDDLE, tensor
        self.first, self.last = 0, self.bytes  # legal bytes, unless there is a view
        self.view: View | None = None
        self.input: str | None = None
        self.merged: list[tuple[int, int]] = []
        self.writers: np.ndarray | None = None
        self.readers: np.ndarray | None = None
        self.atomics: np.ndarray | None = None
        self.loaded: np.ndarray | None = None
        self.lanes: np.ndarray | None = None
        self.itemsize, self.far = itemsize, sparse.is_far(storage)
        self.seen_by: dict[str, int] = {}
        self.views: dict[np.dtype, np.ndarray] = {}

    def hold(self, name: str, tensor: torch.Tensor) -> None:
        """Note that `tensor`, a view of this storage, is an input: of the storage only its elements may be touched."""
        self.input, self.tensor, self.view = name, tensor, describe_view(tensor)
        for stride, size, _ in self.view.dims:  # what lies densely in a wider dim is one with it
            if self.merged and self.merged[-1][0] == stride * size:
                size *= self.merged.pop()[1]
            self.merged.append((stride, size))

    def legal(self, offsets: np.ndarray, itemsize: int) -> np.ndarray:
        """For byte offsets into the storage: True where a whole legal element begins."""
        inside = (offsets >= self.first) & (offsets + itemsize <= self.last)
        if self.view is None:
            return inside
        left = offsets - self.view.start
        inside &= left >= 0
        for stride, size in self.merged:  # the widest stride first
            index = left // stride
            inside &= index < size
            left = left - index * stride
        return inside & (left == 0)

    def read(self, offsets: np.ndarray, dtype: np.dtype) -> np.ndarray:
        """The elements that begin at these legal byte offsets."""
        if not (offsets % dtype.itemsize).any():
            return self.array(dtype)[offsets // dtype.itemsize]
        parts = self.array(np.dtype(np.uint8))[offsets[:, None] + np.arange(dtype.itemsize)]
        return parts.view(dtype)[:, 0]

    def write(self, offsets: np.ndarray, values: np.ndarray) -> None:
        """Have these elements begin at these legal byte offsets."""
        dtype = values.dtype
        if not (offsets % dtype.itemsize).any():
            self.array(dtype)[offsets // dtype.itemsize] = values
        else:
            parts = np.ascontiguousarray(values)[:, None].view(np.uint8)
            self.array(np.dtype(np.uint8))[offsets[:, None] + np.arange(dtype.itemsize)] = parts

    def array(self, dtype: np.dtype) -> np.ndarray:
        """The storage as a flat array of this dtype."""
        if dtype not in self.views:
            whole = (ctypes.c_char * self.bytes).from_address(self.real)
            self.views[dtype] = np.frombuffer(whole, dtype, count=self.bytes // dtype.itemsize)
        return self.views[dtype]

    def note_loaded(self, offsets: np.ndarray, itemsize: int) -> None:
        """Remember which elements were loaded, but of what lies far apart."""
        if self.far:
            return
        if self.loaded is None:
            self.loaded = np.zeros(-(-self.bytes // self.itemsize), bool)
        for part in range(0, itemsize, self.itemsize):
            self.loaded[(offsets + part) // self.itemsize] = True

    def touched_by(self, which: str) -> np.ndarray:
        """The program that last wrote ("writers") or read ("readers") each element of the storage."""
        found = getattr(self, which)
        if found is None:
            found = np.full(-(-self.bytes // self.itemsize), NOBODY, np.int32)
            setattr(self, which, found)
        return found


@dataclass(frozen=True)
class View:
    """Where a tensor's elements lie in its storage, in bytes.

    dims: (stride, size, dim), the widest stride first; those that are expanded, or of size 1, move nowhere.
    """

    start: int
    dims: list[tuple[int, int, int]]


def describe_view(tensor: torch.Tensor) -> View:
    itemsize = tensor.element_size()
    strides = zip(tensor.stride(), tensor.shape, range(tensor.dim()), strict=True)
    dims = [(stride * itemsize, size, dim) for stride, size, dim in strides if size > 1 and stride]
    if not tensor.numel():  # nothing of it may be touched
        dims = [(itemsize, 0, 0)]
    return View(tensor.storage_offset() * itemsize, sorted(dims, reverse=True))


def tensors_of_argument(value: Any) -> Iterator[torch.Tensor]:
    """The tensors of a kernel argument: itself, those of a tuple, the base of a descriptor."""
    value = getattr(value, "base", value) if not isinstance(value, torch.Tensor) else value
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for inner in value:
            yield from tensors_of_argument(inner)
