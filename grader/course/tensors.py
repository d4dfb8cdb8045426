"""A tensor of a case and the buffer that it lies in, as plain data and as bytes."""

import math
from dataclasses import dataclass

import torch

from grader.core.protocol.messages import TensorSpec


@dataclass
class Placed:
    """A tensor and the buffer that it lies in: base (1-D, on the CPU), then shape, strides and offset in elements.

    sparse: the buffer is too large to exist here. base then holds the elements of the tensor alone, densely, and
    `tensor` is dense; recorder and runner lay it out by its strides, in memory that they need not have (sparse.py).
    """

    base: torch.Tensor
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0
    sparse: bool = False

    @property
    def tensor(self):
        if self.sparse:
            return self.base.view(self.shape)
        return self.base.as_strided(self.shape, self.strides, self.base.storage_offset() + self.offset)

    @property
    def elements(self):
        """How many elements the buffer has."""
        if not self.sparse:
            return self.base.numel()
        return self.offset + 1 + sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))

    def describe(self, name):
        """The TensorSpec that recorder and runner are told."""
        dtype, shape, strides = str(self.base.dtype).removeprefix("torch."), list(self.shape), list(self.strides)
        return TensorSpec(name, dtype, self.elements, shape, strides, self.offset, self.sparse)

    def raw(self):
        """The bytes of the whole buffer; of a sparse one, those of the tensor's elements in order."""
        return self.base.contiguous().view(torch.uint8).numpy().tobytes()


def place(tensor):
    """A dense tensor as Placed."""
    tensor = tensor.contiguous()
    return Placed(tensor.reshape(-1), tuple(tensor.shape), tensor.stride())


def describe_dense(name, dtype, shape, in_call=True):
    """The TensorSpec of a dense tensor that has no values yet."""
    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    return TensorSpec(name, dtype, math.prod(shape), list(shape), strides, in_call=in_call)


def read_outputs(data, outputs):
    """The returned tensors from their raw bytes and their forms."""
    data, tensors, start = bytearray(data), [], 0
    for output in outputs:
        shape, dtype = tuple(output.shape), getattr(torch, output.dtype)
        count = math.prod(shape)
        read = torch.frombuffer(data, dtype=dtype, count=count, offset=start) if count else torch.empty(0, dtype=dtype)
        tensors.append(read.reshape(shape))
        start += count * tensors[-1].element_size()
    return tensors
