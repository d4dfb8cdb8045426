"""In the runner, interpreted: the memory of one launch as the kernel sees it.

Each storage gets a window of virtual addresses of its own, a terabyte wide, so that a pointer that runs out of one
tensor can never land in another.
"""

import ctypes

import numpy as np
import torch

from grader.core.inside import sparse

WINDOW = 1 << 40  # bytes between windows; storages lie in the middle of theirs, so that overruns stay in it both ways
MIDDLE = 1 << 39
NOBODY = -1  # no program has written, or read, this element


class Region:
    """One storage of a launch: its window, the elements of it that may be touched, and who touched them.

    window: its number, from 1. legal_view: what alone is legal of the grader's inputs, (start, [(stride, size)]); None
    where all between first and last is.
    input: the name of the call's input that the storage is, or None. role, role_view, width: "q", "k" or "v" where it
    is one of these, the view in which it lies there as (B, H, N, D), and D. loaded: which elements were, or None.
    lanes: which lane of which block stored each element, where no barrier came since.
    seen_by: {"load" or "store": the last program that did}. views: {dtype: the storage as an array of it}.
    """

    def __init__(self, window, storage, name, itemsize):
        self.name, self.real, self.bytes, self.storage = name, storage.data_ptr(), storage.nbytes(), storage
        self.virtual = window * WINDOW + MIDDLE
        self.first, self.last = 0, self.bytes  # legal bytes, unless there is a view
        self.legal_view = self.role = self.role_view = self.input = None
        self.width = 0
        self.writers = self.readers = self.atomics = self.loaded = self.lanes = None
        self.itemsize, self.seen_by, self.far, self.views = itemsize, {}, sparse.is_far(storage), {}

    def holds(self, role, tensor):
        """Note that `tensor`, a view (B, H, N, D) of this storage, is an input."""
        self.role, self.role_view, self.width = role, describe_view(tensor), tensor.shape[-1]
        self.allow(tensor)

    def allow(self, tensor):
        """Of this storage only the elements of `tensor` may be touched."""
        start, dims = describe_view(tensor)
        merged = []
        for stride, size, _ in dims:  # what lies densely in a wider dim is one with it
            if merged and merged[-1][0] == stride * size:
                size *= merged.pop()[1]
            merged.append((stride, size))
        self.legal_view = start, merged

    def legal(self, offsets, itemsize):
        """For byte offsets into the storage: True where a whole legal element begins."""
        inside = (offsets >= self.first) & (offsets + itemsize <= self.last)
        if self.legal_view is None:
            return inside
        start, dims = self.legal_view
        left = offsets - start
        inside &= left >= 0
        for stride, size in dims:  # the widest stride first
            index = left // stride
            inside &= index < size
            left = left - index * stride
        return inside & (left == 0)

    def read(self, offsets, dtype):
        """The elements that begin at these legal byte offsets."""
        if not (offsets % dtype.itemsize).any():
            return self.view(dtype)[offsets // dtype.itemsize]
        parts = self.view(np.dtype(np.uint8))[offsets[:, None] + np.arange(dtype.itemsize)]
        return parts.view(dtype)[:, 0]

    def write(self, offsets, values):
        """Have these elements begin at these legal byte offsets."""
        dtype = values.dtype
        if not (offsets % dtype.itemsize).any():
            self.view(dtype)[offsets // dtype.itemsize] = values
        else:
            parts = np.ascontiguousarray(values)[:, None].view(np.uint8)
            self.view(np.dtype(np.uint8))[offsets[:, None] + np.arange(dtype.itemsize)] = parts

    def view(self, dtype):
        """The storage as a flat array of this dtype."""
        if dtype not in self.views:
            whole = (ctypes.c_char * self.bytes).from_address(self.real)
            self.views[dtype] = np.frombuffer(whole, dtype, count=self.bytes // dtype.itemsize)
        return self.views[dtype]

    def place(self, offsets):
        """For legal byte offsets into a region with a role: (batch, head) of the first lane, and the (first, last)
        token that is loaded of that head: a tile of a flattened tensor can reach into the next.
        """
        left, token, place, here = offsets - self.role_view[0], np.zeros(1, np.int64), [0, 0], None
        for stride, _, dimension in self.role_view[1]:
            if dimension == 3:  # columns tell no place
                break
            index = left // stride
            left = left - index * stride
            if dimension == 2:
                token = index
            elif dimension < 2:
                place[dimension] = int(index[0])
                if (index != index[0]).any():
                    same = index == index[0]
                    here = same if here is None else here & same
        token = token if here is None or token.size == 1 else token[here]
        return (int(token.min()), int(token.max())), tuple(place)

    def begins_inside_a_row(self, pointers):
        """{"row", "column"} of a block as wide as the head dim whose first lane is not a row's first, else None."""
        if pointers.ndim != 2 or self.width not in pointers.shape:
            return None
        left, place = int(pointers[0, 0]) - self.virtual - self.role_view[0], [0, 0, 0, 0]
        for stride, _, dimension in self.role_view[1]:
            place[dimension], left = divmod(left, stride)
        return {"row": place[2], "column": place[3]} if place[3] else None

    def note_loaded(self, offsets, itemsize):
        """Remember which elements were loaded, but of what lies far apart."""
        if self.far:
            return
        if self.loaded is None:
            self.loaded = np.zeros(-(-self.bytes // self.itemsize), bool)
        for part in range(0, itemsize, self.itemsize):
            self.loaded[(offsets + part) // self.itemsize] = True

    def touched_by(self, which):
        """The program that last wrote ("writers") or read ("readers") each element of the storage."""
        found = getattr(self, which)
        if found is None:
            found = np.full(-(-self.bytes // self.itemsize), NOBODY, np.int32)
            setattr(self, which, found)
        return found


def describe_view(tensor):
    """(start, [(stride, size, dimension)]) in bytes within its storage, the widest stride first."""
    itemsize = tensor.element_size()
    strides = zip(tensor.stride(), tensor.shape, range(tensor.dim()), strict=True)
    dims = [(stride * itemsize, size, dimension) for stride, size, dimension in strides if size > 1]
    return tensor.storage_offset() * itemsize, sorted(dims, reverse=True)


def tensors_of_argument(value):
    """The tensors of a kernel argument: itself, those of a tuple, the base of a descriptor."""
    value = getattr(value, "base", value) if not isinstance(value, torch.Tensor) else value
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for inner in value:
            yield from tensors_of_argument(inner)
