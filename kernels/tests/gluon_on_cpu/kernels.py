"""Launches of kernels, and the modules of the fast forms imported so that theirs run here."""

import inspect
import sys
from itertools import product
from types import ModuleType, SimpleNamespace

import torch
from msgspec.structs import replace

from grader.core.worker import without_gpu
from grader.tests.support import KERNELS
from kernels.tests.gluon_on_cpu import machine
from kernels.tests.gluon_on_cpu.language import Constant, Pointer, block, gl, nothing
from kernels.tests.gluon_on_cpu.turns import PROGRAM

OF = "kernels."
OURS = (
    "hopper", "hopper_launch", "fast_attention", "fast_block_sparse", "backward_program", "fast_backward_wide",
    "fast_backward", "fast_decode",
)  # fmt: skip


class Jit:
    """gluon.jit: called in a kernel it is a function, and `kernel[grid](...)` runs one program after another."""

    def __init__(self, function):
        self.function, self.__name__ = function, function.__name__

    def __call__(self, *given, **named):
        return self.function(*given, **named)

    def __get__(self, instance, owner):
        return self if instance is None else self.function.__get__(instance, owner)

    def __getitem__(self, grid):
        def launch(*given, **options):
            constants = [p.annotation is Constant for p in inspect.signature(self.function).parameters.values()]
            PROGRAM.grid = (*grid, 1, 1)[:3]
            for place in product(*map(range, PROGRAM.grid)):
                PROGRAM.place, PROGRAM.barriers, PROGRAM.unfenced = place, {}, False
                self.function(*map(as_argument, given, constants))
                machine.check_barriers()
            return self

        return launch


def as_argument(value, constant):
    if isinstance(value, torch.Tensor):
        return Pointer(value.view(-1))
    return block(value) if isinstance(value, int) and not constant else value


# What the modules import of Triton's, by the module's name
FAKES = {
    "triton.experimental.gluon": {"jit": lambda function=None, **_: Jit(function) if function else Jit,
                                  "constexpr_function": lambda function: function, "language": gl},
    "triton.experimental.gluon.language": vars(gl),
    "triton.experimental.gluon.language._core": {"builtin": lambda function: getattr(machine, function.__name__)},
    "triton.experimental.gluon.language.nvidia.hopper": {
        "mbarrier": SimpleNamespace(
            MBarrierLayout=nothing, init=machine.init, wait=machine.wait, expect=machine.expect, arrive=machine.arrive,
        ),
        "tma": SimpleNamespace(
            tensor_descriptor=machine.TensorDescriptor, async_copy_global_to_shared=machine.async_copy_global_to_shared,
            async_copy_shared_to_global=machine.async_copy_shared_to_global, store_wait=machine.store_wait,
        ),
        "warpgroup_mma": machine.warpgroup_mma, "warpgroup_mma_wait": machine.warpgroup_mma_wait,
        "fence_async_shared": machine.fence_async_shared,
    },
    "triton.experimental.gluon.nvidia.hopper": {"TensorDescriptor": machine.TensorDescriptor},
    "triton.language.core": {"_aggregate": lambda cls: cls},
    # CUDA's driver has nothing to launch: each launch is like the first, which is Triton's
    "kernels.cuda_driver": {"POINTER": object(), "Direct": lambda *given: None},
}  # fmt: skip


def import_on_cpu(*changes):
    """The modules of the fast forms, imported anew so that their kernels run here: {name: module}.

    changes: (old, new) of their texts, in which `old` is found once, to see what a mistake does.
    """
    from triton import experimental

    texts = {name: (KERNELS / f"{name}.py").read_text("utf-8") for name in OURS}
    for old, new in changes:
        assert sum(text.count(old) for text in texts.values()) == 1, old
        texts = {name: text.replace(old, new) for name, text in texts.items()}
    ours = {OF + name: text for name, text in texts.items()}
    kept = {name: sys.modules.pop(name) for name in (*ours, *FAKES) if name in sys.modules}
    attribute = vars(experimental).pop("gluon", None)  # `from triton.experimental import gluon` takes it first
    for name, values in FAKES.items():
        sys.modules[name] = fake = ModuleType(name)
        vars(fake).update(values)
    try:
        for name, text in ours.items():
            sys.modules[name] = module = ModuleType(name)
            exec(compile(text, KERNELS / f"{name.removeprefix(OF)}.py", "exec"), vars(module))
        return {name: sys.modules[OF + name] for name in OURS}
    finally:
        for name in (*ours, *FAKES):
            sys.modules.pop(name, None)
        sys.modules.update(kept)
        if attribute:
            experimental.gluon = attribute


def run(function, *given, multiprocessors=3, **named):
    """What `function` returns where PyTorch answers as on a Hopper GPU, of so few that each has many tiles."""
    with without_gpu.pass_for(replace(without_gpu.LIKELY, processors=multiprocessors)):
        return function(*given, **named)
