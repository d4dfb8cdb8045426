"""In the runner: kernels compiled for a GPU by Triton's later stages, to be looked at or launched.

Triton gets the machine's own print of the IR that the machine parsed: one text, one meaning. Its errors name lines of
the student's. Method: triton.compile with a source that begins at TTIR, so that no stage is left out.
"""

import hashlib
import types
from collections.abc import Sequence
from typing import Any

import torch
import triton
from triton._C.libtriton import ir
from triton.compiler import ASTSource
from triton.runtime.driver import driver
from triton.tools.tensor_descriptor import TensorDescriptor

from grader.core.machine.execution import load
from grader.core.machine.lines import Lines
from grader.core.machine.text import Function, NotIR, Operation, Type, print_module
from grader.core.protocol.program import Kernel, Launch
from grader.core.run.replay import DescriptorArgument

FILE = "kernel.ttir"  # in the child's own folder: Triton reads IR from files alone
TYPES = {"f16": "fp16", "f32": "fp32", "f64": "fp64", "f8E4M3FN": "fp8e4nv", "f8E5M2": "fp8e5"}  # Triton's own names
ALIGNED = 16  # bytes, and a factor of integers: where it holds, Triton makes wider loads, as its own jit says


class Source(ASTSource):
    """What triton.compile takes for a function: a text of IR. signature: {parameter: type}, in Triton's names."""

    def __init__(self, name: str, text: str, signature: dict[str, str]) -> None:
        key, names = hashlib.sha256(text.encode()).hexdigest(), list(signature)
        function = types.SimpleNamespace(__name__=name, arg_names=names, cache_key=key, launch_metadata=None)
        super().__init__(function, signature)
        self.text = text

    def make_ir(self, *given: Any) -> Any:
        with open(FILE, "w", encoding="utf-8") as file:
            file.write(self.text)
        *_, context = given
        module = ir.parse_mlir_module(FILE, context)
        module.context = context
        return module


class CompiledKernels:
    """The kernels of one program for the GPU of Triton's driver; each is compiled once for arguments that are alike.

    texts: of the submission's files, by name. made: what was compiled, by all that it depends on.
    """

    def __init__(self, kernels: Sequence[Kernel], texts: dict[str, str], made: dict[tuple[Any, ...], Any]) -> None:
        self.kernels, self.texts, self.made = kernels, texts, made

    def launch(self, step: Launch, given: list[Any]) -> None:
        """Run it on the GPU."""
        function = self.function(step)
        self.compiled(step, given)[step.grid](*arguments(function, given))

    def function(self, step: Launch) -> Function:
        kernel = self.kernels[step.kernel]
        return load(kernel.text, kernel.name).functions[kernel.name]

    def compiled(self, step: Launch, given: list[Any]) -> Any:
        """The kernel as Triton compiles it for these arguments; raises NotIR where they do not fit it."""
        function = self.function(step)
        if len(given) != len(function.types) or not all(map(fits, given, function.types)):
            raise NotIR("a launch with other arguments than the kernel takes")
        aligned = tuple(i for i, value in enumerate(given) if i not in step.unspecialized and is_aligned(value))
        target = driver.active.get_current_target()
        key = self.kernels[step.kernel], aligned, tuple(sorted(step.options.items())), target
        if key not in self.made:
            self.made[key] = triton.compile(self.source(step, aligned), target=target, options=dict(step.options))
        return self.made[key]

    def source(self, step: Launch, aligned: Sequence[int]) -> Source:
        kernel, function = self.kernels[step.kernel], self.function(step)
        module = load(kernel.text, kernel.name)
        lines = Lines(module.locations, kernel.file, self.texts.get(kernel.file, ""))

        def place(operation: Operation) -> str:
            line = lines.line(operation.where)
            return f' loc("{kernel.file}":{line}:1)' if line else ""

        divisible = {function.arguments[at]: f"{{tt.divisibility = {ALIGNED} : i32}}" for at in aligned}
        names = dict(zip(function.arguments, map(triton_type, function.types), strict=True))
        signature = {name: names[name] for name in arguments(function, function.arguments)}
        return Source(kernel.name, print_module(module, kernel.name, divisible, place), signature)


def fits(given: Any, kind: Type) -> bool:
    if kind.kind == "number":
        return isinstance(given, bool | int | float)
    return isinstance(given, torch.Tensor if kind.kind == "pointer" else DescriptorArgument)


def is_aligned(given: Any) -> bool:
    """Triton's specialisation; 1 and None are constants of the IR already."""
    if isinstance(given, torch.Tensor):
        return given.data_ptr() % ALIGNED == 0
    return type(given) is int and given % ALIGNED == 0


def triton_type(kind: Type) -> str:
    """The type of a parameter as Triton's launcher knows it."""
    if kind.kind == "descriptor":
        return f"tensordesc<{TYPES.get(kind.element, kind.element)}[{', '.join(map(str, kind.shape))}]>"
    if kind.kind == "pointer":
        return "*" + TYPES.get(kind.element, "i64" if kind.element.startswith("!") else kind.element)
    return TYPES.get(kind.element, kind.element)


def arguments(function: Function, given: Sequence[Any]) -> list[Any]:
    """What Triton's launcher takes of these, one for each parameter of the IR: it makes the sizes and strides that
    follow a descriptor itself."""
    left, found = 0, list[Any]()
    for value, kind in zip(given, function.types, strict=True):
        if left:
            left -= 1
            continue
        found.append(TensorDescriptor(**vars(value)) if isinstance(value, DescriptorArgument) else value)
        left = 2 * len(kind.shape) if kind.kind == "descriptor" else 0
    return found
