"""How far an output may be from the right one: measured on careful forms that a kind lists, not guessed."""

import math

import torch

FLOAT32 = torch.finfo(torch.float32).eps
FLOAT32_STEPS = 8  # roundings from an input to an output that every kernel has: scale, exp, rescale, sum, division ...


def allow(expected, forms, dtype, size=None, steps=FLOAT32_STEPS):
    """float64, in the shape of `expected`: twice the largest error of careful forms, and two roundings to `dtype`.

    expected: the right output, float64. forms: what careful kernels hold before they store it, computed from the very
    inputs of the case: another order of a sum, exp or exp2. dtype: the output's. size: what an error grows with, in the
    shape of `expected`: of a sum, that of what is added up without its signs; by default |expected|. steps: roundings
    of float32 that every kernel has.
    Raises ValueError where a form is NaN or infinite.
    """
    info = torch.finfo(dtype)
    tiny = max(2 * info.smallest_normal * info.eps, torch.finfo(torch.float32).smallest_normal)  # GPUs flush to zero
    size = expected.abs() if size is None else size
    off = steps * FLOAT32 / 2
    for form in forms:
        error = ((form.double() - expected).abs() - tiny).clamp(min=0.0) / size.clamp(min=1e-300)
        if not math.isfinite(worst := error.max().item()):
            raise ValueError("a careful form is not finite: it is not careful on these inputs")
        off = max(off, worst)
    return 2 * off * size + info.eps * expected.abs() + tiny


def fits(got, values, allowed, roundings):
    """Whether an output is these values, within what it may be off by, or within a little of their own size.

    roundings: of float32, of a mistake's own large numbers.
    """
    info = torch.finfo(got.dtype)
    own = max(4 * info.eps, roundings * FLOAT32)
    most = values.abs().nan_to_num(0.0, 0.0).clamp(max=info.max).amax((-2, -1), keepdim=True)
    large = (values.abs() > info.max) & ~got.isfinite()
    same = (got.double() == values) | (got.isnan() & values.isnan()) | large
    return bool((((got.double() - values).abs() <= allowed + own * most) | same).all())


def drop_to_tf32(x: torch.Tensor) -> torch.Tensor:
    """float32 with the 13 low bits of the mantissa dropped: what the tensor core reads of a float32."""
    return (x.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)
