"""In the runner, interpreted: int32 arithmetic that passes 2^31 and is then used as a position or an offset.

Wrapping by itself is legal, and random numbers live on it. What counts is a wrapped value that is compared by size or
added to a pointer: it has lost its meaning. Remainders, bitwise operations and unsigned types end the search.
"""

import numpy as np
import triton.language as tl
from mending import Patches
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

WRAPS = {
    "create_add": lambda a, b, made: ((a ^ made) & (b ^ made)) < 0,
    "create_sub": lambda a, b, made: ((a ^ b) & (a ^ made)) < 0,
    "create_mul": lambda a, b, made: a.astype(np.int64) * b != made,
    "create_shl": lambda a, b, made: (made >> b) != a,
}
HANDED_ON = (
    "create_add", "create_sub", "create_mul", "create_idiv", "create_int_cast", "create_splat", "create_broadcast",
    "create_expand_dims", "create_reshape", "create_trans", "create_select",
)  # fmt: skip
USES = (
    "create_addptr", "create_minsi", "create_maxsi", "create_icmpSLT", "create_icmpSLE", "create_icmpSGT",
    "create_icmpSGE",
)  # fmt: skip
SIGNED = (tl.int32, tl.int64)
INT32 = np.dtype(np.int32)


class Overflows:
    """While open, tells `report(line, lanes)` of every operation whose wrapped result is used; line() says where."""

    def __init__(self, line, report):
        self.line, self.report, self.patches, self.following = line, report, Patches(), False

    def __enter__(self):
        for name, wraps in WRAPS.items():
            self.put(name, self.noticing, wraps)
        return self

    def __exit__(self, *exc):
        self.patches.undo()
        self.following = False

    def put(self, name, wrapper, *rest):
        self.patches.replace(InterpreterBuilder, name, lambda old: wrapper(old, *rest))

    def noticing(self, operation, wraps):
        def computed(builder, a, b):
            made = operation(builder, a, b)
            if made.data.dtype == INT32 and made.dtype.scalar == tl.int32:
                lanes = int(np.count_nonzero(wraps(a.data, b.data, made.data)))
                if lanes:
                    self.follow()
                    made.set_attr("wrapped", [self.line(), lanes])
            return made

        return computed

    def follow(self):
        """From the first wrapped value on: see where it goes."""
        if not self.following:
            self.following = True
            for name in HANDED_ON:
                self.put(name, self.handing_on)
            for name in USES:
                self.put(name, self.using)

    def handing_on(self, operation):
        def computed(builder, *operands, **named):
            made = operation(builder, *operands, **named)
            for operand in operands:
                if isinstance(operand, TensorHandle) and "wrapped" in operand.attr and made.dtype.scalar in SIGNED:
                    made.attr["wrapped"] = operand.attr["wrapped"]
            return made

        return computed

    def using(self, operation):
        def computed(builder, a, b):
            for operand in (a, b):
                told = operand.attr.pop("wrapped", None)
                if told and told[1]:
                    self.report(*told)
                    told[1] = 0  # shared by all that came of it: said once
            return operation(builder, a, b)

        return computed
