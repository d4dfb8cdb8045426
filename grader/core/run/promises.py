"""In the runner, interpreted: do the hints that a kernel gives the compiler hold for its values?

What each hint says: Triton's language reference, tl.multiple_of, tl.max_contiguous and tl.max_constancy.
"""

from typing import Any

import numpy as np

PROMISES = {
    "tt.divisibility": "tl.multiple_of", "tt.contiguity": "tl.max_contiguous", "tt.constancy": "tl.max_constancy",
}  # fmt: skip


def broken(hint: str, handle: Any, sizes: Any) -> int:
    """How many elements of a block, or of a number, are not as the hint says. sizes: one for each axis."""
    data, step = np.asarray(handle.data), 1
    if data.dtype.kind not in "iu":
        return 0
    data = data.astype(np.int64)
    if handle.dtype.is_ptr():  # neighbours are an element apart
        step = max(1, handle.dtype.element_ty.primitive_bitwidth // 8)
    sizes = [int(size) for size in (sizes if isinstance(sizes, list | tuple) else [sizes])]
    if data.ndim == 0 or data.size == 1:
        return int(hint == "tl.multiple_of" and bool((data % sizes[0]).any()))
    if len(sizes) != data.ndim:
        return 0
    return max(broken_along(hint, np.moveaxis(data, axis, -1), size, step) for axis, size in enumerate(sizes))


def broken_along(hint: str, rows: np.ndarray, size: int, step: int) -> int:
    """The same along the last axis."""
    if hint == "tl.multiple_of":  # of the first of each run of neighbours
        begins = np.ones(rows.shape, bool)
        begins[..., 1:] = np.diff(rows, axis=-1) != step
        return int((begins & (rows % size != 0)).sum())
    if size <= 1 or rows.shape[-1] % size:
        return 0
    groups = rows.reshape(*rows.shape[:-1], -1, size)
    wanted = groups[..., :1] + (np.arange(size) * step if hint == "tl.max_contiguous" else 0)
    return int((groups != wanted).sum())
