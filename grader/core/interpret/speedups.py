"""In the runner, interpreted: Triton's interpreter made faster, with the same bits.

Most of its time goes not into numpy but into the Python around it: the language is patched anew at every call of a
function, each int32 operation is done twice, types are built again and again. None of that is part of a result.
"""

import dataclasses
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import triton.language as tl
import triton.runtime.interpreter as interpreter
from triton.language.semantic import TritonSemantic
from triton.runtime.interpreter import TensorHandle

from grader.core.interpret.blocks import DoesNotCompile
from grader.core.interpret.patches import replace


def enable() -> None:
    replace(interpreter.interpreter_builder, "options", without_overflow_checks)
    replace(interpreter, "_patch_lang", patch_the_language_once)
    replace(interpreter, "_patch_attr", call_directly)
    replace(interpreter.InterpretedFunction, "__call__", call_without_patching)
    replace(interpreter, "_get_np_dtype", remember_dtypes)
    replace(tl.block_type, "__init__", remember_blocks)
    replace(tl.tensor, "__init__", remember_shapes)
    replace(tl.block_type, "to_ir", remember_interpreted)
    replace(tl.dtype, "__eq__", compare_itself_first)
    replace(tl.core, "_unwrap_if_constexpr", unwrap_by_type)
    replace(TritonSemantic, "broadcast_impl_value", broadcast_by_plan)
    replace(TritonSemantic, "computation_type_impl", remember_promotions)
    replace(TritonSemantic, "binary_op_type_checking_impl", leave_equal_types)
    builder = interpreter.InterpreterBuilder
    replace(builder, "create_splat", lambda old: splat_by_strides)
    replace(builder, "create_broadcast", broadcast_by_strides)
    replace(builder, "create_expand_dims", lambda old: insert_dim)
    replace(interpreter.ReduceOps, "min_max", reduce_directly)
    replace(interpreter.ReduceOps, "generic_reduce", reduce_by_slices)
    replace(interpreter.ScanOps, "generic_scan", scan_by_slices)


# Calls ---------------------------------------------------------------------------------------------------------------


def without_overflow_checks(options: Any) -> Any:
    """Each int32 operation is done again in int64, for an assertion that only debug=True would raise."""
    return dataclasses.replace(options, sanitize_overflow=False)


def patch_the_language_once(patch: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """All of the language for the length of a launch, found once: the rest is to put it in place and take it out."""
    everything = types.SimpleNamespace(__globals__={"tl": tl, "core": tl.core})
    patches: list[tuple[Any, str, Any]] = []

    def patched(function: Any) -> Any:
        if not patches:
            scope = patch(everything)
            patches.extend((owner, name, getattr(owner, name)) for owner, name, _ in scope._changes)
            return scope
        scope = interpreter._LangPatchScope()
        for owner, name, new in patches:
            scope.set_attr(owner, name, new)
        return scope

    return patched


def call_directly(patch_attr: Callable[..., Any]) -> Callable[..., None]:
    """A builtin of the language gets its `_semantic` without being asked twice whether it has one."""
    semantic = interpreter.interpreter_semantic
    asks = tl.core.builtin(lambda: None).__code__  # of the wrapper that tl.core.builtin puts around a function

    def patched(owner: Any, name: str, member: Any, builder: Any, scope: Any) -> None:
        function = member.__wrapped__ if getattr(member, "__code__", None) is asks else member

        def called(*args: Any, **kwargs: Any) -> Any:
            kwargs["_semantic"] = semantic
            return function(*args, **kwargs)

        scope.set_attr(owner, name, called)

    return patched


def call_without_patching(call: Callable[..., Any]) -> Callable[..., Any]:
    """A function called by a kernel finds the language patched, by its launch."""

    def called(function: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return function.rewrite()(*args, **kwargs)
        except Exception as error:
            raise interpreter.InterpreterError(repr(error)) from error

    return called


# Types: the same few, thousands of times -----------------------------------------------------------------------------


def remember_dtypes(get_np_dtype: Callable[[tl.dtype], np.dtype]) -> Callable[[tl.dtype], np.dtype]:
    known: dict[str, np.dtype] = {}

    def remembered(dtype: tl.dtype) -> np.dtype:
        name = dtype.scalar.name
        if name not in known:
            known[name] = get_np_dtype(dtype.scalar)
        return known[name]

    return remembered


def remember_blocks(init: Callable[..., None]) -> Callable[..., None]:
    """A block type is its element type and its shape: what follows from them is worked out once."""
    known: dict[tuple, tuple[Any, dict]] = {}  # the element type is kept with the entry, so that its id stays its own

    def remembered(block: Any, element_ty: tl.dtype, shape: Any) -> None:
        key = id(element_ty), *(shape.values if type(shape) is tl.tuple else shape)
        if key not in known:
            init(block, element_ty, shape)
            block._of_tensors = {}  # one for all that are equal: remember_shapes fills it
            block._plain = tuple(map(int, key[1:]))
            block._interpreted = []
            known[key] = element_ty, dict(block.__dict__)
        else:
            block.__dict__.update(known[key][1])

    return remembered


def remember_shapes(init: Callable[..., None]) -> Callable[..., None]:
    """A tensor's shape and number of elements follow from its type."""

    def remembered(tensor: tl.tensor, handle: TensorHandle, type: tl.dtype) -> None:
        known = type.__dict__.get("_of_tensors")
        if not known:
            init(tensor, handle, type)
            known = type.__dict__.setdefault("_of_tensors", {})
            known.update({name: tensor.__dict__[name] for name in ("shape", "numel", "dtype")})
        else:
            tensor.__dict__.update(known, handle=handle, type=type)

    return remembered


def remember_interpreted(to_ir: Callable[..., Any]) -> Callable[..., Any]:
    """What the interpreter takes for a block type is a block type too, and always the same."""

    def remembered(block: Any, builder: Any) -> Any:
        kept = block.__dict__.get("_interpreted")
        if kept is None:
            return to_ir(block, builder)
        if not kept:
            kept.append(to_ir(block, builder))
        return kept[0]

    return remembered


def compare_itself_first(equal: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    return lambda dtype, other: dtype is other or equal(dtype, other)


def unwrap_by_type(unwrap: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Most of what is asked whether it is a constexpr is one, a tensor or a number."""
    whole = {tl.tensor, tl.dtype, tl.block_type, tl.pointer_type, int, float, bool, str, type(None)}

    def unwrapped(value: Any) -> Any:
        kind = type(value)
        if kind is tl.constexpr:
            return value.value
        return value if kind in whole else unwrap(value)

    return unwrapped


# Operands: most need no conversion, or one that was planned before ----------------------------------------------------


def broadcast_by_plan(broadcast: Callable[..., Any]) -> Callable[..., Any]:
    """Two operands brought to one shape: nothing where it is one, a splat beside a scalar, else numpy's rule."""
    shapes: dict[tuple[tuple[int, ...], tuple[int, ...]], tuple[int, ...] | None] = {}

    def shape_of_both(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
        if len(a) == len(b) and all(m == n or 1 in (m, n) for m, n in zip(a, b, strict=True)):
            return tuple(max(pair) for pair in zip(a, b, strict=True))
        return None  # Triton's own words, or its own rule for shapes of other lengths

    def broadcasted(semantic: Any, lhs: tl.tensor, rhs: tl.tensor) -> Any:
        a, b = lhs.type.__dict__.get("_plain"), rhs.type.__dict__.get("_plain")
        if a == b:
            return lhs, rhs
        if a is None:
            return splat(semantic, lhs, rhs.type), rhs
        if b is None:
            return lhs, splat(semantic, rhs, lhs.type)
        if (a, b) not in shapes:
            shapes[a, b] = shape_of_both(a, b)
        if (shape := shapes[a, b]) is None:
            return broadcast(semantic, lhs, rhs)
        return stretched(semantic, lhs, a, shape), stretched(semantic, rhs, b, shape)

    return broadcasted


def splat(semantic: Any, scalar: tl.tensor, block: tl.block_type) -> tl.tensor:
    kind = block.with_element_ty(scalar.type.scalar)
    return semantic.tensor(semantic.builder.create_splat(kind.to_ir(semantic.builder), scalar.handle), kind)


def stretched(semantic: Any, tensor: tl.tensor, old: tuple[int, ...], new: tuple[int, ...]) -> tl.tensor:
    if old == new:
        return tensor
    kind = tl.block_type(tensor.type.scalar, list(new))
    return semantic.tensor(semantic.builder.create_broadcast(tensor.handle, list(new)), kind)


def remember_promotions(promote: Callable[..., tl.dtype]) -> Callable[..., tl.dtype]:
    """The type that two types compute in follows from their names."""
    known: dict[tuple, tl.dtype] = {}

    def remembered(
        semantic: Any, a: tl.dtype, a_is_scalar: bool, b: tl.dtype, b_is_scalar: bool, div_or_mod: bool
    ) -> tl.dtype:
        key = a.name, a_is_scalar, b.name, b_is_scalar, div_or_mod
        if key not in known:
            known[key] = promote(semantic, a, a_is_scalar, b, b_is_scalar, div_or_mod)
        return known[key]

    return remembered


def leave_equal_types(check: Callable[..., Any]) -> Callable[..., Any]:
    """Two tensors of one type that computes in itself, a tensor and a number, a pointer and its offset.

    One shape is all that they need.
    """

    def computes_in_itself(semantic: Any, kind: tl.dtype, div_or_mod: bool) -> bool:
        return semantic.computation_type_impl(kind, False, kind, False, div_or_mod) == kind

    def takes(kind: tl.dtype, number: Any, div_or_mod: bool) -> bool:
        """True where a number of Python's has this type beside a tensor of it."""
        whole = type(number) is int and -(2**31) <= number < 2**31
        if kind is tl.float32 or (kind is tl.float16 and not div_or_mod):
            return whole or type(number) is float
        return whole and kind in (tl.int32, tl.int64)

    def checked(
        semantic: Any, lhs: Any, rhs: Any, allow_lhs_ptr: bool = False, allow_rhs_ptr: bool = False,
        arithmetic_check: bool = True, div_or_mod: bool = False,
    ) -> Any:  # fmt: skip
        one = lhs.type.scalar if type(lhs) is tl.tensor else None
        other = rhs.type.scalar if type(rhs) is tl.tensor else None
        if one is not None and one is other:
            if not one.is_ptr() and (not arithmetic_check or computes_in_itself(semantic, one, div_or_mod)):
                return semantic.broadcast_impl_value(lhs, rhs)
        elif one is not None and other is not None:
            if allow_lhs_ptr and one.is_ptr() and other.is_int():
                return semantic.broadcast_impl_value(lhs, rhs)
        elif arithmetic_check and one is not None and takes(one, rhs, div_or_mod):
            return semantic.broadcast_impl_value(lhs, semantic.scalar_constant(rhs, one))
        elif arithmetic_check and other is not None and takes(other, lhs, div_or_mod):
            return semantic.broadcast_impl_value(semantic.scalar_constant(lhs, other), rhs)
        return check(semantic, lhs, rhs, allow_lhs_ptr, allow_rhs_ptr, arithmetic_check, div_or_mod)

    return checked


# Shapes: numpy's own functions for them ask many questions first ------------------------------------------------------


def splat_by_strides(builder: Any, kind: tl.block_type, scalar: TensorHandle) -> TensorHandle:
    dtype = interpreter._get_np_dtype(scalar.dtype)
    one = np.ascontiguousarray(scalar.data, dtype)
    return TensorHandle(np.ndarray(kind.shape, dtype, one, 0, (0,) * len(kind.shape)), scalar.dtype.scalar)


def broadcast_by_strides(create_broadcast: Callable[..., TensorHandle]) -> Callable[..., TensorHandle]:
    def broadcasted(builder: Any, block: TensorHandle, shape: list[int]) -> TensorHandle:
        data = block.data
        if data.ndim != len(shape) or not data.flags.c_contiguous:
            return create_broadcast(builder, block, shape)
        strides = [0 if n == 1 else stride for n, stride in zip(data.shape, data.strides, strict=True)]
        return TensorHandle(np.ndarray(shape, data.dtype, data, 0, strides), block.dtype.scalar)

    return broadcasted


def insert_dim(builder: Any, block: TensorHandle, axis: int) -> TensorHandle:
    return TensorHandle(block.data[(slice(None),) * axis + (None,)], block.dtype.scalar)


# Reductions ----------------------------------------------------------------------------------------------------------

DIRECTLY = {np.nanmax: np.fmax.reduce, np.nanmin: np.fmin.reduce, np.max: np.maximum.reduce, np.min: np.minimum.reduce}


def reduce_directly(min_max: Callable[..., Any]) -> Callable[..., Any]:
    """The ufunc itself in the place of the function around it, which asks for NaN once more."""

    def reduced(operation: Any, values: Any, val_reduce_op: Any, idx_reduce_op: Any = None) -> Any:
        return min_max(operation, values, DIRECTLY.get(val_reduce_op, val_reduce_op), idx_reduce_op)

    return reduced


def combined(operation: Any, values: Any, axis: int) -> Iterator[list[np.ndarray]]:
    """Yields the blocks that a combine function makes of the slices along an axis, one after the other."""
    data = [value.handle.data for value in values]
    before = None
    for i in range(data[0].shape[axis]):
        slices: Any = [operation.to_tensor(d.take(i, axis), value.dtype) for d, value in zip(data, values, strict=True)]
        if before is not None:
            slices = operation.combine_fn(*before, *slices)
            slices = slices if isinstance(slices, tuple | tl.tuple) else (slices,)
        shape = data[0].take(i, axis).shape
        arrays = [np.asarray(s.handle.data if isinstance(s, tl.tensor) else s).reshape(shape) for s in slices]
        known = zip(arrays, data, values, strict=True)
        before = [operation.to_tensor(a.astype(d.dtype), value.dtype) for a, d, value in known]
        yield [block.handle.data.reshape(shape) for block in before]


def reduce_by_slices(one_by_one: Callable[..., Any]) -> Callable[..., Any]:
    """The interpreter calls a combine function for each element; here it is called for each slice."""

    def reduced(operation: Any, values: Any) -> Any:
        values, axis = operation.unravel(values, operation.axis)
        try:
            *_, last = combined(operation, values, axis)
        except DoesNotCompile:
            raise
        except Exception:  # a combine function for single numbers alone
            return one_by_one(operation, values)
        if operation.keep_dims:
            every = tuple(range(values[0].handle.data.ndim)) if operation.axis is None else axis
            last = [np.expand_dims(data, every) for data in last]
        return [operation.to_tensor(data, value.dtype) for data, value in zip(last, values, strict=True)]

    return reduced


def scan_by_slices(one_by_one: Callable[..., Any]) -> Callable[..., Any]:
    """The same of tl.associative_scan."""

    def scanned(operation: Any, values: Any) -> Any:
        try:
            steps = list(combined(operation, values, operation.axis))
        except DoesNotCompile:
            raise
        except Exception:  # a combine function for single numbers alone
            return one_by_one(operation, values)
        blocks = (np.stack(parts, operation.axis) for parts in zip(*steps, strict=True))
        return [operation.to_tensor(data, value.dtype) for data, value in zip(blocks, values, strict=True)]

    return scanned
