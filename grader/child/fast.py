"""Inside the child, interpreted: Triton's interpreter made faster, with the same bits.

Most of its time goes not into numpy but into the Python around it: the language is patched anew at every call of a
function, each int32 operation is done twice, types are built again and again. None of that is part of a result.
"""

import dataclasses
import types

import numpy as np
import triton.language as tl
import triton.runtime.interpreter as interpreter
from mending import replace


def enable():
    replace(interpreter.interpreter_builder, "options", without_overflow_checks)
    replace(interpreter, "_patch_lang", patch_the_language_once)
    replace(interpreter, "_patch_attr", call_directly)
    replace(interpreter.InterpretedFunction, "__call__", call_without_patching)
    replace(interpreter, "_get_np_dtype", remember_dtypes)
    replace(tl.block_type, "__init__", remember_blocks)
    replace(tl.tensor, "__init__", remember_shapes)
    replace(interpreter.ReduceOps, "min_max", reduce_directly)


# Calls ---------------------------------------------------------------------------------------------------------------


def without_overflow_checks(options):
    """Each int32 operation is done again in int64, for an assertion that only debug=True would raise."""
    return dataclasses.replace(options, sanitize_overflow=False)


def patch_the_language_once(patch):
    """All of the language for the length of a launch, found once: the rest is to put it in place and take it out."""
    everything = types.SimpleNamespace(__globals__={"tl": tl, "core": tl.core})
    patches = []

    def patched(function):
        if not patches:
            scope = patch(everything)
            patches.extend((owner, name, getattr(owner, name)) for owner, name, _ in scope._changes)
            return scope
        scope = interpreter._LangPatchScope()
        for owner, name, new in patches:
            scope.set_attr(owner, name, new)
        return scope

    return patched


def call_directly(patch_attr):
    """A builtin of the language gets its `_semantic` without being asked twice whether it has one."""
    semantic = interpreter.interpreter_semantic
    asks = tl.core.builtin(lambda: None).__code__  # of the wrapper that tl.core.builtin puts around a function

    def patched(owner, name, member, builder, scope):
        function = member.__wrapped__ if getattr(member, "__code__", None) is asks else member

        def called(*args, **kwargs):
            kwargs["_semantic"] = semantic
            return function(*args, **kwargs)

        scope.set_attr(owner, name, called)

    return patched


def call_without_patching(call):
    """A function called by a kernel finds the language patched, by its launch."""

    def called(function, *args, **kwargs):
        try:
            return function.rewrite()(*args, **kwargs)
        except Exception as error:
            raise interpreter.InterpreterError(repr(error)) from error

    return called


# Types: the same few, thousands of times -----------------------------------------------------------------------------


def remember_dtypes(get_np_dtype):
    known = {}

    def remembered(dtype):
        name = dtype.scalar.name
        if name not in known:
            known[name] = get_np_dtype(dtype.scalar)
        return known[name]

    return remembered


def remember_blocks(init):
    """A block type is its element type and its shape: what follows from them is worked out once."""
    known = {}  # the element type is kept with the entry, so that its id stays its own

    def remembered(block, element_ty, shape):
        key = id(element_ty), *(shape.values if type(shape) is tl.tuple else shape)
        if key not in known:
            init(block, element_ty, shape)
            block._of_tensors = {}  # one for all that are equal: remember_shapes fills it
            known[key] = element_ty, dict(block.__dict__)
        else:
            block.__dict__.update(known[key][1])

    return remembered


def remember_shapes(init):
    """A tensor's shape and number of elements follow from its type."""

    def remembered(tensor, handle, type):
        known = type.__dict__.get("_of_tensors")
        if not known:
            init(tensor, handle, type)
            known = type.__dict__.setdefault("_of_tensors", {})
            known.update({name: tensor.__dict__[name] for name in ("shape", "numel", "dtype")})
        else:
            tensor.__dict__.update(known, handle=handle, type=type)

    return remembered


# Reductions ----------------------------------------------------------------------------------------------------------

DIRECTLY = {np.nanmax: np.fmax.reduce, np.nanmin: np.fmin.reduce, np.max: np.maximum.reduce, np.min: np.minimum.reduce}


def reduce_directly(min_max):
    """The ufunc itself in the place of the function around it, which asks for NaN once more."""

    def reduced(operation, values, val_reduce_op, idx_reduce_op=None):
        return min_max(operation, values, DIRECTLY.get(val_reduce_op, val_reduce_op), idx_reduce_op)

    return reduced
