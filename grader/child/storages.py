"""Inside the child: one storage of a call, what its elements were made of, and its bytes after the last write."""

import contextlib

import torch
from torch.utils._pytree import tree_leaves

KERNEL, UNKNOWN = "kernel", "?"
NOTHING, UNSEEN = frozenset(), frozenset({UNKNOWN})


class Note:
    """What is known of one storage: its label, the labels of elements that were written since, and its bytes.

    layers: {label: booleans, which elements have it in the place of `label`}, for elements of `itemsize` bytes.
    """

    __slots__ = ("bytes", "itemsize", "label", "layers", "storage")

    def __init__(self, storage, label, remember=True):
        self.storage, self.label, self.layers, self.itemsize, self.bytes = storage, label, {}, 0, None
        if remember:
            self.remember()

    def remember(self):
        self.bytes = raw(self.storage).clone()

    def changed(self):
        return self.bytes is not None and not torch.equal(raw(self.storage), self.bytes)

    def label_of(self, tensor):
        if not self.layers:
            return self.label
        if tensor.element_size() != self.itemsize:
            return self.label.union(*self.layers)
        left, found = tensor.numel(), NOTHING
        for label, mask in self.layers.items():
            if count := int(window(mask, tensor).sum()):
                left, found = left - count, found | label
        return found | self.label if left > 0 else found

    def write(self, label, itemsize, mask=None, tensor=None):
        """The elements where `mask` is True, or those of `tensor`, a view of the storage, have this label now."""
        if self.itemsize not in (0, itemsize):
            self.label, self.layers = self.label.union(*self.layers), {}
        self.itemsize = itemsize
        for other, its in self.layers.items():
            if other != label:
                if mask is not None:
                    its &= ~mask[: len(its)]
                else:
                    window(its, tensor).fill_(False)
        if label not in self.layers:
            self.layers[label] = torch.zeros(self.storage.nbytes() // itemsize, dtype=torch.bool)
        if mask is not None:
            self.layers[label] |= mask[: len(self.layers[label])]
        else:
            window(self.layers[label], tensor).fill_(True)


def window(mask, tensor):
    return mask.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


@contextlib.contextmanager
def unseen():
    """What is done meanwhile is the grader's own: no mode sees it."""
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
        yield


def raw(storage):
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def tensors_of(tree):
    """Those that lie in memory: what is on meta or sparse has no bytes of its own to follow."""
    tensors = [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]
    return [t for t in tensors if t.layout == torch.strided and t.device.type in ("cpu", "cuda")]


def place(tensor):
    return tensor.untyped_storage().data_ptr()


def bytes_of(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()


def written_by(func, args, kwargs):
    """The tensors that an operation writes to, by its schema."""
    written = []
    for position, argument in enumerate(func._schema.arguments):
        if argument.alias_info and argument.alias_info.is_write:
            value = args[position] if position < len(args) else (kwargs or {}).get(argument.name)
            written += tensors_of(value)
    return written
