"""In the runner, interpreted: the memory of one launch as the kernel sees it, and which part of it is q, k or v.

Each storage gets a window of virtual addresses of its own, a terabyte wide, so that a pointer that runs out of one
tensor can never land in another.
"""

import numpy as np
import torch
from origins import NOTHING, ROLES, SHIFT

WINDOW = 1 << 40  # bytes between windows; storages lie in the middle of theirs, so that overruns stay in it both ways
MIDDLE = 1 << 39
NOBODY = -1  # no program has written, or read, this element


class Region:
    """One storage of a launch: its window, the elements of it that may be touched, and who touched them.

    legal_view: the one view that is legal, for the grader's inputs; None where all between first and last is legal.
    role, role_view, width: "q", "k" or "v" where the storage is that input, the view in which it lies there as
    (B, H, N, D), and D. labels: which element of q, k and v each element is a copy of, or None; shapes: those of q, k
    and v, which the labels count in. watcher: to be told of loads, or None.
    """

    def __init__(self, index, storage, name, itemsize):
        self.name, self.real, self.bytes = name, storage.data_ptr(), storage.nbytes()
        self.virtual = (index + 1) * WINDOW + MIDDLE
        self.first, self.last = 0, self.bytes  # legal bytes, unless there is a view
        self.legal_view = self.role = self.role_view = self.watcher = self.labels = self.shapes = None
        self.width = 0
        self.writers = self.readers = self.atomics = self.loaded = None
        self.itemsize = itemsize

    def holds(self, role, tensor):
        """Note that `tensor`, a view (B, H, N, D) of this storage, is an input."""
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

    def labels_at(self, offsets):
        """The label of each of these byte offsets, of an input or of what holds copies."""
        if self.labels is not None:
            return self.labels[offsets // self.itemsize]
        left, label = offsets - self.role_view[0], np.zeros(offsets.shape, np.int64)
        _, heads, tokens, width = self.shapes[self.role]
        weights = {0: heads * tokens * width, 1: tokens * width, 2: width, 3: 1}
        for stride, _, dimension in self.role_view[1]:
            label += left // stride * weights[dimension]
            left = left % stride
        return label + (ROLES.index(self.role) << SHIFT)

    def copied(self, offsets):
        """Of labelled memory: (roles that lie at these offsets, (first, last) token, (batch, head), elements) or None.

        Token and place are those of the first role there, K before V, in the head of its first element.
        """
        labels = self.labels_at(offsets)
        labels = labels[labels != NOTHING]
        if not labels.size:
            return None
        found = labels >> SHIFT
        roles = "".join(ROLES[i] for i in sorted(set(found.tolist())))
        inside = labels[found == ROLES.index(roles[0])] & ((1 << SHIFT) - 1)
        _, heads, tokens, width = self.shapes[roles[0]]
        rows = inside // width
        rows = rows[rows // tokens == rows[0] // tokens]
        place = int(rows[0] // tokens // heads), int(rows[0] // tokens % heads)
        token = rows % tokens
        return roles, (int(token.min()), int(token.max())), place, inside.size

    def note_loaded(self, offsets):
        """Remember which elements of a copy were loaded."""
        if self.loaded is None:
            self.loaded = np.zeros(-(-self.bytes // self.itemsize), bool)
        self.loaded[offsets // self.itemsize] = True

    def every_label(self):
        """The labels of all elements of the storage."""
        if self.labels is not None:
            return self.labels
        elements = np.nonzero(self.loaded)[0]
        labels = np.full(self.loaded.shape, NOTHING, np.int64)
        labels[elements] = self.labels_at(elements * self.itemsize)
        return labels

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


def tensors_in(value):
    """The tensors of a kernel argument: itself, those of a tuple, the base of a descriptor."""
    value = getattr(value, "base", value) if not isinstance(value, torch.Tensor) else value
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for inner in value:
            yield from tensors_in(inner)
