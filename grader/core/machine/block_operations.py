"""Operations on whole blocks: products, reductions, scans, gathering, counting.

Bits: a sum is a tree of halves along its axis, whatever else there is; a product of two blocks is made by one call for
each program where `bits_trial.py` finds that a call for many programs gives other bits.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from grader.core.machine import arithmetic
from grader.core.machine.batch import Frame, Value
from grader.core.machine.text import NotIR, Operation, Region, Type, need

Types = tuple[Type, ...]


# Products ------------------------------------------------------------------------------------------------------------

FLOATS, EIGHT_BITS = {"f16", "bf16", "f32", "f64"}, {"f8E4M3FN", "f8E5M2"}


class Products:
    """How products of many programs are made. one_by_one: a call for each program; bits_trial.py decides it."""

    one_by_one = False


def dot_rule(operation: Operation, given: Types) -> Types:
    need(len(operation.types) == 3, operation)
    a, b, c = operation.types
    *batch, rows, depth = a.shape if len(a.shape) in (2, 3) else (0, 0)
    fits = len(a.shape) in (2, 3) and (*batch, depth) == b.shape[:-1] and c.shape == (*batch, rows, b.shape[-1])
    integers = a.element == b.element == "i8" and c.element == "i32"
    halves = {a.element, b.element} <= FLOATS | EIGHT_BITS and c.element in ("f16", "f32", "f64")
    need(given == (a, b, c) and fits and (integers or halves), operation)
    need(a.kind == b.kind == c.kind == "number", operation)
    return (c,)


def dot(operation: Operation) -> Callable[[Any, Operation, Frame], None]:
    (first, second, third), (result,) = operation.operands, operation.results
    a, b, c = operation.types
    exact = a.element in ("i8", "f64")
    inner = torch.float64 if exact else torch.float32

    def execute(machine: Any, operation: Operation, frame: Frame) -> None:
        x, y, start = frame[first].data, frame[second].data, frame[third].data
        count = max(x.shape[0], y.shape[0])
        x, y = (each.expand(count, *kind.shape).to(inner) for each, kind in ((x, a), (y, b)))
        product = multiply(x, y)
        if a.element == "i8":
            frame.values[result] = Value(product.to(torch.int32) + start)
        else:
            frame.values[result] = Value((product + start.to(inner)).to(c.dtype))

    return execute


def multiply(x: Tensor, y: Tensor) -> Tensor:
    """(programs, *batch, rows, depth) times (programs, *batch, depth, columns), the same bits whatever the programs."""
    x, y = x.contiguous(), y.contiguous()
    if not Products.one_by_one:
        flat = torch.bmm(x.view(-1, *x.shape[-2:]), y.view(-1, *y.shape[-2:]))
        return flat.view(*x.shape[:-1], y.shape[-1])
    pairs = zip(x.view(-1, *x.shape[-2:]), y.view(-1, *y.shape[-2:]), strict=True)
    return torch.stack([torch.mm(a.clone(), b.clone()) for a, b in pairs]).view(*x.shape[:-1], y.shape[-1])


def scaled_rule(operation: Operation, given: Types) -> Types:
    need(given == operation.types and all(len(kind.shape) == 2 for kind in given), operation)
    (c, *_), sides = reversed(given), sides_of(operation)
    (rows, _), (_, columns) = (sides[i][0].shape for i in (0, 1))
    depths = [kind.shape[1 - i] * (2 if form == "e2m1" else 1) for i, (kind, _, form) in enumerate(sides)]
    fits = depths[0] == depths[1] and c.shape == (rows, columns) and c.element == "f32"
    for lanes, (kind, scale, form) in zip(c.shape, sides, strict=True):
        fits = fits and kind.kind == "number" and kind.element == ELEMENTS.get(form)
        fits = fits and (scale is None or scale.text == f"tensor<{lanes}x{depths[0] // 32}xi8>")
    need(fits, operation)
    return (c,)


ELEMENTS = {"e2m1": "i8", "e4m3": "f8E4M3FN", "e5m2": "f8E5M2", "fp16": "f16", "bf16": "bf16"}


def sides_of(operation: Operation) -> list[tuple[Type, Type | None, str]]:
    """(type of the block, of its scale, name of its format) of both sides."""
    found = FORMATS.search(operation.body)
    need(found, operation)
    sides, types = operation.body.partition(" lhs =")[0].split(", "), list(operation.types)
    return [(types.pop(0), types.pop(0) if " scale " in side else None, form)
            for side, form in zip(sides, found.groups(), strict=False)]  # type: ignore[union-attr]  # fmt: skip


FORMATS = re.compile(r"lhs = (\w+) rhs = (\w+)")
E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0])


def scaled(operation: Operation) -> Callable[[Any, Operation, Frame], None]:
    """Blocks with a scale of 8 bits for each 32 numbers along the depth (OCP Microscaling Formats, MX, v1.0)."""
    (result,), (c,) = operation.results, operation.made

    def execute(machine: Any, operation: Operation, frame: Frame) -> None:
        pairs = zip(operation.operands, operation.types, strict=True)
        blocks, given = list[Tensor](), [frame[name].data.expand(-1, *kind.shape) for name, kind in pairs]
        for side, (_, scaled, form) in enumerate(sides_of(operation)):
            x = given.pop(0)
            numbers = unpacked(x, side) if form == "e2m1" else x.to(torch.float32)
            if scaled:
                scale = (given.pop(0).to(torch.int32) & 255).to(torch.float32)
                factor = torch.exp2(scale - 127).repeat_interleave(32, -1)
                numbers = numbers * (factor if side == 0 else factor.transpose(-1, -2))
            blocks.append(numbers)
        count = max(each.shape[0] for each in blocks)
        x, y = (each.expand(count, *each.shape[1:]) for each in blocks)
        frame.values[result] = Value((multiply(x, y) + given.pop().to(torch.float32)).to(c.dtype))

    return execute


def unpacked(x: Tensor, side: int) -> Tensor:
    """Two numbers of 4 bits from each byte, the lower first, along the depth."""
    bits = x.to(torch.int64) & 255
    pair = torch.stack([E2M1[bits & 15], E2M1[bits >> 4]], -1 if side == 0 else -2)
    return pair.flatten(-2) if side == 0 else pair.flatten(-3, -2)


# Reductions and scans ------------------------------------------------------------------------------------------------


def reduce_rule(operation: Operation, given: Types) -> Types:
    axis = axis_of(operation)
    results = operation.types[len(given) :]
    need(given and operation.types[: len(given)] == given and len(results) == len(given), operation)
    for origin, target in zip(given, results, strict=True):
        need(origin.kind == "number" and axis < len(origin.shape) and origin.shape == given[0].shape, operation)
        left = (*origin.shape[:axis], *origin.shape[axis + 1 :])
        need((target.kind, target.shape, target.element) == ("number", left, origin.element), operation)
    check_combine(operation, given)
    return results


def scan_rule(operation: Operation, given: Types) -> Types:
    axis = axis_of(operation)
    need(given and operation.types == (*given, *given), operation)
    need(all(kind.kind == "number" and kind.shape == given[0].shape for kind in given), operation)
    need(axis < len(given[0].shape), operation)
    check_combine(operation, given)
    return given


def check_combine(operation: Operation, given: Types) -> None:
    entry = operation.regions[0].entry
    wanted = tuple(kind.element for kind in given) * 2
    need(tuple(kind.text for kind in entry.types) == wanted and len(operation.regions[0].blocks) == 1, operation)


def axis_of(operation: Operation) -> int:
    found = re.search(r"axis = (\d) : i32", operation.body, re.ASCII)
    need(found, operation)
    return int(found[1])  # type: ignore[index]


def only_operation(region: Region) -> str:
    """The name of the one operation that combines two numbers, or ""."""
    operations = region.entry.operations
    if len(operations) != 2 or len(region.entry.arguments) != 2:
        return ""
    combine, leave = operations
    given = set(combine.operands) == set(region.entry.arguments) and leave.operands == combine.results
    return combine.name if given and not combine.regions else ""


def halving(combine: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, int], Tensor]:
    def reduce(x: Tensor, axis: int) -> Tensor:
        size = x.shape[axis]
        while size > 1:
            size //= 2
            x = combine(x.narrow(axis, 0, size), x.narrow(axis, size, size))
        return x.squeeze(axis)

    return reduce


def largest(x: Tensor, axis: int) -> Tensor:
    """NaN counts only where there is nothing else; of zeros the positive one is larger."""
    made = x.amax(axis)
    return made if not bool((made.isnan() | (made == 0)).any()) else halving(arithmetic.fmax)(x, axis)


def smallest(x: Tensor, axis: int) -> Tensor:
    made = x.amin(axis)
    return made if not bool((made.isnan() | (made == 0)).any()) else halving(arithmetic.fmin)(x, axis)


REDUCTIONS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "arith.addf": halving(torch.add), "arith.addi": halving(arithmetic.add), "arith.mulf": halving(torch.mul),
    "arith.maxnumf": largest, "arith.minnumf": smallest,
    "arith.maximumf": halving(arithmetic.maximum), "arith.minimumf": halving(arithmetic.minimum),
    "arith.maxsi": halving(arithmetic.chosen_by(arithmetic.signed, True)),
    "arith.minsi": halving(arithmetic.chosen_by(arithmetic.signed, False)),
    "arith.xori": halving(torch.bitwise_xor), "arith.ori": halving(torch.bitwise_or),
    "arith.andi": halving(torch.bitwise_and),
}  # fmt: skip


def reduce(operation: Operation) -> Callable[[Any, Operation, Frame], None]:
    axis, region = axis_of(operation), operation.regions[0]
    known = REDUCTIONS.get(only_operation(region)) if len(operation.operands) == 1 else None
    if known:
        (operand,), (result,) = operation.operands, operation.results
        size = operation.types[0].shape[axis]

        def execute_known(machine: Any, operation: Operation, frame: Frame) -> None:
            x = frame[operand].data
            sizes = [-1] * x.dim()
            sizes[axis + 1] = size
            frame.values[result] = Value(known(x.expand(sizes), axis + 1))

        return execute_known

    def execute(machine: Any, operation: Operation, frame: Frame) -> None:
        parts = whole_operands(operation, frame)
        size = parts[0].shape[axis + 1]
        while size > 1:
            size //= 2
            sides = [[x.narrow(axis + 1, start, size) for x in parts] for start in (0, size)]
            parts = combined(machine, frame, region, *sides)
        for name, part in zip(operation.results, parts, strict=True):
            frame.values[name] = Value(part.squeeze(axis + 1))

    return execute


def scan(operation: Operation) -> Callable[[Any, Operation, Frame], None]:
    """One place after the other along the axis: the order of a scan by hand."""
    axis, region, reverse = axis_of(operation), operation.regions[0], "reverse = true" in operation.body

    def execute(machine: Any, operation: Operation, frame: Frame) -> None:
        parts = whole_operands(operation, frame)
        size = parts[0].shape[axis + 1]
        places = range(size - 1, -1, -1) if reverse else range(size)
        made = [torch.empty_like(x) for x in parts]
        before: list[Tensor] = []
        for place in places:
            here = [x.narrow(axis + 1, place, 1) for x in parts]
            before = combined(machine, frame, region, before, here) if before else here
            for target, x in zip(made, before, strict=True):
                target.narrow(axis + 1, place, 1).copy_(x)
        for name, part in zip(operation.results, made, strict=True):
            frame.values[name] = Value(part)

    return execute


def whole_operands(operation: Operation, frame: Frame) -> list[Tensor]:
    values = [frame[name].data for name in operation.operands]
    count = max(x.shape[0] for x in values)
    shapes = (kind.shape for kind in operation.types)
    return [x.expand(count, *shape).contiguous() for x, shape in zip(values, shapes, strict=False)]


def combined(machine: Any, frame: Frame, region: Region, left: list[Tensor], right: list[Tensor]) -> list[Tensor]:
    """The region on pairs of numbers: each pair is a program of its own."""
    shape = left[0].shape
    inner = rows_of(frame, shape)
    for name, x in zip(region.entry.arguments, [*left, *right], strict=True):
        inner.values[name] = Value(x.reshape(-1))
    made = machine.run_region(region, inner)
    return [value.data.expand(inner.count).view(shape) for value in made]


def rows_of(frame: Frame, shape: torch.Size) -> Frame:
    """A frame in which each element of blocks of this shape is a program."""
    count = shape.numel()
    if shape[0] == 1:  # the same for all programs: any of them stands for it
        places = torch.zeros(count, dtype=torch.int64)
    else:
        places = torch.arange(shape[0]).repeat_interleave(count // shape[0])
    return Frame(frame.numbers[places], frame, places)


def map_rule(operation: Operation, given: Types) -> Types:
    results = operation.types[len(given) :]
    need(given and operation.types[: len(given)] == given and results, operation)
    need(all(kind.kind == "number" and kind.shape == given[0].shape for kind in (*given, *results)), operation)
    if not operation.body.strip().endswith("<{pack = 1 : i32}> (") or len(operation.regions[0].blocks) > 1:
        raise NotIR(
            "the machine runs no tl.map_elementwise with a pack, or with a return inside: a limit of the grader"
        )
    need(
        tuple(kind.text for kind in operation.regions[0].entry.types) == tuple(kind.element for kind in given),
        operation,
    )
    return results


def map_elements(operation: Operation) -> Callable[[Any, Operation, Frame], None]:
    region = operation.regions[0]

    def execute(machine: Any, operation: Operation, frame: Frame) -> None:
        parts = whole_operands(operation, frame)
        inner = rows_of(frame, parts[0].shape)
        for name, x in zip(region.entry.arguments, parts, strict=True):
            inner.values[name] = Value(x.reshape(-1))
        for name, value in zip(operation.results, machine.run_region(region, inner), strict=True):
            frame.values[name] = Value(value.data.expand(inner.count).view(parts[0].shape))

    return execute


# Gathering and counting ----------------------------------------------------------------------------------------------


def gather_rule(operation: Operation, given: Types) -> Types:
    need(len(operation.types) == 3, operation)
    origin, index, target = operation.types
    axis = axis_of(operation)
    need(given == (origin, index) and axis < len(origin.shape) == len(index.shape), operation)
    others = all(a == b for at, (a, b) in enumerate(zip(origin.shape, index.shape, strict=True)) if at != axis)
    need(others and target == Type(target.text, "number", index.shape, origin.element), operation)
    need(origin.kind == "number" and index.kind == "number" and index.element in ("i8", "i16", "i32", "i64"), operation)
    return (target,)


def gather(operation: Operation) -> Callable[[Any, Operation, Frame], None]:
    (operand, index), (result,) = operation.operands, operation.results
    origin, indices, _ = operation.types
    axis = axis_of(operation)

    def execute(machine: Any, operation: Operation, frame: Frame) -> None:
        x, at = frame[operand].data, frame[index].data
        count = max(x.shape[0], at.shape[0])
        places = at.expand(count, *indices.shape).to(torch.int64)
        inside = (places >= 0) & (places < origin.shape[axis])
        if not bool(inside.all()):
            machine.broken_rule(operation, frame, "tl.gather with an index outside of the block")
            places = places.clamp(0, origin.shape[axis] - 1)
        frame.values[result] = Value(torch.gather(x.expand(count, *origin.shape), axis + 1, places))

    return execute


def histogram_rule(operation: Operation, given: Types) -> Types:
    need(len(operation.types) == 2 and len(given) in (1, 2), operation)
    origin, target = operation.types
    need(given[0] == origin and len(origin.shape) == len(target.shape) == 1, operation)
    need(origin.element in ("i32", "i64") and target.element in ("i32", "i64"), operation)
    need(origin.kind == target.kind == "number", operation)
    need(len(given) == 1 or given[1] == origin.with_element("i1"), operation)
    return (target,)


def histogram(operation: Operation) -> Callable[[Any, Operation, Frame], None]:
    origin, target = operation.types
    (result,) = operation.results

    def execute(machine: Any, operation: Operation, frame: Frame) -> None:
        values = [frame[name].data for name in operation.operands]
        count = max(x.shape[0] for x in values)
        numbers, *masks = (x.expand(count, *origin.shape).to(torch.int64) for x in values)
        counted = (numbers >= 0) & (numbers < target.shape[0])
        if masks:
            counted &= masks[0] != 0
        made = torch.zeros((count, *target.shape), dtype=torch.int64)
        made.scatter_add_(1, numbers.clamp(0, target.shape[0] - 1), counted.to(torch.int64))
        frame.values[result] = Value(made.to(target.dtype))

    return execute


# libdevice -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class External:
    """A function of NVIDIA's libdevice. elements: the types of its operands and of its result."""

    elements: tuple[str, ...]
    function: Callable[..., Tensor]


def of_floats(name: str, function: Callable[..., Tensor], operands: int = 1) -> dict[str, External]:
    """`name` for float64 and `namef` for float32."""
    steady = arithmetic.steady(function) if operands == 1 else function
    return {f"__nv_{name}{suffix}": External((element,) * (operands + 1), steady)
            for suffix, element in (("", "f64"), ("f", "f32"))}  # fmt: skip


def asked(name: str, function: Callable[[Tensor], Tensor]) -> dict[str, External]:
    return {symbol: External((element, "i32"), lambda x: function(x).to(torch.int32))
            for symbol, element in ((f"__nv_{name}f", "f32"), (f"__nv_{name}d", "f64"))}  # fmt: skip


def count_bits(x: Tensor) -> Tensor:
    wide = arithmetic.unsigned(x)
    return sum(((wide >> i) & 1 for i in range(32)), torch.zeros_like(wide)).to(torch.int32)


def turned_bits(x: Tensor) -> Tensor:
    wide = arithmetic.unsigned(x)
    return sum((((wide >> i) & 1) << (31 - i) for i in range(32)), torch.zeros_like(wide)).to(torch.int32)


def leading_zeros(x: Tensor) -> Tensor:
    wide = arithmetic.unsigned(x)
    return 32 - sum(((wide >> i) > 0).to(torch.int32) for i in range(32))  # type: ignore[return-value]


def power(x: Tensor, y: Tensor) -> Tensor:
    return torch.pow(x.double(), y.double()).to(x.dtype)


LIBDEVICE: dict[str, External] = {
    **of_floats("tanh", torch.tanh), **of_floats("sinh", lambda x: torch.sinh(x.double()).to(x.dtype)),
    **of_floats("cosh", lambda x: torch.cosh(x.double()).to(x.dtype)),
    **of_floats("tan", torch.tan), **of_floats("asin", torch.asin), **of_floats("acos", torch.acos),
    **of_floats("atan", torch.atan), **of_floats("asinh", torch.asinh), **of_floats("acosh", torch.acosh),
    **of_floats("atanh", torch.atanh), **of_floats("exp", torch.exp), **of_floats("exp2", torch.exp2),
    **of_floats("exp10", lambda x: torch.pow(10.0, x.double()).to(x.dtype)), **of_floats("expm1", torch.expm1),
    **of_floats("log", torch.log), **of_floats("log2", torch.log2), **of_floats("log10", torch.log10),
    **of_floats("log1p", torch.log1p), **of_floats("sqrt", torch.sqrt), **of_floats("rsqrt", torch.rsqrt),
    **of_floats("cbrt", lambda x: torch.from_numpy(np.cbrt(x.double().numpy())).to(x.dtype)),
    **of_floats("sin", torch.sin), **of_floats("cos", torch.cos), **of_floats("erf", torch.erf),
    **of_floats("erfc", torch.erfc), **of_floats("erfinv", torch.erfinv), **of_floats("lgamma", torch.lgamma),
    **of_floats("fabs", torch.abs), **of_floats("floor", torch.floor), **of_floats("ceil", torch.ceil),
    **of_floats("trunc", torch.trunc), **of_floats("rint", torch.round), **of_floats("nearbyint", torch.round),
    **of_floats("round", lambda x: torch.where(x.abs() % 1 == 0.5, x.trunc() + x.sign(), x.round())),
    **of_floats("pow", power, 2), **of_floats("fmod", arithmetic.remainder, 2), **of_floats("atan2", torch.atan2, 2),
    **of_floats("hypot", torch.hypot, 2), **of_floats("fmin", arithmetic.fmin, 2),
    **of_floats("fmax", arithmetic.fmax, 2),
    **of_floats("copysign", torch.copysign, 2), **of_floats("fma", arithmetic.fused, 3),
    **asked("isnan", torch.isnan), **asked("isinf", torch.isinf), **asked("signbit", torch.signbit),
    "__nv_finitef": External(("f32", "i32"), lambda x: x.isfinite().to(torch.int32)),
    "__nv_isfinited": External(("f64", "i32"), lambda x: x.isfinite().to(torch.int32)),
    "__nv_powif": External(("f32", "i32", "f32"), power), "__nv_powi": External(("f64", "i32", "f64"), power),
    "__nv_fast_expf": External(("f32", "f32"), arithmetic.steady(torch.exp)),
    "__nv_fast_logf": External(("f32", "f32"), arithmetic.steady(torch.log)),
    "__nv_fast_log2f": External(("f32", "f32"), arithmetic.steady(torch.log2)),
    "__nv_fast_sinf": External(("f32", "f32"), arithmetic.steady(torch.sin)),
    "__nv_fast_cosf": External(("f32", "f32"), arithmetic.steady(torch.cos)),
    "__nv_fast_powf": External(("f32", "f32", "f32"), power),
    "__nv_popc": External(("i32", "i32"), count_bits), "__nv_brev": External(("i32", "i32"), turned_bits),
    "__nv_clz": External(("i32", "i32"), leading_zeros),
    "__nv_float2int_rn": External(("f32", "i32"), lambda x: arithmetic.whole_number(x.round(), torch.int32)),
    "__nv_float2int_rz": External(("f32", "i32"), lambda x: arithmetic.whole_number(x, torch.int32)),
    "__nv_fdividef": External(("f32", "f32", "f32"), torch.div),
    "__nv_fast_fdividef": External(("f32", "f32", "f32"), torch.div),
}  # fmt: skip
