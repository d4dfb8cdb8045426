"""Tensors of many gigabytes of which few pages hold elements, for offsets beyond int32: recorder and runner have them.

All lie in one mapping that a fork server reserves before a child's memory is limited (rlimits.py adds the limit to what
is mapped already): a child may therefore have them, and no more memory than before. The kernel gives a page when it is
first written; an untouched one costs nothing.
"""

import mmap

import torch

ARENA_BYTES = 1 << 38  # of address space: a call may have five such tensors of 10 GB, and its wrapper may make as many
FAR_BYTES = 1 << 31  # a storage of more than this lies here
NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)


class Arena:
    mapping: mmap.mmap | None = None
    used = 0


def reserve() -> None:
    """Map the arena; without it, where the kernel promises no more memory than there is, `empty` raises MemoryError."""
    try:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE
        Arena.mapping = mmap.mmap(-1, ARENA_BYTES, flags=flags)
    except (OSError, ValueError):
        Arena.mapping = None


def release() -> None:
    """Give the address space back: where no tensor lies here, it would count as memory that the process has."""
    if Arena.mapping:
        Arena.mapping.close()
    Arena.mapping = None


def begin() -> None:
    """Give all pages back: what was in the arena before is zero."""
    if Arena.mapping and Arena.used:
        Arena.mapping.madvise(mmap.MADV_DONTNEED, 0, Arena.used)
        Arena.used = 0


def empty(elements: int, dtype: torch.dtype) -> torch.Tensor:
    """A flat tensor of zeros, `elements` long, in the arena; raises MemoryError where that has no room."""
    start = Arena.used
    end = start + -(-elements * dtype.itemsize // mmap.PAGESIZE) * mmap.PAGESIZE
    if Arena.mapping is None or end > ARENA_BYTES:
        raise MemoryError("no address space for a tensor with offsets beyond int32")
    Arena.used = end
    return torch.frombuffer(Arena.mapping, dtype=dtype, count=elements, offset=start)


def is_far(storage: torch.UntypedStorage) -> bool:
    return storage.nbytes() > FAR_BYTES
