"""Inside the child, interpreted: the memory of one launch as the kernel sees it, and which part of it is q, k or v.

Each storage gets a window of virtual addresses of its own, a terabyte wide, so that a pointer that runs out of one
tensor can never land in another.
"""

import numpy as np
import torch

WINDOW = 1 << 40  # bytes between windows; storages lie in the middle of theirs, so that overruns stay in it both ways
MIDDLE = 1 << 39
NOBODY = -1  # no program has written, or read, this element


class Region:
    """One storage of a launch: its window, the elements of it that may be touched, and who touched them.

    legal_view: the one view that is legal, for the grader's inputs; None where all between first and last is legal.
    role, role_view, width: "q", "k" or "v" where the storage holds that input or a copy of it, the view in which it
    lies there as (B, H, N, D), and D. copied_heads: the heads of a copy that holds each head of k or v several times.
    watcher: to be told of loads, or None. foreign: what the ledger is told when it is loaded.
    """

    def __init__(self, index, storage, name, itemsize):
        self.name, self.real, self.bytes = name, storage.data_ptr(), storage.nbytes()
        self.virtual = (index + 1) * WINDOW + MIDDLE
        self.first, self.last = 0, self.bytes  # legal bytes, unless there is a view
        self.legal_view = self.role = self.role_view = self.copied_heads = self.watcher = self.foreign = None
        self.width = 0
        self.writers = self.readers = None
        self.itemsize = itemsize

    def holds(self, role, tensor):
        """Note that `tensor`, a view (B, H, N, D) of this storage, is an input or a copy of one."""
        self.role, self.role_view, self.width = role, view_of(tensor), tensor.shape[-1]

    def legal(self, offsets, itemsize):
        """For byte offsets into the storage: True where a whole legal element begins."""
        inside = (offsets >= self.first) & (offsets + itemsize <= self.last)
        if self.legal_view is None:
            return inside
        left = offsets - self.legal_view[0]
        inside &= left >= 0
        for stride, size, _ in self.legal_view[1]:  # the widest stride first
            inside &= left // stride < size
            left = left % stride
        return inside & (left == 0)

    def place(self, offsets):
        """For legal byte offsets into a region with a role: (batch, head) of the first lane, and the (first, last)
        token that is loaded of that head: a tile of a flattened tensor can reach into the next.
        """
        left, token, place, here = offsets - self.role_view[0], np.zeros(1, np.int64), [0, 0], None
        for stride, _, dimension in self.role_view[1]:
            index = left // stride
            left = left % stride
            if dimension == 2:
                token = index
            elif dimension < 2:
                place[dimension] = int(index[0])
                if (index != index[0]).any():
                    same = index == index[0]
                    here = same if here is None else here & same
        token = token if here is None or token.size == 1 else token[here]
        return (int(token.min()), int(token.max())), tuple(place)

    def touched_by(self, which):
        """The program that last wrote ("writers") or read ("readers") each element of the storage."""
        found = getattr(self, which)
        if found is None:
            found = np.full(-(-self.bytes // self.itemsize), NOBODY, np.int32)
            setattr(self, which, found)
        return found


def view_of(tensor):
    """(start, [(stride, size, dimension)]) in bytes within its storage, the widest stride first."""
    itemsize = tensor.element_size()
    strides = zip(tensor.stride(), tensor.shape, range(tensor.dim()), strict=True)
    dims = [(stride * itemsize, size, dimension) for stride, size, dimension in strides if size > 1]
    return tensor.storage_offset() * itemsize, sorted(dims, reverse=True)


def copy_of(tensor, inputs):
    """(role, view, heads) where `tensor` is a copy of q, k or v made by the wrapper, else None.

    inputs: {"q": tensor, ...}. The view is (B, H, N, D) without padding. heads: those of the copy where every head of
    k or v stands in it as often as query heads share it, else None.
    """
    for role, given in inputs.items():
        B, H, N, D = given.shape
        for heads in (H, inputs["q"].shape[1]):
            view = as_four_dimensions(tensor, B, heads, N, D)
            if view is None or view.dtype != given.dtype:
                continue
            wanted = given if heads == H else given.repeat_interleave(heads // H, 1)
            if torch.equal(view, wanted):
                return role, view, heads if heads != H else None
    return None


def as_four_dimensions(tensor, B, H, N, D):
    """`tensor` as (B, H, N, D), rows and columns past N and D cut off, or None where it has no such form."""
    if tensor.dim() == 3 and tensor.shape[0] == B * H:
        tensor = tensor.unflatten(0, (B, H))
    elif tensor.dim() == 2 and B * H and tensor.shape[0] % (B * H) == 0:
        tensor = tensor.unflatten(0, (B, H, tensor.shape[0] // (B * H)))
    fits = tensor.dim() == 4 and tensor.shape[:2] == (B, H) and tensor.shape[2] >= N and tensor.shape[3] >= D
    return tensor[:, :, :N, :D] if fits else None


def tensors_in(value):
    """The tensors of a kernel argument: itself, those of a tuple, the base of a descriptor."""
    value = getattr(value, "base", value) if not isinstance(value, torch.Tensor) else value
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for inner in value:
            yield from tensors_in(inner)
