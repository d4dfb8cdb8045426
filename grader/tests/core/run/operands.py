"""Run by test_fast in a process of its own: every operation on operands of every type and shape, made fast or not.

Prints one JSON line: {operation and operands: what came of it, as text}. Argument: "fast" or "plain".
"""

import itertools
import json
import os
import sys
from pathlib import Path

os.environ |= {"TRITON_INTERPRET": "1"}
sys.path.insert(0, str(Path(__file__).parents[4]))

import numpy as np
import triton.language as tl
from triton.runtime.interpreter import TensorHandle, _get_np_dtype, interpreter_semantic

from grader.core.interpret import semantics, speedups

np.seterr(all="ignore")
if sys.argv[1] == "plain":
    speedups.enable = lambda: None
semantics.enable()

TYPES = ("int1", "int8", "uint8", "int32", "uint32", "int64", "float16", "bfloat16", "float32", "float64")
SHAPES = ((), (4,), (8,), (4, 1), (1, 4), (4, 4), (2, 4), (1,), (2, 1, 4))
OPERATIONS = {
    "add": lambda s, a, b: s.add(a, b, False), "sub": lambda s, a, b: s.sub(a, b, False),
    "mul": lambda s, a, b: s.mul(a, b, False), "truediv": lambda s, a, b: s.truediv(a, b),
    "floordiv": lambda s, a, b: s.floordiv(a, b), "mod": lambda s, a, b: s.mod(a, b),
    "and": lambda s, a, b: s.and_(a, b), "less": lambda s, a, b: s.less_than(a, b),
    "equal": lambda s, a, b: s.equal(a, b),
    "where": lambda s, a, b: s.where(s.less_than(a, b), a, b),
}  # fmt: skip


def operands():
    for name, shape in itertools.product(TYPES, SHAPES):
        if shape in ((), (4,)) or name in ("int32", "float32"):  # shapes and types follow rules of their own
            yield f"{name}{list(shape)}", (name, shape)
    pointer = tl.pointer_type(tl.float32)
    yield "pointer[]", (pointer, ())
    yield "pointer[4]", (pointer, (4,))
    yield from ((repr(number), number) for number in (3, -1, 2.5, 2**40, True))


def made(what):
    """A tensor of these, its numbers small and different; or the number itself."""
    if not isinstance(what, tuple):
        return what
    kind = what[0] if isinstance(what[0], tl.dtype) else getattr(tl, what[0])
    shape = what[1]
    data = (np.arange(1, 1 + int(np.prod(shape or (1,)))) % 7).reshape(shape or (1,)).astype(_get_np_dtype(kind))
    return tl.tensor(TensorHandle(data, kind), tl.block_type(kind, list(shape)) if shape else kind)


def described(result):
    data = result.handle.data
    return f"{result.type} {[int(n) for n in np.ravel(data).view(np.uint8)]}"


def outcome(operation, a, b):
    try:
        return described(operation(interpreter_semantic, made(a), made(b)))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


found = {
    f"{name} {a} {b}": outcome(operation, left, right)
    for name, operation in OPERATIONS.items()
    for (a, left), (b, right) in itertools.product(operands(), operands())
    if isinstance(left, tuple) or isinstance(right, tuple)
}
print(json.dumps(found))
