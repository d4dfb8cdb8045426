"""In the runner, interpreted: the memory of one launch as the kernel sees it, and which part of it is q, k or v.

Each storage gets a window of virtual addresses of its own, a terabyte wide, so that a pointer that runs out of one
tensor can never land in another. A copy in another dtype, layout or company is still K: what a kernel loads of it
counts. Each storage has labels, one an element; what moves elements moves their labels, by the same operation on
integers, and arithmetic on one labelled tensor keeps them.
"""

import numpy as np
import torch
from operations import MOVE
from replay import list_tensors
from torch.utils._python_dispatch import _disable_current_modes

WINDOW = 1 << 40  # bytes between windows; storages lie in the middle of theirs, so that overruns stay in it both ways
MIDDLE = 1 << 39
NOBODY = -1  # no program has written, or read, this element


class Region:
    """One storage of a launch: its window, the elements of it that may be touched, and who touched them.

    legal_view: the one view that is legal, for the grader's inputs; None where all between first and last is legal.
    role, role_view, width: "q", "k" or "v" where the storage is that input, the view in which it lies there as
    (B, H, N, D), and D. labels: which element of q, k and v each element is a copy of, or None; shapes: those of q, k
    and v, which the labels count in. watcher: to be told of loads, or None. seen_by: {"load" or "store": the last
    program that did}.
    """

    def __init__(self, index, storage, name, itemsize):
        self.name, self.real, self.bytes = name, storage.data_ptr(), storage.nbytes()
        self.virtual = (index + 1) * WINDOW + MIDDLE
        self.first, self.last = 0, self.bytes  # legal bytes, unless there is a view
        self.legal_view = self.role = self.role_view = self.watcher = self.labels = self.shapes = None
        self.width = 0
        self.writers = self.readers = self.atomics = self.loaded = None
        self.itemsize, self.seen_by = itemsize, {}

    def holds(self, role, tensor):
        """Note that `tensor`, a view (B, H, N, D) of this storage, is an input."""
        self.role, self.role_view, self.width = role, describe_view(tensor), tensor.shape[-1]

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

    def begins_inside_a_row(self, pointers):
        """{"row", "column"} of a block as wide as the head dim whose first lane is not a row's first, else None."""
        if pointers.ndim != 2 or self.width not in pointers.shape:
            return None
        left, place = int(pointers[0, 0]) - self.virtual - self.role_view[0], [0, 0, 0, 0]
        for stride, _, dimension in self.role_view[1]:
            place[dimension], left = divmod(left, stride)
        return {"row": place[2], "column": place[3]} if place[3] else None

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


# Which elements are copies of q, k and v ------------------------------------------------------------------------------


ROLES = "qkv"
SHIFT = 48  # of the role in a label; below it is ((batch * H + head) * N + token) * D + d
NOTHING = -1
# Operations that take indices or masks beside what they move.
INDEXED = {
    "index_select", "gather", "index", "index_put", "index_put_", "_index_put_impl_", "index_copy", "index_copy_",
    "scatter", "scatter_", "take", "masked_fill", "masked_fill_", "masked_scatter", "masked_scatter_", "masked_select",
    "where", "index_fill", "index_fill_", "repeat_interleave",
}  # fmt: skip


class Origins:
    """inputs: {"q": (B, H, N, D) tensor, ...}. `labels` of a storage by its address: int64, one an element, or None."""

    def __init__(self, inputs):
        self.inputs, self.known, self.sizes, self.kept, self.labelled = inputs, {}, {}, [], False

    def shape(self, role):
        return self.inputs[role].shape

    def labels(self, address):
        return self.known.get(address)

    def label_inputs(self):
        """Only once something is done with them: most wrappers hand them to a kernel as they are."""
        for role, tensor in self.inputs.items():
            labels = self.new(tensor)
            each = torch.arange(tensor.numel()) + (ROLES.index(role) << SHIFT)
            labels.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).copy_(each.view(tensor.shape))

    def new(self, tensor):
        storage = tensor.untyped_storage()
        self.kept.append(storage)  # its address is not given out again
        labels = torch.full((storage.nbytes() // tensor.element_size(),), NOTHING, dtype=torch.int64)
        self.known[storage.data_ptr()] = labels
        self.sizes[storage.data_ptr()] = tensor.element_size()
        return labels

    def labels_in_form(self, tensor):
        """The labels of a tensor in its own form, or None; of numbers seen as integers of their size, too."""
        address = tensor.untyped_storage().data_ptr()
        labels = self.known.get(address)
        if labels is None or self.sizes.get(address, tensor.element_size()) != tensor.element_size():
            return None
        return labels.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

    def add(self, address, elements):
        """Labels for a storage that a kernel writes copies into."""
        self.known[address] = torch.full((elements,), NOTHING, dtype=torch.int64)
        return self.known[address]

    def __call__(self, op, function, args, named, made):
        """An operation of the wrapper was done: its outputs `made` get their labels."""
        with _disable_current_modes():
            if not self.labelled:
                self.labelled = True
                self.label_inputs()
            found = [self.labels_in_form(tensor) for tensor in list_tensors(args, named)]
            if any(f is not None and bool((f >= 0).any()) for f in found):
                self.follow(op, function, args, named, made, [f for f in found if f is not None])
            else:
                self.forget(made)

    def forget(self, made):
        for tensor in made:
            if (labels := self.labels_in_form(tensor)) is not None:
                labels.fill_(NOTHING)

    def follow(self, op, function, args, named, made, found):
        result = None
        if op in MOVE and made:
            try:
                result = self.moved(op, function, args, named)
            except (RuntimeError, TypeError, IndexError, ValueError):
                result = None
        else:
            whole = [f for f in found if made and f.numel() == made[0].numel() and bool((f >= 0).any())]
            result = whole[0].reshape(made[0].shape) if len(whole) == 1 else None
        if result is None:
            return self.forget(made)
        for tensor, labels in zip(made, result if isinstance(result, tuple | list) else (result,), strict=False):
            if tensor.shape == labels.shape:
                place = self.labels_in_form(tensor)
                place = self.new_in_form(tensor) if place is None else place
                if place.data_ptr() != labels.data_ptr():
                    place.copy_(labels)

    def new_in_form(self, tensor):
        return self.new(tensor).as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

    def moved(self, op, function, args, named):
        """The operation on labels: what is filled in has none, indices and masks are themselves."""
        named = {n: v for n, v in named.items() if n not in ("dtype", "layout", "device", "pin_memory", "non_blocking")}
        every = op not in INDEXED
        args = [self.shadow(arg, every or (i == 0 and op != "where")) for i, arg in enumerate(args)]
        if op in ("constant_pad_nd", "masked_fill", "masked_fill_"):
            args = [*args[:2], NOTHING]
        return function(*args, **{n: self.shadow(v, every) for n, v in named.items()})

    def shadow(self, value, data):
        """The labels of tensors; of one without any, nothing where it is data, and the tensor where it is an index."""
        if isinstance(value, list | tuple):
            return [self.shadow(inner, data) for inner in value]
        if not isinstance(value, torch.Tensor):
            return value
        labels = self.labels_in_form(value)
        if labels is not None:
            return labels
        return torch.full(value.shape, NOTHING) if data or value.is_floating_point() else value
