"""The functions of NVIDIA's libdevice that kernels may call (NVIDIA, Libdevice User's Guide)."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from grader.core.machine import arithmetic


@dataclass(frozen=True)
class External:
    """A function of NVIDIA's libdevice. elements: the types of its operands and of its result."""

    elements: tuple[str, ...]
    function: Callable[..., Tensor]


def of_floats(function: Callable[..., Tensor], *names: str, operands: int = 1) -> dict[str, External]:
    """`name` for float64 and `namef` for float32."""
    made = arithmetic.steady(function) if operands == 1 else function
    return {f"__nv_{name}{suffix}": External((element,) * (operands + 1), made)
            for name in names for suffix, element in (("", "f64"), ("f", "f32"))}  # fmt: skip


def asked(function: Callable[[Tensor], Tensor], *symbols: str) -> dict[str, External]:
    """Whether numbers are so, as an i32; symbols that end on d are of float64."""
    return {f"__nv_{symbol}": External(("f64" if symbol.endswith("d") else "f32", "i32"), lambda x: function(x).int())
            for symbol in symbols}  # fmt: skip


def in_double(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda x: function(x.double()).to(x.dtype)


def bits_of(x: Tensor) -> list[Tensor]:
    """Of 32, the lowest first."""
    return [(arithmetic.unsigned(x) >> i) & 1 for i in range(32)]


def count_bits(x: Tensor) -> Tensor:
    return torch.stack(bits_of(x)).sum(0).to(torch.int32)


def turned_bits(x: Tensor) -> Tensor:
    return torch.stack([bit << (31 - i) for i, bit in enumerate(bits_of(x))]).sum(0).to(torch.int32)


def leading_zeros(x: Tensor) -> Tensor:
    wide = arithmetic.unsigned(x)
    return 32 - sum(((wide >> i) > 0).to(torch.int32) for i in range(32))  # type: ignore[return-value]


def power(x: Tensor, y: Tensor) -> Tensor:
    return torch.pow(x.double(), y.double()).to(x.dtype)


PLAIN = (
    "tanh tan asin acos atan asinh acosh atanh exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos erf erfc erfinv"
)
LIBDEVICE: dict[str, External] = {
    **{symbol: made for name in f"{PLAIN} lgamma floor ceil trunc".split()
       for symbol, made in of_floats(getattr(torch, name), name).items()},
    **of_floats(in_double(torch.sinh), "sinh"), **of_floats(in_double(torch.cosh), "cosh"),
    **of_floats(in_double(lambda x: torch.pow(10.0, x)), "exp10"),
    **of_floats(in_double(lambda x: torch.from_numpy(np.cbrt(x.numpy()))), "cbrt"),
    **of_floats(torch.abs, "fabs"), **of_floats(torch.round, "rint", "nearbyint"),
    **of_floats(lambda x: torch.where(x.abs() % 1 == 0.5, x.trunc() + x.sign(), x.round()), "round"),
    **of_floats(power, "pow", operands=2), **of_floats(arithmetic.remainder, "fmod", operands=2),
    **of_floats(torch.atan2, "atan2", operands=2), **of_floats(torch.hypot, "hypot", operands=2),
    **of_floats(arithmetic.fmin, "fmin", operands=2), **of_floats(arithmetic.fmax, "fmax", operands=2),
    **of_floats(torch.copysign, "copysign", operands=2), **of_floats(arithmetic.fused, "fma", operands=3),
    **asked(torch.isnan, "isnanf", "isnand"), **asked(torch.isinf, "isinff", "isinfd"),
    **asked(torch.signbit, "signbitf", "signbitd"), **asked(torch.isfinite, "finitef", "isfinited"),
    **{f"__nv_fast_{name}f": External(("f32", "f32"), arithmetic.steady(getattr(torch, name)))
       for name in ("exp", "log", "log2", "sin", "cos")},
    "__nv_powif": External(("f32", "i32", "f32"), power), "__nv_powi": External(("f64", "i32", "f64"), power),
    "__nv_fast_powf": External(("f32", "f32", "f32"), power),
    "__nv_popc": External(("i32", "i32"), count_bits), "__nv_brev": External(("i32", "i32"), turned_bits),
    "__nv_clz": External(("i32", "i32"), leading_zeros),
    "__nv_float2int_rn": External(("f32", "i32"), lambda x: arithmetic.whole_number(x.round(), torch.int32)),
    "__nv_float2int_rz": External(("f32", "i32"), lambda x: arithmetic.whole_number(x, torch.int32)),
    "__nv_fdividef": External(("f32", "f32", "f32"), torch.div),
    "__nv_fast_fdividef": External(("f32", "f32", "f32"), torch.div),
}  # fmt: skip
