"""A compiled kernel launched by CUDA's driver itself: Triton's own way takes longer than a short kernel runs.

What a kernel of Triton's takes, in the order of its arguments:

    tensor descriptor   a tensor map (128 bytes, by value), the shape (int32 each), the strides (int64 each)
    pointer             an address
    number              int32, int64 or float32
    at the end          two addresses of scratch memory, which the fast forms do not use

Only addresses differ from launch to launch. What holds them is made once for each address, and for those of a launch,
and kept: PyTorch's allocator gives the same addresses again and again.

Source: NVIDIA, "CUDA Driver API", cuLaunchKernel and cuTensorMapEncodeTiled.
"""

import ctypes
from functools import cache

import torch

POINTER = object()  # in the place of a descriptor: the kernel takes the tensor's address
NUMBERS = {"i32": ctypes.c_int32, "i64": ctypes.c_int64, "fp32": ctypes.c_float}
ELEMENTS = {"fp16": 6, "fp32": 7, "bf16": 9}  # CU_TENSOR_MAP_DATA_TYPE_...
ALIGNED, MAP_BYTES = 64, 128
L2_PROMOTION_128B = 2
INVALID_CONTEXT = 201
KEPT = 1024  # addresses of a tensor, or of all tensors of a launch


@cache
def cuda():
    driver = ctypes.CDLL("libcuda.so.1")
    word, address = ctypes.c_uint, ctypes.c_void_p
    driver.cuLaunchKernel.argtypes = [address, *[word] * 7, address, address, address]
    driver.cuTensorMapEncodeTiled.argtypes = [address, word, word, *[address] * 5, *[word] * 4]
    return driver


def check(error):
    if error:
        text = ctypes.c_char_p()
        cuda().cuGetErrorString(error, ctypes.byref(text))
        raise RuntimeError(f"CUDA's driver refused a launch: {(text.value or b'unknown error').decode()}")


class TensorMaps:
    """The tensor maps of one descriptor: maps.of(address) -> (where it is in memory, the memory)."""

    def __init__(self, descriptor, element, meta):
        rank = len(descriptor.shape)
        sizes, steps, box = (list(reversed(x)) for x in (descriptor.shape, descriptor.strides, meta["block_size"]))
        self.numbers = ELEMENTS[element], rank
        self.arrays = (
            (ctypes.c_uint64 * rank)(*sizes), (ctypes.c_uint64 * rank)(*(n * meta["elem_size"] for n in steps[1:])),
            (ctypes.c_uint32 * rank)(*box), (ctypes.c_uint32 * rank)(*[1] * rank),
        )  # fmt: skip
        self.options = 0, meta["swizzle"], L2_PROMOTION_128B, 0  # not interleaved; zeros past the tensor's end
        self.kept = {}

    def of(self, address):
        found = self.kept.get(address)
        if found is None:
            memory = ctypes.create_string_buffer(MAP_BYTES + ALIGNED)
            where = -(-ctypes.addressof(memory) // ALIGNED) * ALIGNED
            check(cuda().cuTensorMapEncodeTiled(where, *self.numbers, address, *self.arrays, *self.options))
            if len(self.kept) >= KEPT:
                self.kept.clear()
            found = self.kept[address] = where, memory
        return found


class Direct:
    """A compiled kernel with all of its arguments but the addresses: direct(tensors) launches on the current stream.

    descriptors: for each tensor a descriptor, POINTER, or None where the kernel takes nothing. others: what follows.
    """

    def __init__(self, compiled, grid, descriptors, others):
        self.values, self.maps, self.pointers = [], [], []  # maps, pointers: (parameter, tensor, ...)
        metas = iter(compiled.metadata.tensordesc_meta or ())
        given = zip((*descriptors, *others), compiled.src.signature.values(), strict=True)
        for number, (value, type_) in enumerate(given):
            if type_ == "constexpr":
                continue
            if value is POINTER:
                self.pointers.append((len(self.values), number))
                self.values.append(ctypes.c_uint64())
            elif type_ in NUMBERS:
                self.values.append(NUMBERS[type_](value))
            else:
                element = type_.removeprefix("tensordesc<").partition("[")[0]
                self.maps.append((len(self.values), number, TensorMaps(value, element, next(metas))))
                self.values.append((ctypes.c_char * MAP_BYTES)())
                self.values += [*map(ctypes.c_int32, value.shape), *map(ctypes.c_int64, value.strides)]
        self.values += [ctypes.c_uint64(), ctypes.c_uint64()]
        self.where = (ctypes.c_void_p * len(self.values))(*map(ctypes.addressof, self.values))
        self.placed = {}
        threads = 32 * compiled.metadata.num_warps
        self.launch = compiled.function, *grid, threads, 1, 1, compiled.metadata.shared

    def place(self, addresses):
        """(where each parameter is, what must stay in memory for it), for tensors at these addresses."""
        where = type(self.where).from_buffer_copy(self.where)  # its own, since other threads may launch it, too
        memory = [maps.of(addresses[number]) for _, number, maps in self.maps]
        for (parameter, *_), (at, _) in zip(self.maps, memory, strict=True):
            where[parameter] = at
        for parameter, number in self.pointers:
            memory.append(ctypes.c_uint64(addresses[number]))
            where[parameter] = ctypes.addressof(memory[-1])
        return where, memory

    def __call__(self, tensors):
        addresses = tuple([None if x is None else x.data_ptr() for x in tensors])
        placed = self.placed.get(addresses)
        if placed is None:
            if len(self.placed) >= KEPT:
                self.placed.clear()
            placed = self.placed[addresses] = self.place(addresses)
        device = tensors[0].device.index
        stream = torch._C._cuda_getCurrentRawStream(device)
        error = cuda().cuLaunchKernel(*self.launch, stream, placed[0], None)
        if error == INVALID_CONTEXT:  # a thread's first call
            torch.cuda.set_device(device)
            error = cuda().cuLaunchKernel(*self.launch, stream, placed[0], None)
        if error:
            check(error)
