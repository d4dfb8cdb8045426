"""In the runner: which element of q, k or v each element of a tensor is, through what a wrapper does before a kernel.

A copy in another dtype, layout or company is still K: what a kernel loads of it counts. Each storage has labels, one an
element; what moves elements moves their labels, by the same operation on integers, and arithmetic on one labelled
tensor keeps them.
"""

import torch
from operations import MOVE
from torch.utils._python_dispatch import _disable_current_modes

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

    def of(self, tensor):
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
            found = [self.of(tensor) for tensor in flat([args, list(named.values())])]
            if any(f is not None and bool((f >= 0).any()) for f in found):
                self.follow(op, function, args, named, made, [f for f in found if f is not None])
            else:
                self.forget(made)

    def forget(self, made):
        for tensor in made:
            if (labels := self.of(tensor)) is not None:
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
                place = self.of(tensor)
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
        labels = self.of(value)
        if labels is not None:
            return labels
        return torch.full(value.shape, NOTHING) if data or value.is_floating_point() else value


def flat(value):
    """The tensors in lists."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from flat(inner)
