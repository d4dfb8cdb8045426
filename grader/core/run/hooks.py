"""In the runner, interpreted: where a trace takes hold of Triton's interpreter while it is open.

Each hook is (owner, name, make): make(what stands there) is put in its place, as patches.replace does it.
"""

import numpy as np
import torch
import triton.language as tl
import triton.runtime.interpreter as interpreter
from triton.runtime.interpreter import TensorHandle

from grader.core.interpret.patches import Patches
from grader.core.run.costs import MULTIPLYING
from grader.core.run.promises import PROMISES
from grader.core.run.visits import CARRY, carry_origins

BUILDER = interpreter.InterpreterBuilder


def end(handle):
    """A block goes with the last name for it: whoever counted it hears of that."""
    if counted := handle.__dict__.get("counted"):
        costs, size = counted
        costs.alive -= size


TensorHandle.__del__ = end
HIDES = -1e4  # a term that is added to scores and has this or less is a mask


def hooks(trace):
    """All of them, for one Trace."""
    return [
        (interpreter, "_interpreter", lambda old: trace),
        *around_launches(trace),
        *around_loads(trace),
        *around_blocks(trace),
        *around_promises(trace),
        *around_arithmetic(trace),
    ]


def around_launches(trace):
    """A launch and a program begin; tensors get their virtual addresses."""

    def convert(old):
        def traced(argument):
            made = old(argument)
            tensor = interpreter._unwrap_tensor(argument)
            if isinstance(tensor, torch.Tensor):
                made.handle.data = np.array([trace.virtual_address(tensor)], np.uint64)
            return made

        return traced

    def call(old):
        def traced(executor, *args, **kwargs):
            trace.begin_launch(executor.fn, args, kwargs)
            try:
                return old(executor, *args, **kwargs)
            finally:
                trace.end_launch()

        return traced

    def set_grid_idx(old):
        def traced(builder, x, y, z):
            trace.begin_program(x, y, z)
            return old(builder, x, y, z)

        return traced

    yield interpreter, "_implicit_cvt", convert
    yield interpreter.GridExecutor, "__call__", call
    yield BUILDER, "set_grid_idx", set_grid_idx


def around_loads(trace):
    """What a load returns knows its origin; lanes that nobody defined are NaN."""

    def masked_load(old):
        def traced(builder, pointers, mask, other, *rest, **named):
            if other is None and not np.asarray(mask.data).all():
                other = trace.undefined_lanes(pointers, mask)
            trace.origin = None
            made = old(builder, pointers, mask, other, *rest, **named)
            made.origin = trace.origin
            return made

        return traced

    yield BUILDER, "create_masked_load", masked_load


def around_promises(trace):
    """Hints to the compiler are held against the values; a barrier is noted."""

    def set_attr(old):
        def traced(handle, name, value):
            if name in PROMISES:
                trace.promise(PROMISES[name], handle, value)
            return old(handle, name, value)

        return traced

    def barrier(old):
        def traced(builder, *args):
            trace.barrier()
            return old(builder, *args)

        return traced

    yield TensorHandle, "set_attr", set_attr
    yield BUILDER, "create_barrier", barrier


def around_blocks(trace):
    """Every block is counted from its making to the end of its last name, and what is multiplied by what makes it."""
    costs = trace.costs

    def begun(old):
        def made(handle):
            handle.counted = costs, (size := handle.data.size)
            costs.computed += size
            costs.alive += size
            if costs.alive > costs.most:
                costs.most = costs.alive

        return made

    def multiplying(name):
        def make(old):
            def traced(builder, *operands):
                made = old(builder, *operands)
                costs.multiply(name, made.data)
                return made

            return traced

        return make

    yield TensorHandle, "__post_init__", begun
    for name in MULTIPLYING:
        if hasattr(BUILDER, name):
            yield BUILDER, name, multiplying(name)


def around_arithmetic(trace):
    """Dots are counted; origins are carried to where tiles meet."""

    def dot(old):
        def traced(builder, a, b, *rest, **named):
            trace.costs.dot(a.data, b.data)
            scores = trace.note_product(getattr(a, "origin", None), getattr(b, "origin", None))
            made = old(builder, a, b, *rest, **named)
            if scores is not None:
                made.origin = scores
            return made

        return traced

    def select(old):
        def traced(builder, condition, *blocks):
            trace.visits.note_mask(trace.kernel, condition, blocks)
            return old(builder, condition, *blocks)

        return traced

    def add(old):
        def traced(builder, a, b):
            for term, block in ((a, b), (b, a)):
                if getattr(block, "origin", None) and term.data.size and term.data.min() <= HIDES:
                    trace.visits.note_mask(trace.kernel, term, (block,))
            return old(builder, a, b)

        return traced

    yield BUILDER, "create_select", select
    yield BUILDER, "create_fadd", add
    yield BUILDER, "create_dot", dot
    for name in CARRY:
        yield BUILDER, name, lambda old: carry_origins(old, trace.note_product)


# int32 overflow -------------------------------------------------------------------------------------------------------


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
COMPARES = ("create_icmpSLT", "create_icmpSLE", "create_icmpSGT", "create_icmpSGE")
USES = ("create_addptr", "create_minsi", "create_maxsi", *COMPARES)
SIGNED = (tl.int32, tl.int64)
INT32 = np.dtype(np.int32)


class Overflows:
    """While open, tells `report(line, lanes)` of every operation whose wrapped result is used; line() says where."""

    def __init__(self, line, report):
        self.line, self.report, self.patches, self.following = line, report, Patches(), False

    def __enter__(self):
        for name, wraps in WRAPS.items():
            self.put(name, self.noticing, wraps, name == "create_shl")
        return self

    def __exit__(self, *exc):
        self.patches.undo()
        self.following = False

    def put(self, name, wrapper, *rest):
        self.patches.replace(BUILDER, name, lambda old: wrapper(old, *rest))

    def noticing(self, operation, wraps, shifts):
        def computed(builder, a, b):
            made = operation(builder, a, b)
            if made.data.dtype == INT32 and made.dtype.scalar == tl.int32:
                lanes = int(np.count_nonzero(wraps(a.data, b.data, made.data)))
                if lanes:
                    self.follow()
                    made.set_attr("wrapped", [self.line(), lanes])
                    made.set_attr("shifted", shifts)
            return made

        return computed

    def follow(self):
        """From the first wrapped value on: see where it goes."""
        if not self.following:
            self.following = True
            for name in HANDED_ON:
                self.put(name, self.handing_on)
            for name in USES:
                self.put(name, self.using, name in COMPARES)

    def handing_on(self, operation):
        def computed(builder, *operands, **named):
            made = operation(builder, *operands, **named)
            for operand in operands:
                if isinstance(operand, TensorHandle) and "wrapped" in operand.attr and made.dtype.scalar in SIGNED:
                    made.attr["wrapped"] = operand.attr["wrapped"]
            return made

        return computed

    def using(self, operation, compares):
        def computed(builder, a, b):
            for operand in (a, b):
                if compares and operand.attr.get("shifted"):  # a bit that was shifted to the sign is asked for
                    continue
                wrapped = operand.attr.pop("wrapped", None)
                if wrapped and wrapped[1]:
                    self.report(*wrapped)
                    wrapped[1] = 0  # shared by all that came of it: said once
            return operation(builder, a, b)

        return computed
