"""A kernel as text for the machine: what grader/core/record/front_end.py does for a submission's launch."""

import functools
import re
from collections.abc import Iterator
from typing import Any

import torch
import triton
from triton._C.libtriton import ir, passes
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler.compiler import make_backend
from triton.tools.tensor_descriptor import TensorDescriptor

from grader.tests.core.machine.entries import NAMES

VERSION = tuple(map(int, triton.__version__.split(".")[:2]))
CAPABILITY = 90


def described(tensor: torch.Tensor, shape: list[int], strides: list[int], block: list[int]) -> TensorDescriptor:
    return TensorDescriptor(tensor, shape, strides, block)


def lowered(kernel: Any, arguments: list[Any], constants: dict[str, Any], options: Any = None) -> tuple[str, str, list]:
    """(text, name of the entry function, the machine's arguments). arguments: all but the constants, in order."""
    given = iter(arguments)
    signature, values, runtime = {}, {}, []
    for parameter in kernel.params:
        if parameter.name in constants or parameter.is_constexpr:
            signature[parameter.name] = "constexpr"
            values[(parameter.num,)] = constants[parameter.name]
        else:
            argument = next(given)
            signature[parameter.name] = form_of(argument)
            runtime += flat(argument)
    target = GPUTarget("cuda", CAPABILITY, 32)
    backend = make_backend(target)
    chosen = backend.parse_options({"num_warps": 4, **(options or {})})
    source = ASTSource(kernel, signature, values, {})
    generators, modules = backend.get_codegen_implementation(chosen), backend.get_module_map()
    module = source.make_ir(target, chosen, generators, modules, context())
    manager = ir.pass_manager(context())
    passes.common.add_inliner(manager)
    if hasattr(passes.ttir, "add_rewrite_tensor_pointer"):  # until triton 3.7
        passes.ttir.add_rewrite_tensor_pointer(manager)
    manager.run(module, "test")
    text = str(module)
    (name,) = re.findall(r'tt\.func public @"?([^\s("]+)', text)
    return text, name, runtime


@functools.cache
def context() -> Any:
    made = ir.context()
    ir.load_dialects(made)
    make_backend(GPUTarget("cuda", CAPABILITY, 32)).load_dialects(made)
    return made


def form_of(argument: Any) -> Any:
    """The type of an argument in a signature."""
    if isinstance(argument, torch.Tensor):
        return "*" + NAMES[argument.dtype]
    if isinstance(argument, TensorDescriptor):
        return f"tensordesc<{NAMES[argument.base.dtype]}{list(argument.block_shape)}>".replace(" ", "")
    if isinstance(argument, tuple):
        return tuple(map(form_of, argument))
    if isinstance(argument, bool):
        return "i1"
    if isinstance(argument, int):
        return "i32" if -(2**31) <= argument < 2**31 else "i64"
    return "fp32"


def flat(argument: Any) -> Iterator[Any]:
    if isinstance(argument, tuple):
        for each in argument:
            yield from flat(each)
    else:
        yield argument
    if isinstance(argument, TensorDescriptor):
        yield from (*argument.shape, *argument.strides)


def tensors(arguments: Any) -> Iterator[torch.Tensor]:
    """All that a kernel can write."""
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            yield argument
        elif isinstance(argument, TensorDescriptor):
            yield argument.base
        elif isinstance(argument, tuple):
            yield from tensors(argument)


def copied(arguments: list[Any], device: str) -> list[Any]:
    def copy(argument: Any) -> Any:
        if isinstance(argument, torch.Tensor):
            return argument.clone().to(device)
        if isinstance(argument, TensorDescriptor):
            return described(copy(argument.base), argument.shape, argument.strides, argument.block_shape)
        return tuple(map(copy, argument)) if isinstance(argument, tuple) else argument

    return [copy(argument) for argument in arguments]


def on_gpu(kernel: Any, grid: tuple[int, ...], arguments: list[Any], constants: dict[str, Any], options: Any) -> list:
    """The arguments after a plain launch, on the CPU. The given ones do not change."""
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    given = copied(arguments, "cuda")
    kernel[grid](*given, **constants, **options)
    torch.cuda.synchronize()
    return copied(given, "cpu")


def on_machine(kernel: Any, grid: tuple[int, ...], arguments: list[Any], constants: dict[str, Any], options: Any,
               chunk: int | None = None) -> list:  # fmt: skip
    """The same in the machine."""
    from grader.core.machine.execution import Machine

    given = copied(arguments, "cpu")
    text, name, runtime = lowered(kernel, given, constants, options)
    Machine(text, name).launch((*grid, 1, 1)[:3], runtime, chunk=chunk)
    return given
