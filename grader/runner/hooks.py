"""In the runner, interpreted: where a trace takes hold of Triton's interpreter while it is open.

Each hook is (owner, name, make): make(what stands there) is put in its place, as mending.replace does it.
"""

import numpy as np
import torch
import triton.runtime.interpreter as interpreter
from visits import CARRY, carrying

BUILDER = interpreter.InterpreterBuilder


def hooks(trace):
    """All of them, for one Trace."""
    return [
        (interpreter, "_interpreter", lambda old: trace),
        *around_launches(trace),
        *around_loads(trace),
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
                with trace.allocations.paused():  # the interpreter's own copies are not the submission's
                    return old(executor, *args, **kwargs)
            finally:
                trace.end_launch()

        return traced

    def set_grid_idx(old):
        def traced(builder, x, y, z):
            trace.begin_program()
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

    def masked_store(old):
        def traced(builder, pointers, value, *rest, **named):
            trace.storing = getattr(value, "origin", None), value.data.shape
            try:
                return old(builder, pointers, value, *rest, **named)
            finally:
                trace.storing = None

        return traced

    yield BUILDER, "create_masked_load", masked_load
    yield BUILDER, "create_masked_store", masked_store


def around_arithmetic(trace):
    """Dots and exponentials are counted; origins are carried to where tiles meet."""

    def dot(old):
        def traced(builder, a, b, *rest, **named):
            trace.traffic.dot(a.data.shape, b.data.shape)
            scores = trace.meet(getattr(a, "origin", None), getattr(b, "origin", None))
            made = old(builder, a, b, *rest, **named)
            if scores is not None:
                made.origin = scores
                trace.held.add(made)
            return made

        return traced

    def exponential(old):
        def traced(builder, argument):
            trace.traffic.exponentials(argument.data.size)
            return old(builder, argument)

        return traced

    yield BUILDER, "create_dot", dot
    yield BUILDER, "create_exp", exponential
    yield BUILDER, "create_exp2", exponential
    for name in CARRY:
        yield BUILDER, name, lambda old: carrying(old, trace.meet, trace.held.add)
