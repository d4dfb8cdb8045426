"""Arithmetic of one element after the other, as LLVM and PTX define it: pure functions of tensors.

Integers have no sign of their own: an operation says how it reads them. Torch's functions are used where their bits do
not depend on shape, stride or processor; `steady` sees to it for exponentials and their like.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

Combine = Callable[[Tensor, Tensor], Tensor]
VECTOR = 64  # elements: whole vectors of any processor, so that no element is left to another loop
WIDTHS = {torch.bool: 1, torch.int8: 8, torch.int16: 16, torch.int32: 32, torch.int64: 64}
NUMPY = {torch.int8: np.uint8, torch.int16: np.uint16, torch.int32: np.uint32, torch.int64: np.uint64}


# Integers ------------------------------------------------------------------------------------------------------------


def signed(x: Tensor) -> Tensor:
    """An i1 as the number it is with a sign: -1 or 0."""
    return -x.to(torch.int8) if x.dtype == torch.bool else x


def unsigned(x: Tensor) -> Tensor:
    """The numbers as int64 without a sign; those of 64 bits keep their bits, and their order by `flipped`."""
    if x.dtype == torch.int64:
        return x
    wide = x.to(torch.int64)
    return wide if x.dtype == torch.bool else wide & ((1 << WIDTHS[x.dtype]) - 1)


def ordered(x: Tensor) -> Tensor:
    """Integers in the order of their unsigned numbers."""
    return x ^ torch.iinfo(torch.int64).min if x.dtype == torch.int64 else unsigned(x)


def add(a: Tensor, b: Tensor) -> Tensor:
    return a ^ b if a.dtype == torch.bool else a + b


def subtract(a: Tensor, b: Tensor) -> Tensor:
    return a ^ b if a.dtype == torch.bool else a - b


def divided(a: Tensor, b: Tensor, remainder: bool) -> Tensor:
    """Rounded towards zero. By zero, which has no result, gives all bits set, or the number itself."""
    dtype, a, b = a.dtype, signed(a), signed(b)
    odd = (b == 0) | (b == -1)
    if not bool(odd.any()):
        return (torch.fmod(a, b) if remainder else torch.div(a, b, rounding_mode="trunc")).to(dtype)
    safe = torch.where(odd, 1, b)  # the smallest number by -1 stops some processors
    if remainder:
        made = torch.where(odd, torch.where(b == 0, a, 0), torch.fmod(a, safe))
    else:
        made = torch.where(odd, torch.where(b == 0, -1, -a), torch.div(a, safe, rounding_mode="trunc"))
    return made.to(dtype)


def divided_unsigned(a: Tensor, b: Tensor, remainder: bool) -> Tensor:
    dtype = a.dtype
    if dtype == torch.bool:
        return (a & ~b) if remainder else (a & b)
    x, y = np.broadcast_arrays(*(t.contiguous().numpy().view(NUMPY[dtype]) for t in (a, b)))
    safe = np.where(y == 0, 1, y).astype(y.dtype)
    made = np.where(y == 0, x, x % safe) if remainder else np.where(y == 0, ~np.zeros_like(x), x // safe)
    return torch.from_numpy(np.ascontiguousarray(made).view(made.dtype.name[1:]))


def high_product(a: Tensor, b: Tensor) -> Tensor:
    """The upper half of the unsigned product."""
    if a.dtype != torch.int64:
        return ((unsigned(a) * unsigned(b)) >> WIDTHS[a.dtype]).to(a.dtype)  # of 32 bits it needs all of 64
    mask = (1 << 32) - 1
    al, ah, bl, bh = a & mask, (a >> 32) & mask, b & mask, (b >> 32) & mask
    low, middle, other = al * bl, ah * bl, al * bh
    carry = ((low >> 32) & mask) + (middle & mask) + (other & mask)
    return ah * bh + ((middle >> 32) & mask) + ((other >> 32) & mask) + ((carry >> 32) & mask)


def shifted(a: Tensor, b: Tensor, how: str) -> Tensor:
    """By as many bits as there are, or more, a GPU shifts all out."""
    width, count = WIDTHS[a.dtype], unsigned(b)
    if a.dtype == torch.int64:
        count = torch.where(count < 0, 64, count)
    count = count.clamp(max=width)
    if how == "left":
        made = torch.bitwise_left_shift(a.to(torch.int64), count.clamp(max=63)).to(a.dtype)
        return torch.where(count >= width, torch.zeros_like(made), made)
    if how == "right":
        return torch.bitwise_right_shift(a, count.clamp(max=width - 1).to(a.dtype))
    if a.dtype != torch.int64:
        return torch.bitwise_right_shift(unsigned(a), count).to(a.dtype)
    kept = torch.bitwise_right_shift(a, count.clamp(max=63))
    mask = torch.bitwise_left_shift(torch.full_like(count, -1), (64 - count).clamp(max=63))
    return torch.where(count == 0, a, torch.where(count >= 64, 0, kept & ~mask))


ORDERS: dict[str, Combine] = {
    "eq": torch.eq, "ne": torch.ne, "lt": torch.lt, "le": torch.le, "gt": torch.gt, "ge": torch.ge,
}  # fmt: skip


def compared(name: str) -> Combine:
    """The function behind arith.cmpi's predicate."""
    if name in ("eq", "ne"):
        return ORDERS[name]
    read, compare = {"s": signed, "u": ordered}[name[:1]], ORDERS[name[1:]]
    return lambda a, b: compare(read(a), read(b))


def compared_floats(name: str) -> Combine:
    """The function behind arith.cmpf's predicate: `o` is false where one is NaN, `u` is true there."""
    if name in FLOAT_ORDERS:
        return FLOAT_ORDERS[name]
    compare = ORDERS[name[1:]]
    return {"o": compare, "u": lambda a, b: compare(a, b) | a.isnan() | b.isnan()}[name[:1]]


FLOAT_ORDERS: dict[str, Combine] = {
    "ord": lambda a, b: ~(a.isnan() | b.isnan()), "uno": lambda a, b: a.isnan() | b.isnan(),
    "one": lambda a, b: (a < b) | (a > b), "une": torch.ne,
}  # fmt: skip


def chosen_by(order: Callable[[Tensor], Tensor], larger: bool) -> Combine:
    """The larger, or the smaller, of two integers as `order` reads them."""

    def choose(a: Tensor, b: Tensor) -> Tensor:
        x, y = order(a), order(b)
        return torch.where((x >= y) if larger else (x <= y), a, b)

    return choose


# Conversions ---------------------------------------------------------------------------------------------------------


def extended(x: Tensor, dtype: torch.dtype) -> Tensor:
    return signed(x).to(dtype)


def extended_unsigned(x: Tensor, dtype: torch.dtype) -> Tensor:
    return unsigned(x).to(dtype)


def cut(x: Tensor, dtype: torch.dtype) -> Tensor:
    """The lowest bits."""
    return (x & 1).to(torch.bool) if dtype == torch.bool else x.to(dtype)


def float_of_unsigned(x: Tensor, dtype: torch.dtype) -> Tensor:
    if x.dtype != torch.int64:
        return unsigned(x).to(dtype)
    numbers = torch.from_numpy(
        x.contiguous().numpy().view(np.uint64).astype(np.float64 if dtype == torch.float64 else np.float32)
    )
    return numbers.to(dtype)


def whole_number(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Towards zero; what does not fit becomes the nearest number that does, and NaN zero, as PTX's cvt.rzi has it."""
    if dtype == torch.bool:
        return x.trunc() != 0
    wide = x.to(torch.float64)
    low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    made = wide.trunc().clamp(low, float(high)).nan_to_num(0.0)
    top = wide >= float(high)  # of 64 bits the largest is no float
    return torch.where(top, high, torch.where(top, 0.0, made).to(dtype))


def whole_number_unsigned(x: Tensor, dtype: torch.dtype) -> Tensor:
    if dtype == torch.bool:
        return x.trunc() != 0
    width = WIDTHS[dtype]
    made = np.nan_to_num(np.trunc(x.to(torch.float64).contiguous().numpy()), nan=0.0)
    largest = (1 << width) - 1
    top = made >= float(largest)
    numbers = np.where(top, 0, np.clip(made, 0, None)).astype(NUMPY[dtype])
    numbers[top] = largest
    return torch.from_numpy(numbers.view(f"int{width}"))


LARGEST_OF_8_BITS = {torch.float8_e4m3fn: 448.0, torch.float8_e5m2: 57344.0}


def to_float(x: Tensor, dtype: torch.dtype, towards_zero: bool = False) -> Tensor:
    """Rounded to the nearest, ties to even; of 8 bits what is too large becomes the largest (PTX: satfinite)."""
    if x.dtype in LARGEST_OF_8_BITS:
        x = x.to(torch.float32)
    if dtype in LARGEST_OF_8_BITS:
        most = LARGEST_OF_8_BITS[dtype]
        return x.to(torch.float32).clamp(-most, most).to(dtype)
    made = narrowed(x, dtype) if x.dtype == torch.float64 else x.to(dtype)
    if not towards_zero:
        return made
    back = made.to(x.dtype)
    over = back.abs() > x.abs()
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    return torch.where(over, (made.view(bits) - 1).view(dtype), made)  # one step towards zero


def same_bits(x: Tensor, dtype: torch.dtype) -> Tensor:
    if x.dtype == dtype:
        return x
    if torch.bool in (x.dtype, dtype):
        return x.to(dtype)
    return x.contiguous().view(dtype) if x.element_size() == dtype.itemsize else x.to(dtype)


# Floating point ------------------------------------------------------------------------------------------------------


def steady(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """The function on whole vectors, one after the other: an element's bits then depend on that element alone."""

    def applied(x: Tensor) -> Tensor:
        flat = x.contiguous().view(-1)
        left = -flat.numel() % VECTOR
        if left:
            flat = torch.cat([flat, flat.new_zeros(left)])
        made = function(flat)
        return (made[:-left] if left else made).view(x.shape)

    return applied


def fused(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """a * b + c, rounded once.

    The product of two float32 is exact in float64; their sum is rounded to odd there, so that the second rounding finds
    what the first has lost (Boldo and Melquiond, Emulation of FMA and correctly rounded sums, 2008, section 4).
    """
    if a.dtype == torch.float64:
        return torch.addcmul(c, a, b)
    product, added = a.double() * b.double(), c.double()
    total = product + added
    part = total - product
    lost = (product - (total - part)) + (added - part)
    bits = total.view(torch.int64)
    even = (lost != 0) & ((bits & 1) == 0) & total.isfinite() & lost.isfinite()
    step = torch.where((lost > 0) == (total > 0), 1, -1)
    return narrowed(torch.where(even, bits + step, bits).view(torch.float64), a.dtype)


def narrowed(x: Tensor, dtype: torch.dtype) -> Tensor:
    """float64 as a smaller dtype, rounded once: torch goes by float32, which here is rounded to odd."""
    made = x.to(torch.float32)
    if dtype.itemsize != 2:
        return made.to(dtype)
    back, bits = made.double(), made.view(torch.int32)
    even = (back != x) & ((bits & 1) == 0) & made.isfinite()
    step = torch.where(x.abs() > back.abs(), 1, -1).to(torch.int32)  # away from 0, or towards it
    return torch.where(even, bits + step, bits).view(torch.float32).to(dtype)


def without_subnormals(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """The function as a GPU has it for float32: subnormal numbers count as 0, with their sign."""

    def applied(x: Tensor) -> Tensor:
        if x.dtype != torch.float32:
            return function(x)
        return function(torch.where(x.abs() < SMALLEST, x * 0.0, x))

    return applied


SMALLEST = torch.finfo(torch.float32).tiny


def root(x: Tensor) -> Tensor:
    """Rounded once on every processor: of float32 by float64."""
    return torch.sqrt(x.double()).to(x.dtype)


def remainder(a: Tensor, b: Tensor) -> Tensor:
    """As C's fmod, which is exact; numpy's is, where torch's divides."""
    made = np.fmod(*(x.double().contiguous().numpy() for x in torch.broadcast_tensors(a, b)))
    return torch.from_numpy(np.ascontiguousarray(made)).to(a.dtype)


def larger(choose: Combine, most: bool) -> Combine:
    """The larger (most), or the smaller, of two floats. -0 is less than +0; torch gives either."""

    def chosen(a: Tensor, b: Tensor) -> Tensor:
        made = choose(a, b)
        zeros = made == 0
        if not bool(zeros.any()):
            return made
        zeros = (a == 0) & (b == 0)
        return torch.where(zeros, a + b if most else -((-a) + (-b)), made)

    return chosen


fmax, fmin = larger(torch.fmax, True), larger(torch.fmin, False)
maximum, minimum = larger(torch.maximum, True), larger(torch.minimum, False)


def clamped(x: Tensor, low: Tensor, high: Tensor, propagate: bool) -> Tensor:
    return minimum(maximum(x, low), high) if propagate else fmin(fmax(x, low), high)
