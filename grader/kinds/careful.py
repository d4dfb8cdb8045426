"""How far an output may be from the right one: measured on careful forms that a kind lists, not guessed."""

import math

import torch

FLOAT32 = torch.finfo(torch.float32).eps
FLOAT32_STEPS = 8  # roundings from an input to an output that every kernel has: scale, exp, rescale, sum, division ...


def allow(expected, forms, dtype, size=None):
    """float64, in the shape of `expected`: twice the largest error of careful forms, and two roundings to `dtype`.

    expected: the right output, float64. forms: what careful kernels hold before they store it, computed from the very
    inputs of the case: another order of a sum, exp or exp2. dtype: the output's. size: what an error grows with, in the
    shape of `expected`: of a sum, that of what is added up without its signs; by default |expected|.
    Raises ValueError where a form is NaN or infinite.
    """
    info = torch.finfo(dtype)
    tiny = max(2 * info.smallest_normal * info.eps, torch.finfo(torch.float32).smallest_normal)  # GPUs flush to zero
    size = expected.abs() if size is None else size
    off = FLOAT32_STEPS * FLOAT32 / 2
    for form in forms:
        error = ((form.double() - expected).abs() - tiny).clamp(min=0.0) / size.clamp(min=1e-300)
        if not math.isfinite(worst := error.max().item()):
            raise ValueError("a careful form is not finite: it is not careful on these inputs")
        off = max(off, worst)
    return 2 * off * size + info.eps * expected.abs() + tiny


def differs(wrong, right):
    """True where what a mistake gives, `wrong`, is not right itself. right: the Right."""
    wrong = wrong.double()
    return wrong.shape == right.expected.shape and not bool(((wrong - right.expected).abs() <= right.allowed).all())


def equals(got, wrong, right):
    """True where `got` is what a mistake gives, `wrong`. right: the Right, for what is near enough."""
    got, wrong = got.double(), wrong.double()
    step = torch.finfo(getattr(torch, right.dtype)).eps + 2 * FLOAT32_STEPS * FLOAT32
    near = (got - wrong).abs() <= right.allowed + step * wrong.abs()
    return bool((near | (got == wrong) | (got.isnan() & wrong.isnan())).all())


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
