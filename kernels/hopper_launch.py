"""What the fast forms share on the host: checks, descriptors for the copy engine, launches that are made once and kept.

A call of a Triton kernel finds the compiled kernel anew from all of its arguments, and a descriptor is checked anew for
each tensor: more time than a short kernel takes. All of it depends on shapes, strides, dtypes and devices alone, so it
is kept by these; a call then puts the tensors' addresses in and launches, on the current stream.
"""

import torch
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from kernels.cuda_driver import POINTER, Direct
from kernels.hopper import FOR_PRODUCER

DTYPES = {torch.float16: gl.float16, torch.bfloat16: gl.bfloat16}
HEAD_DIMS = (16, 32, 64, 128, 256)
MISSING = object()


def check_tensors(q, k, v):
    """Raise ValueError, with the offending values in the text, unless the kernel takes these tensors."""
    shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
    if not q.dim() == k.dim() == v.dim() == 4 or 0 in (*q.shape, *k.shape, *v.shape):
        raise ValueError(f"q, k and v must be (B, H, N, D) with no empty dimension; got {shapes}")
    if k.shape != v.shape or (q.shape[0], *q.shape[2:]) != (k.shape[0], *k.shape[2:]):
        raise ValueError(f"k and v must have one shape, and B, N and D of q; got {shapes}")
    if q.shape[1] % k.shape[1]:
        raise ValueError(f"Hq must be a multiple of Hkv; got Hq={q.shape[1]}, Hkv={k.shape[1]}")
    if q.shape[3] not in HEAD_DIMS:
        raise ValueError(f"head dim must be one of {HEAD_DIMS}; got D={q.shape[3]}")
    if not q.dtype == k.dtype == v.dtype or q.dtype not in DTYPES:
        raise ValueError(f"q, k and v must share one dtype of {(*DTYPES,)}; got {q.dtype}, {k.dtype}, {v.dtype}")
    if not q.device == k.device == v.device or not q.is_cuda:
        raise ValueError(f"q, k and v must be on one GPU; got {q.device}, {k.device}, {v.device}")
    if torch.cuda.get_device_capability(q.device) != (9, 0):
        raise ValueError(f"this kernel is for Hopper GPUs (9, 0); got {torch.cuda.get_device_capability(q.device)}")
    if not q.stride(3) == k.stride(3) == v.stride(3) == 1:
        raise ValueError(f"the last stride must be 1; got q {q.stride()}, k {k.stride()}, v {v.stride()}")


def registers_for(CONSUMERS, programs):
    """(registers of a thread at the launch, registers of a consumer's thread once the producer gave up its own)."""
    at_launch = 65536 // programs // (128 * (CONSUMERS + 1)) // 8 * 8
    return at_launch, (at_launch * (CONSUMERS + 1) - FOR_PRODUCER.value) // CONSUMERS // 8 * 8


def describe(tensor, heads, rows, contiguous=False):
    """A tensor descriptor of (B, H, N, D), or of a contiguous tensor of its shape, for tiles (1, heads, rows, D)."""
    block = [1, heads, rows, tensor.shape[3]]
    layout = gl.NVMMASharedLayout.get_default_for(block, DTYPES[tensor.dtype])
    if contiguous:
        _, H, N, D = tensor.shape
        return TensorDescriptor(tensor, list(tensor.shape), [H * N * D, N * D, D, 1], block, layout)
    # A dimension of size 1 may have any stride; the copy engine wants multiples of 16 bytes all the same.
    strides = [
        stride if size > 1 else tensor.shape[3] for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    ]
    return TensorDescriptor(tensor, list(tensor.shape), [*strides[:3], 1], block, layout)


def is_aligned(tensor):
    """Whether the copy engine can read it: 16 bytes for its start and for every stride."""
    size = tensor.element_size()
    strides = [stride for length, stride in zip(tensor.shape[:3], tensor.stride(), strict=False) if length > 1]
    return tensor.data_ptr() % 16 == 0 and all(stride > 0 and stride * size % 16 == 0 for stride in strides)


def aligned(tensor):
    """The tensor, or a copy where the copy engine cannot read it."""
    return tensor if is_aligned(tensor) else tensor.clone(memory_format=torch.contiguous_format)


class Launch:
    """A kernel with all of its arguments but the addresses. launch(q, k, ...): one tensor for each descriptor.

    A descriptor may be None, where the kernel needs none; its tensor is not looked at. In the place of POINTER the
    kernel takes the tensor. The first call compiles.
    """

    def __init__(self, kernel, grid, descriptors, others, options):
        self.kernel, self.grid, self.others, self.options = kernel, grid, others, options
        self.direct = None
        # They keep no tensor alive.
        self.descriptors = [each if each is POINTER else replaced(each, None) for each in descriptors]

    def __call__(self, *tensors):
        device = tensors[0].device
        if device.index != torch.cuda.current_device():
            with torch.cuda.device(device):
                self(*tensors)
        elif self.direct:
            self.direct(tensors)
        else:
            arguments = [replaced(*pair) for pair in zip(self.descriptors, tensors, strict=True)]
            compiled = self.kernel[self.grid](*arguments, *self.others, **self.options)
            self.direct = Direct(compiled, self.grid, self.descriptors, self.others)


def replaced(descriptor, tensor):
    """The descriptor for another tensor of the same shape and layout; not checked again."""
    if descriptor is None or descriptor is POINTER:
        return None if descriptor is None else tensor
    other = object.__new__(type(descriptor))
    other.__dict__.update(descriptor.__dict__, base=tensor)
    return other


class Launches:
    """The launches of a kernel, each kept by what it depends on. prepare(*tensors, *arguments) -> Launch or None."""

    KEPT = 4096

    def __init__(self, prepare):
        self.prepare, self.kept = prepare, {}

    def find(self, tensors, *arguments):
        """The Launch for these tensors; None where one must be copied: its start or a stride is not one of 16 bytes.

        A tensor may be None.
        """
        key = [arguments]
        for x in tensors:
            if x is None:
                key.append(None)
                continue
            if x.data_ptr() % 16:
                return None
            key += x.shape, x.stride(), x.dtype, x.device
        key = tuple(key)
        launch = self.kept.get(key, MISSING)
        if launch is MISSING:
            if len(self.kept) >= self.KEPT:
                self.kept.clear()
            launch = self.kept[key] = self.prepare(*tensors, *arguments)
        return launch
