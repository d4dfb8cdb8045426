"""In the runner, interpreted: bfloat16 computed as on a GPU.

Triton's interpreter carries bfloat16 as uint16, the upper halves of float32, and computes with these integers. Here an
operation widens its operands, works in float32, and rounds once to the nearest even, as the hardware does. Three
rules that hold for every float come along with it: a maximum drops NaN unless told otherwise, tl.fma rounds once,
and a sum of 16-bit floats rounds at each step.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
import triton.runtime.interpreter as interpreter
from triton.runtime.interpreter import TensorHandle

from grader.core.interpret.patches import add, replace

NAN = np.uint16(0x7FC0)
BITS = np.dtype(np.uint16)


def widen(bits: np.ndarray) -> np.ndarray:
    """uint16 -> the float32 of the same value."""
    return (np.ascontiguousarray(bits).astype(np.uint32) << 16).view(np.float32)


def narrow(values: np.ndarray) -> np.ndarray:
    """float32 -> uint16, to the nearest, ties to even; NaN stays NaN."""
    values = np.ascontiguousarray(values, np.float32)
    bits = values.view(np.uint32)
    rounded = ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), NAN, rounded)


def is_bfloat16(handle: TensorHandle) -> bool:
    return handle.data.dtype == BITS and handle.dtype.scalar == tl.bfloat16


def wide(handle: TensorHandle) -> TensorHandle:
    return TensorHandle(widen(handle.data), tl.float32) if is_bfloat16(handle) else handle


def back(handle: TensorHandle) -> TensorHandle:
    """The result of an operation on widened operands as bfloat16; the result of a comparison stays as it is."""
    if handle.data.dtype != np.float32:
        return handle
    return TensorHandle(narrow(handle.data), tl.bfloat16)


def enable() -> None:
    builder = interpreter.InterpreterBuilder
    for name in ("binary_op", "unary_op", "ternary_op"):
        replace(builder, name, in_float32)
    replace(builder, "create_fma", fuse)
    replace(builder, "create_dot", dot)
    replace(builder, "create_maxnumf", lambda old: lambda self, a, b: self.binary_op(a, b, np.fmax))
    replace(builder, "create_minnumf", lambda old: lambda self, a, b: self.binary_op(a, b, np.fmin))
    replace(builder, "create_clampf", clamp)
    replace(builder, "cast_impl", cast)
    replace(builder, "create_fp_to_fp", cast_with_rounding)
    add(builder, "get_bf16", constant)  # triton 3.9 has one, the others none
    replace(interpreter.ReduceOps, "sum", sum_rounding_each_step)
    replace(interpreter.ReduceOps, "min_max", min_max_of_values)
    replace(interpreter.ScanOps, "cumsum", lambda old: scan(old, np.add))
    replace(interpreter.ScanOps, "cumprod", lambda old: scan(old, np.multiply))
    replace(interpreter, "_interpreter", Memory)
    replace(interpreter, "_patch_lang_tensor", show_values)
    replace(builder, "create_print", print_values)


# Operations ----------------------------------------------------------------------------------------------------------


def in_float32(operation: Callable[..., Any]) -> Callable[..., Any]:
    """The operation on widened operands, rounded once; the operands of one operation have one dtype."""

    def computed(builder: Any, *operands: Any) -> Any:
        # `where` is among these operations. Its first operand is a mask, and it only moves bits, so it stays as it is.
        if not is_bfloat16(operands[0]):
            return operation(builder, *operands)
        return back(operation(builder, *(wide(o) if isinstance(o, TensorHandle) else o for o in operands)))

    return computed


def fuse(create_fma: Callable[..., Any]) -> Callable[..., Any]:
    """x * y + z with one rounding, for all but float64: there the product of any two numbers is exact."""

    def fused(builder: Any, x: TensorHandle, y: TensorHandle, z: TensorHandle) -> TensorHandle:
        if z.data.dtype == np.float64:
            return create_fma(builder, x, y, z)
        total = wide(x).data.astype(np.float64) * wide(y).data + wide(z).data
        if is_bfloat16(z):
            return TensorHandle(narrow(total), tl.bfloat16)
        return TensorHandle(total.astype(z.data.dtype), z.dtype.scalar)

    return fused


def dot(create_dot: Callable[..., Any]) -> Callable[..., Any]:
    def computed(builder: Any, a: TensorHandle, b: TensorHandle, *rest: Any, **named: Any) -> Any:
        return create_dot(builder, wide(a), wide(b), *rest, **named)

    return computed


def clamp(create_clampf: Callable[..., Any]) -> Callable[..., Any]:
    def clamped(builder: Any, x: TensorHandle, low: TensorHandle, high: TensorHandle, propagate_nans: Any) -> Any:
        if propagate_nans == interpreter._ir.PROPAGATE_NAN.NONE:
            return builder.binary_op(builder.binary_op(x, low, np.fmax), high, np.fmin)
        return create_clampf(builder, x, low, high, propagate_nans)

    return clamped


# Casts ---------------------------------------------------------------------------------------------------------------


def constant(builder: Any, value: float) -> TensorHandle:
    return TensorHandle(narrow(np.array([value], np.float32)), tl.bfloat16)


def cast(cast_impl: Callable[..., Any]) -> Callable[..., Any]:
    def converted(builder: Any, source: TensorHandle, target: tl.dtype) -> TensorHandle:
        if is_bfloat16(source):
            return source if target.scalar == tl.bfloat16 else cast_impl(builder, wide(source), target)
        if target.scalar == tl.bfloat16:
            return TensorHandle(narrow(source.data.astype(np.float32)), tl.bfloat16)
        return cast_impl(builder, source, target)

    return converted


def cast_with_rounding(create_fp_to_fp: Callable[..., Any]) -> Callable[..., Any]:
    """A cast whose rounding the kernel names, towards zero or to the nearest. Casts to and from fp8 stay Triton's."""

    def converted(builder: Any, source: TensorHandle, target: tl.dtype, rounding: Any) -> TensorHandle:
        if target.scalar != tl.bfloat16 or source.dtype.scalar.primitive_bitwidth < 16:
            return create_fp_to_fp(builder, source, target, rounding)
        if rounding != interpreter._ir.ROUNDING_MODE.RTZ:
            return builder.cast_impl(source, target)
        values = np.ascontiguousarray(builder.cast_impl(source, tl.float32).data)
        bits = (values.view(np.uint32) >> 16).astype(np.uint16)
        return TensorHandle(np.where(np.isnan(values), NAN, bits), tl.bfloat16)

    return converted


# Reductions ----------------------------------------------------------------------------------------------------------


def sum_rounding_each_step(sum_in_numpy: Callable[..., Any]) -> Callable[..., Any]:
    """Sums of 16-bit floats in pairs of halves: a GPU rounds each partial sum, in an order of its own."""

    def summed(operation: Any, tensor: tl.tensor) -> Any:
        if tensor.dtype not in (tl.bfloat16, tl.float16):
            return sum_in_numpy(operation, tensor)
        bits, axis = tensor.handle.data, operation.axis
        values = bits.reshape(-1) if axis is None else np.moveaxis(bits, axis, 0)
        while len(values) > 1:
            first, second = np.split(values, 2)
            if tensor.dtype == tl.bfloat16:
                values = narrow(widen(first) + widen(second))
            else:
                values = first + second
        total = values[0]
        if operation.keep_dims:
            total = total.reshape((1,) * bits.ndim) if axis is None else np.expand_dims(total, axis)
        return operation.to_tensor(total, tensor.dtype)

    return summed


def min_max_of_values(min_max: Callable[..., Any]) -> Callable[..., Any]:
    def found(operation: Any, tensor: Any, val_reduce_op: Any, idx_reduce_op: Any = None) -> Any:
        tensor = tensor[0] if isinstance(tensor, tuple) else tensor
        if not is_bfloat16(tensor.handle):
            return min_max(operation, tensor, val_reduce_op, idx_reduce_op)
        tensor = tl.core.tensor(wide(tensor.handle), tensor.type.with_element_ty(tl.float32))
        made = min_max(operation, tensor, val_reduce_op, idx_reduce_op)
        if not val_reduce_op:
            return made
        value = made[0] if idx_reduce_op else made
        value = operation.to_tensor(narrow(value.handle.data), tl.bfloat16)
        return (value, made[1]) if idx_reduce_op else value

    return found


def scan(scan_in_numpy: Callable[..., Any], operation: np.ufunc) -> Callable[..., Any]:
    """Running sums and products, rounded at each step."""

    def scanned(scan: Any, tensor: tl.tensor) -> Any:
        if not is_bfloat16(tensor.handle):
            return scan_in_numpy(scan, tensor)
        steps = np.moveaxis(tensor.handle.data, scan.axis, 0).copy()
        for i in range(1, len(steps)):
            steps[i] = narrow(operation(widen(steps[i - 1]), widen(steps[i])))
        return [scan.to_tensor(np.moveaxis(steps, 0, scan.axis), tl.bfloat16)]

    return scanned


# Memory and printing -------------------------------------------------------------------------------------------------


class Memory:
    """The interpreter's C++ module, which has atomic additions for every float but bfloat16."""

    def __init__(self, module: Any) -> None:
        self.__dict__.update({name: getattr(module, name) for name in dir(module) if not name.startswith("__")})
        self.atomic_rmw, self.module = self.add_or_other, module

    def add_or_other(
        self, operation: Any, pointers: np.ndarray, values: np.ndarray, mask: np.ndarray, semantic: Any
    ) -> np.ndarray:
        if values.dtype != BITS or operation != self.module.RMW_OP.FADD:
            return self.module.atomic_rmw(operation, pointers, values, mask, semantic)
        before, one = np.zeros(values.shape, BITS), np.ones(1, bool)
        for lane in zip(*np.nonzero(np.asarray(mask)), strict=True):
            at = np.array([pointers[lane]])
            old = self.module.load(at, one, np.zeros(1, BITS), BITS)
            before[lane] = old[0]
            self.module.store(at, narrow(widen(old) + widen(values[lane])), one)
        return before


def show_values(patch_tensor: Callable[..., Any]) -> Callable[..., None]:
    """`print(x)` in a kernel shows numbers, not their bits."""

    def patched(tensor: Any, *scope: Any) -> None:
        patch_tensor(tensor, *scope)
        tensor.__repr__ = lambda self: repr(wide(self.handle).data)
        tensor.__str__ = lambda self: str(wide(self.handle).data)

    return patched


def print_values(create_print: Callable[..., Any]) -> Callable[..., Any]:
    def printed(builder: Any, prefix: str, hexadecimal: bool, values: list[TensorHandle], *rest: Any) -> Any:
        return create_print(builder, prefix, hexadecimal, [wide(value) for value in values], *rest)

    return printed
