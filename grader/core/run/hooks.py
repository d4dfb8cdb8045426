"""In the runner, interpreted: where a trace and its observers take hold of Triton's interpreter.

Each hook is (owner, name, make): `patches.replace` calls make(old) and installs what it returns.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
import triton.language as tl
import triton.runtime.interpreter as interpreter
from triton.runtime.interpreter import TensorHandle

from grader.core.interpret.patches import Patches
from grader.core.run.observe import Observer, Patch
from grader.core.run.promises import PROMISES

BUILDER = interpreter.InterpreterBuilder


def list_hooks(trace: Any) -> list[Patch]:
    """All of them, for one Trace."""
    return [
        (interpreter, "_interpreter", lambda old: trace), *around_launches(trace), *around_loads(trace),
        *around_promises(trace), *after_operations(trace.observers),
        *(patch for observer in trace.observers for patch in observer.patches()),
    ]  # fmt: skip


def around_launches(trace: Any) -> Iterator[Patch]:
    """A launch and a program begin; tensors get their virtual addresses."""

    def convert(old: Callable[..., Any]) -> Callable[..., Any]:
        def traced(argument: Any) -> Any:
            made = old(argument)
            tensor = interpreter._unwrap_tensor(argument)
            if isinstance(tensor, torch.Tensor):
                made.handle.data = np.array([trace.virtual_address(tensor)], np.uint64)
            return made

        return traced

    def call(old: Callable[..., Any]) -> Callable[..., Any]:
        def traced(executor: Any, *args: Any, **kwargs: Any) -> Any:
            trace.begin_launch(executor.fn, args, kwargs)
            try:
                return old(executor, *args, **kwargs)
            finally:
                trace.end_launch()

        return traced

    def set_grid_idx(old: Callable[..., Any]) -> Callable[..., Any]:
        def traced(builder: Any, x: int, y: int, z: int) -> Any:
            trace.begin_program((x, y, z))
            return old(builder, x, y, z)

        return traced

    yield interpreter, "_implicit_cvt", convert
    yield interpreter.GridExecutor, "__call__", call
    yield BUILDER, "set_grid_idx", set_grid_idx


def around_loads(trace: Any) -> Iterator[Patch]:
    """Lanes of a load that nobody defined are NaN; observers hear of the block that was made."""

    def masked_load(old: Callable[..., Any]) -> Callable[..., Any]:
        def traced(builder: Any, pointers: Any, mask: Any, other: Any, *rest: Any, **named: Any) -> Any:
            if other is None and not np.asarray(mask.data).all():
                other = trace.undefined_lanes(pointers, mask)
            made = old(builder, pointers, mask, other, *rest, **named)
            for observer in trace.observers:
                observer.loaded(made)
            return made

        return traced

    yield BUILDER, "create_masked_load", masked_load


def around_promises(trace: Any) -> Iterator[Patch]:
    """Hints to the compiler are held against the values; a barrier is noted."""

    def set_attr(old: Callable[..., Any]) -> Callable[..., Any]:
        def traced(handle: TensorHandle, name: str, value: Any) -> Any:
            if name in PROMISES:
                trace.promise(PROMISES[name], handle, value)
            return old(handle, name, value)

        return traced

    def barrier(old: Callable[..., Any]) -> Callable[..., Any]:
        def traced(builder: Any, *args: Any) -> Any:
            trace.barrier()
            return old(builder, *args)

        return traced

    yield TensorHandle, "set_attr", set_attr
    yield BUILDER, "create_barrier", barrier


def after_operations(observers: Sequence[Observer]) -> Iterator[Patch]:
    """Each operation that observers name is followed by their `after`."""

    def following(name: str, callbacks: list[Callable[..., None]]) -> Callable[..., Any]:
        def make(old: Callable[..., Any]) -> Callable[..., Any]:
            def traced(builder: Any, *operands: Any, **named: Any) -> Any:
                made = old(builder, *operands, **named)
                for after in callbacks:
                    after(name, operands, made)
                return made

            return traced

        return make

    callbacks: dict[str, list[Callable[..., None]]] = defaultdict(list)
    for observer in observers:
        for name in observer.operations:
            callbacks[name].append(observer.after)
    for name, after in callbacks.items():
        if hasattr(BUILDER, name):  # not every version of Triton has all of them
            yield BUILDER, name, following(name, after)


# int32 overflow -------------------------------------------------------------------------------------------------------


WRAPS: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]] = {
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

    def __init__(self, line: Callable[[], int], report: Callable[[int, int], None]) -> None:
        self.line, self.report, self.patches, self.following = line, report, Patches(), False

    def __enter__(self) -> "Overflows":
        for name, wraps in WRAPS.items():
            self.put(name, self.noticing, wraps, name == "create_shl")
        return self

    def __exit__(self, *exc: object) -> None:
        self.patches.undo()
        self.following = False

    def put(self, name: str, wrapper: Callable[..., Any], *rest: Any) -> None:
        self.patches.replace(BUILDER, name, lambda old: wrapper(old, *rest))

    def noticing(self, operation: Callable[..., Any], wraps: Callable[..., Any], shifts: bool) -> Callable[..., Any]:
        def computed(builder: Any, a: TensorHandle, b: TensorHandle) -> Any:
            made = operation(builder, a, b)
            if made.data.dtype == INT32 and made.dtype.scalar == tl.int32:
                lanes = int(np.count_nonzero(wraps(a.data, b.data, made.data)))
                if lanes:
                    self.follow()
                    made.set_attr("wrapped", [self.line(), lanes])
                    made.set_attr("shifted", shifts)
            return made

        return computed

    def follow(self) -> None:
        """From the first wrapped value on: see where it goes."""
        if not self.following:
            self.following = True
            for name in HANDED_ON:
                self.put(name, self.handing_on)
            for name in USES:
                self.put(name, self.using, name in COMPARES)

    def handing_on(self, operation: Callable[..., Any]) -> Callable[..., Any]:
        def computed(builder: Any, *operands: Any, **named: Any) -> Any:
            made = operation(builder, *operands, **named)
            for operand in operands:
                if isinstance(operand, TensorHandle) and "wrapped" in operand.attr and made.dtype.scalar in SIGNED:
                    made.attr["wrapped"] = operand.attr["wrapped"]
            return made

        return computed

    def using(self, operation: Callable[..., Any], compares: bool) -> Callable[..., Any]:
        def computed(builder: Any, a: TensorHandle, b: TensorHandle) -> Any:
            for operand in (a, b):
                if compares and operand.attr.get("shifted"):  # a bit that was shifted to the sign is asked for
                    continue
                wrapped = operand.attr.pop("wrapped", None)
                if wrapped and wrapped[1]:
                    self.report(*wrapped)
                    wrapped[1] = 0  # shared by all that came of it: said once
            return operation(builder, a, b)

        return computed
