"""In the runner: poison in the memory that a program allocates, and fences around it."""

from collections.abc import Sequence
from typing import Any

import torch

from grader.core.run.operations import UNWRITTEN
from grader.core.worker.dispatch import DispatchMode

GUARD = 1 << 17  # bytes on each side: one tile of 128 rows of 256 float32
POISON = 0xFF  # as bytes: NaN in every float dtype, and no NaN that arithmetic makes
WORD = -1  # eight bytes of it, as an int64
INPUT_POISON = 0x7F  # around inputs: NaN in float16, huge in the others; copied over POISON it would show

WRITTEN = {"zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones", "full", "full_like", "new_full"}


def fenced(
    shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype, device: Any, poison: int = POISON
) -> tuple[torch.Tensor, int, torch.Tensor]:
    """(bytes, how many of them are the tensor's, the tensor): uninitialised, of that shape and strides, amid poison."""
    used = (1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))) * dtype.itemsize
    buffer = torch.full((2 * GUARD + -(-used // 16) * 16,), poison, dtype=torch.uint8, device=device)
    return buffer, used, buffer.view(dtype).as_strided(shape, strides, GUARD // dtype.itemsize)


def fence_is_whole(buffer: torch.Tensor, extent_bytes: int) -> bool:
    """True while the poison before and after the tensor's bytes is what it was."""
    end = GUARD + extent_bytes
    words = -(-end // 8) * 8  # eight bytes at a time, which takes a fiftieth of the time
    whole = [buffer[:GUARD].view(torch.int64) == WORD, buffer[words:].view(torch.int64) == WORD]
    return all(bool(part.all()) for part in (*whole, buffer[end:words] == POISON))


class Allocations(DispatchMode):
    """While active: new tensors lie between fences, and uninitialised ones are poisoned."""

    def __init__(self) -> None:
        super().__init__()
        self.buffers: list[tuple[torch.Tensor, int, tuple[int, ...]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if (name.startswith(UNWRITTEN) or name in WRITTEN) and isinstance(out, torch.Tensor) and can_be_fenced(out):
            buffer, used, tensor = fenced(out.shape, out.stride(), out.dtype, out.device)
            self.buffers.append((buffer, used, tuple(out.shape)))
            return tensor.copy_(out) if name in WRITTEN else tensor
        return out

    def broken_fences(self) -> list[list[int]]:
        """The shapes of the tensors around which something was overwritten."""
        return [list(shape) for buffer, size, shape in self.buffers if not fence_is_whole(buffer, size)]


def can_be_fenced(tensor: torch.Tensor) -> bool:
    """Dense memory of a real size: meta tensors, sparse ones, empty ones and giants are left alone."""
    return tensor.layout == torch.strided and tensor.device.type in ("cpu", "cuda") and tensor.numel() > 0
