"""The memory of one launch as its kernel sees it: each storage has a window of addresses of its own.

A window is a terabyte wide, so that an address that runs out of one tensor can never lie in another. Storages lie in
the middle of theirs, and nobody knows how far apart the windows are.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from grader.core.worker import sparse

SPAN = 1 << 40
MIDDLE = 1 << 39
NOBODY = -1  # no program has written, or read, this element


@dataclass(frozen=True)
class View:
    """Where a tensor's elements lie in its storage, in bytes.

    dims: (stride, size, dim), the widest stride first; those that are expanded, or of size 1, move nowhere.
    """

    start: int
    dims: list[tuple[int, int, int]]

    @property
    def merged(self) -> list[tuple[int, int]]:
        """(stride, size) of the dims; what lies densely in a wider one is one with it."""
        found: list[tuple[int, int]] = []
        for stride, size, _ in self.dims:
            if found and found[-1][0] == stride * size:
                size *= found.pop()[1]
            found.append((stride, size))
        return found

    def indices(self, offsets: torch.Tensor) -> dict[int, torch.Tensor]:
        """{dim: the index there} of byte offsets into the storage, the widest stride first."""
        left, found = offsets - self.start, {}
        for stride, _, dim in self.dims:
            found[dim] = torch.div(left, stride, rounding_mode="floor")
            left = left - found[dim] * stride
        return found


def describe_view(tensor: torch.Tensor) -> View:
    itemsize = tensor.element_size()
    strides = zip(tensor.stride(), tensor.shape, range(tensor.dim()), strict=True)
    dims = [(stride * itemsize, size, dim) for stride, size, dim in strides if size > 1 and stride]
    if not tensor.numel():  # nothing of it may be touched
        dims = [(itemsize, 0, 0)]
    return View(tensor.storage_offset() * itemsize, sorted(dims, reverse=True))


class Buffer:
    """One storage of a launch: its addresses, the bytes of it that may be touched, and who touched them.

    name, tensor: the first argument that lies in it. input: the call's input that it is, or None; view: where that
    input's elements lie, and none else may be touched then. dense: all bytes from `first` to `last` are legal.
    itemsize: of the smallest dtype that the launch's arguments have in it; writers, readers, atomics, lanes, loaded
    are by its elements: programs, or which lane of which store.
    """

    def __init__(
        self, number: int, storage: torch.UntypedStorage, name: str, tensor: torch.Tensor, itemsize: int
    ) -> None:
        self.number, self.storage, self.bytes = number, storage, storage.nbytes()
        self.base = number * SPAN + MIDDLE
        self.name, self.tensor, self.itemsize = name, tensor, itemsize
        self.input: str | None = None
        self.view: View | None = None
        self.merged: list[tuple[int, int]] = []
        self.first, self.last, self.dense = 0, self.bytes, True
        self.far = sparse.is_far(storage)
        self.tables: dict[str, torch.Tensor] = {}
        self.flats: dict[torch.dtype, torch.Tensor] = {}

    def hold(self, name: str, tensor: torch.Tensor) -> None:
        """Note that `tensor`, a view of this storage, is an input: of the storage only its elements may be touched."""
        self.input, self.tensor, self.view = name, tensor, describe_view(tensor)
        self.merged = self.view.merged
        size = tensor.element_size()
        self.dense = len(self.merged) == 0 or (len(self.merged) == 1 and self.merged[0][0] == size)
        if self.dense:
            self.first = self.view.start
            self.last = self.first + size * (self.merged[0][1] if self.merged else 1)

    def address(self, tensor: torch.Tensor) -> int:
        """Where the tensor begins, a view of this storage."""
        return self.base + tensor.storage_offset() * tensor.element_size()

    def flat(self, dtype: torch.dtype) -> torch.Tensor:
        """The storage as one row of this dtype."""
        if dtype not in self.flats:
            count = self.bytes // dtype.itemsize
            self.flats[dtype] = torch.empty(0, dtype=dtype).set_(self.storage, 0, (count,), (1,))
        return self.flats[dtype]

    def legal(self, offsets: torch.Tensor, itemsize: int) -> torch.Tensor:
        """For byte offsets into the storage: True where a whole legal element begins."""
        inside = (offsets >= self.first) & (offsets <= self.last - itemsize)
        if itemsize > 1:
            inside &= offsets % itemsize == 0
        if self.view is None or self.dense:
            return inside
        left = offsets - self.view.start
        inside &= left >= 0
        for stride, size in self.merged:  # the widest stride first
            index = torch.div(left, stride, rounding_mode="floor")
            inside &= index < size
            left = left - index * stride
        return inside & (left == 0)

    def table(self, which: str) -> torch.Tensor:
        """(elements,) int32, NOBODY at first."""
        if which not in self.tables:
            self.tables[which] = torch.full((-(-self.bytes // self.itemsize),), NOBODY, dtype=torch.int32)
        return self.tables[which]


class Memory:
    """The buffers of one launch. inputs: {name: tensor} of the call. fences: {a storage's address: its legal bytes}."""

    def __init__(self, inputs: dict[str, torch.Tensor], fences: dict[int, tuple[int, int]]) -> None:
        self.inputs = {tensor.untyped_storage().data_ptr(): (name, tensor) for name, tensor in inputs.items()}
        self.fences = fences
        self.buffers: dict[int, Buffer] = {}
        self.by_storage: dict[int, Buffer] = {}

    def place(self, arguments: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Give each argument that is a tensor its window."""
        arguments = list(arguments)
        smallest: dict[int, int] = {}
        for _, tensor in arguments:
            key = tensor.untyped_storage().data_ptr()
            smallest[key] = min(smallest.get(key, 16), tensor.element_size())
        for name, tensor in arguments:
            key = tensor.untyped_storage().data_ptr()
            if key in self.by_storage:
                continue
            number = max(self.buffers, default=0) + 1 + random.SystemRandom().randrange(8)
            buffer = Buffer(number, tensor.untyped_storage(), name, tensor, smallest[key])
            self.buffers[number] = self.by_storage[key] = buffer
            if key in self.inputs:
                buffer.hold(*self.inputs[key])
            elif key in self.fences:
                buffer.first, buffer.last = self.fences[key]

    def of(self, tensor: torch.Tensor) -> Buffer:
        return self.by_storage[tensor.untyped_storage().data_ptr()]
