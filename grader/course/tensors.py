"""A tensor of a case and the buffer that it lies in, as plain data and as bytes."""

import math
from dataclasses import dataclass

import torch


@dataclass
class Placed:
    """A tensor and the buffer that it lies in: base (1-D, on the CPU), then shape, strides and offset in elements."""

    base: torch.Tensor
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @property
    def tensor(self):
        return self.base.as_strided(self.shape, self.strides, self.offset)

    def describe(self, name):
        """The tensor without its values, as recorder and runner are told of it."""
        dtype = str(self.base.dtype).removeprefix("torch.")
        return describe(name, dtype, self.base.numel(), self.shape, self.strides, self.offset)

    def raw(self):
        """The bytes of the whole buffer."""
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
