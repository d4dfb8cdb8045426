"""Beside the submission: a kernel as the program has it: its text, where it lies, and what it uses from outside."""

import ast
import functools
import inspect
import os
import textwrap
import types
from typing import Any

import triton.language as tl
from msgspec.structs import replace
from triton.runtime import jit
from triton.runtime.interpreter import InterpretedFunction

from grader.core.protocol.program import (
    Constexpr,
    Function,
    Kernel,
    KernelNumber,
    Module,
    NamedTuple,
    Opaque,
    TritonDtype,
    Tuple,
    Use,
)
from grader.core.record.record import CannotRecord, Recorder

CONSTEXPR = tuple(vars(jit)[name] for name in ("ConstexprFunction",) if name in vars(jit))
# What a kernel can name, and hold in no tuple.
NO_VALUES = Opaque | Module | Function | NamedTuple


def is_kernel(value: object) -> bool:
    """True for a function whose text goes into the program."""
    return isinstance(value, (InterpretedFunction, jit.JITFunction, *CONSTEXPR))


class Sources:
    """Numbers kernels in the program of a recorder, each with the functions that it calls."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder, self.numbers = recorder, dict[str, int]()

    def number(self, kernel: Any) -> int:
        """The number of a kernel; it is read anew at each launch, since what it uses may have changed."""
        return self.add(kernel, {})

    def add(self, kernel: Any, open_ones: dict[Any, bool]) -> int:
        function = kernel.fn
        if function in open_ones:
            text = f"the kernel {function.__name__} calls itself: Triton has no recursion"
            raise CannotRecord(text, self.recorder.line())
        kind = "constexpr function" if isinstance(kernel, CONSTEXPR) else "kernel"
        bare = described(function)
        outside = used(function, bare.source)
        entry = replace(
            bare, kind="gluon" if type(kernel).__name__ == "GluonJITFunction" else kind,
            unspecialized=[str(name) for name in getattr(kernel, "do_not_specialize", None) or ()],
            noinline=bool(getattr(kernel, "noinline", False)),
            uses={name: self.outside(value, open_ones | {function: True}) for name, value in outside.items()},
        )  # fmt: skip
        key = repr(entry)
        if key not in self.numbers:
            self.numbers[key] = len(self.recorder.kernels)
            self.recorder.kernels.append(entry)
        return self.numbers[key]

    def outside(self, value: Any, open_ones: dict[Any, bool]) -> Use:
        """What a name of the kernel's text means."""
        opaque = Opaque(type(value).__name__)
        if is_kernel(value):
            return KernelNumber(self.add(value, open_ones))
        if isinstance(value, types.ModuleType):
            return Module(value.__name__)
        if isinstance(value, tl.constexpr):
            inner = self.outside(value.value, open_ones)
            return opaque if isinstance(inner, NO_VALUES) else Constexpr(inner)
        if isinstance(value, tl.dtype) and not isinstance(value, tl.pointer_type | tl.block_type):
            return TritonDtype(value.name)
        if isinstance(value, tuple | list):
            fields = getattr(value, "_fields", None)
            items: list[Any] = [self.outside(inner, open_ones) for inner in value]
            held = not any(isinstance(item, NO_VALUES) for item in items)
            return Tuple(items, fields and list(fields)) if held else opaque
        if isinstance(value, type) and issubclass(value, tuple) and hasattr(value, "_fields"):
            return NamedTuple(list(value._fields))
        module = getattr(value, "__module__", None) or ""
        if callable(value) and module.startswith(("triton.language", "triton.experimental.gluon.language")):
            return Function(module, getattr(value, "__name__", ""))
        if value is None or isinstance(value, bool | int | float | str):
            return self.recorder.plain(value)
        return opaque


@functools.cache
def described(function: Any) -> Kernel:
    """The text from its `def` on, and its place; what it uses is still to come."""
    lines, start = inspect.getsourcelines(function)
    tree = ast.parse(textwrap.dedent("".join(lines))).body[0]
    first = tree.lineno - 1  # the decorators stand above it
    constexprs = [p.name for p in signature(function).parameters.values() if "constexpr" in str(p.annotation)]
    file, text = os.path.basename(function.__code__.co_filename), textwrap.dedent("".join(lines[first:]))
    return Kernel("kernel", function.__name__, file, start + first, text, constexprs, [], False, {})


signature = functools.cache(inspect.signature)


@functools.cache
def names_used(source: str) -> list[str]:
    """Names that a function's text has from outside."""
    tree = ast.parse(source)
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]  # annotations too: Gluon looks at them
    own = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    own |= {node.id for node in nodes if not isinstance(node.ctx, ast.Load)}
    return sorted({node.id for node in nodes} - own)


def used(function: Any, source: str) -> dict[str, Any]:
    """{name: value} of what the text uses from outside, closures included; what is nowhere is left out."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
    closure = {name: cell.cell_contents for name, cell in cells}
    scope = {**function.__globals__, **closure}
    return {name: scope[name] for name in names_used(source) if name in scope and name[:2] != "__"}
