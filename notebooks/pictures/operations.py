"""What PyTorch code moves and computes on a GPU, operation by operation, counted without a GPU or its memory."""

from dataclasses import dataclass

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

RELABELLED = {"_unsafe_view"}  # a new shape for the same memory, though PyTorch does not call it a view
UNWRITTEN = {"empty", "empty_like", "empty_strided", "new_empty"}
NAMES = {"bmm": "matrix product", "mul": "times the scale", "amax": "row maximum", "sub": "minus the maximum",
         "exp": "exponential", "sum": "row sum", "_to_copy": "other dtype", "div": "over the row sum",
         "_softmax": "softmax"}  # fmt: skip


@dataclass(frozen=True)
class Operation:
    """One kernel that PyTorch launches. read, written: bytes. flops: of matrix products, two a multiply and add."""

    name: str
    read: int
    written: int
    flops: int

    @property
    def moved(self):
        return self.read + self.written


class Ledger(TorchDispatchMode):
    """While active: every operation's bytes and FLOPs, and the most bytes that were held at once beside the inputs.

    An operation reads each of its inputs from memory once and writes its output to memory once: true of kernels that
    run one after the other over tensors larger than the caches.
    """

    def __init__(self):
        super().__init__()
        self.operations, self.held, self.peak = [], {}, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        made = [value for value in tree_leaves(out) if isinstance(value, torch.Tensor)]
        name = func.overloadpacket.__name__
        if made and not func.is_view and name not in RELABELLED:
            given = [value for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)]
            read = 0 if name in UNWRITTEN else sum(map(size, given[name == "copy_" :]))
            written = 0 if name in UNWRITTEN else sum(map(size, made))
            flops = flop_registry.get(func.overloadpacket, lambda *_, **__: 0)(*args, **(kwargs or {}), out_val=out)
            self.operations.append(Operation(NAMES.get(name, name.strip("_")), read, written, flops))
            self.hold(made)
        return out

    def hold(self, made):
        """Count what is alive: a storage counts once, from when it is made until it is freed."""
        self.held = {ref: amount for ref, amount in self.held.items() if not ref.expired()}
        for tensor in made:
            storage = tensor.untyped_storage()
            self.held[StorageWeakRef(storage)] = storage.nbytes()
        self.peak = max(self.peak, sum(self.held.values()))

    @property
    def moved(self):
        return sum(operation.moved for operation in self.operations)

    @property
    def flops(self):
        return sum(operation.flops for operation in self.operations)


def size(tensor):
    """Bytes of the elements that are there: a dimension that is only repeated counts once."""
    elements = 1
    for length, stride in zip(tensor.shape, tensor.stride(), strict=True):
        elements *= length if stride else 1
    return elements * tensor.element_size()


def count(call, *shapes, dtype=torch.float16, device="cuda"):
    """The Ledger of call(*tensors) for tensors of these shapes on a GPU; nothing is allocated and nothing computed.

    device: "meta" for code that slices, which PyTorch without CUDA refuses to pretend. It differs from "cuda" where
    PyTorch joins operations on GPUs alone: a softmax that takes float16 and gives float32.
    """
    with FakeTensorMode():
        tensors = [torch.empty(shape, dtype=dtype, device=device) for shape in shapes]
        with Ledger() as ledger:
            call(*tensors)
    return ledger


def kept(call, *shapes, dtype=torch.float16):
    """Bytes that autograd keeps for the backward of call(*tensors), the tensors themselves included; nothing is
    allocated and nothing computed."""
    storages = {}

    def keep(tensor):
        storages[StorageWeakRef(tensor.untyped_storage())] = tensor.untyped_storage().nbytes()
        return tensor

    hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
    with FakeTensorMode(), torch.enable_grad(), hooks:
        tensors = [torch.empty(shape, dtype=dtype, requires_grad=True) for shape in shapes]
        out = call(*tensors)
    del out
    return sum(storages.values())
