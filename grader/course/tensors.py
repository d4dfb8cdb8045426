"""A tensor of a case and the buffer that it lies in, as plain data and as bytes."""

import math
from dataclasses import dataclass

import torch


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
        return self.base.as_strided(self.shape, self.strides, self.offset)

    @property
    def elements(self):
        """How many elements the buffer has."""
        if not self.sparse:
            return self.base.numel()
        return self.offset + 1 + sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))

    def describe(self, name):
        """The tensor without its values, as recorder and runner are told of it."""
        dtype = str(self.base.dtype).removeprefix("torch.")
        described = describe(name, dtype, self.elements, self.shape, self.strides, self.offset)
        return described | {"sparse": True} if self.sparse else described

    def raw(self):
        """The bytes of the whole buffer; of a sparse one, those of the tensor's elements in order."""
        return self.base.contiguous().view(torch.uint8).numpy().tobytes()


def place(tensor):
    """A dense tensor as Placed."""
    tensor = tensor.contiguous()
    return Placed(tensor.reshape(-1), tuple(tensor.shape), tensor.stride())


def describe(name, dtype, elements, shape, strides, offset=0):
    return {
        "name": name, "dtype": dtype, "elements": elements, "shape": list(shape), "strides": list(strides),
        "offset": offset,
    }  # fmt: skip


def describe_dense(name, dtype, shape):
    """The same of a dense tensor that has no values yet."""
    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    return describe(name, dtype, math.prod(shape), shape, strides)


def read_outputs(data, reply):
    """The returned tensors from their raw bytes."""
    data, tensors, start = bytearray(data), [], 0
    for output in reply["outputs"]:
        shape, dtype = tuple(output["shape"]), getattr(torch, output["dtype"])
        count = math.prod(shape)
        read = torch.frombuffer(data, dtype=dtype, count=count, offset=start) if count else torch.empty(0, dtype=dtype)
        tensors.append(read.reshape(shape))
        start += count * tensors[-1].element_size()
    return tensors
