"""Beside the submission: a launch of a kernel is a step of the program, and runs nothing.

With triton.autotune every configuration is written down with its grid, its options and what its hooks do; the runner
chooses. A compiled kernel that Triton hands out (kernel.warmup, kernel[grid](...)) can be launched too.
"""

import contextlib
import types
from collections.abc import Callable, Iterable, Iterator
from operator import index
from typing import Any, cast
from unittest.mock import patch

import torch
import triton.language as tl
from triton.compiler.errors import CompileTimeAssertionFailure
from triton.runtime import autotuner, interpreter, jit
from triton.runtime.errors import OutOfResources
from triton.tools.tensor_descriptor import TensorDescriptor

from grader.core.protocol.messages import FailedLaunch
from grader.core.protocol.program import (
    CONFIGS,
    Branch,
    Choice,
    Constexpr,
    Descriptor,
    KernelNumber,
    Launch,
    TritonDtype,
    Tuple,
)
from grader.core.record.record import CannotRecord, Recorder
from grader.core.record.sources import Sources, described, is_kernel, names_used, signature


class Launches:
    """Writes the launches of a recorder down while `watching`."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder, self.sources = recorder, Sources(recorder)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        def tune(tuner: Any, *args: Any, **kwargs: Any) -> Any:
            return self.tune(tuner, args, kwargs)

        compiled = lambda model=None, **_: model if model is not None else lambda function: function  # noqa: E731
        with contextlib.ExitStack() as stack:
            for owner, name, stub in (
                *self.stubs(), (autotuner.Autotuner, "run", tune), (torch, "compile", compiled),
                (torch.library, "wrap_triton", lambda kernel: kernel),
                (torch.library, "triton_op", torch.library.custom_op),  # the other looks for kernels with torch._dynamo
            ):  # fmt: skip
                stack.enter_context(patch.object(owner, name, stub))
            yield

    def stubs(self) -> Iterable[tuple[Any, str, Any]]:
        """(owner, name, what takes its place) where Triton launches a kernel."""

        def run(kernel: Any, *args: Any, grid: Any = None, warmup: bool = False, **kwargs: Any) -> LaunchHandle:
            return self.run(kernel, args, kwargs, grid, warmup)

        return (interpreter.InterpretedFunction, "run", run), (jit.JITFunction, "run", run)

    def know(self, module: object) -> None:
        """Read the kernels of a module once, before a process is forked for each case."""
        for value in list(vars(module).values()):
            if is_kernel(value):
                with contextlib.suppress(Exception):
                    names_used(described(value.fn).source)
                    signature(value.fn)

    def run(self, kernel: Any, args: tuple, kwargs: dict[str, Any], grid: Any, warmup: bool) -> "LaunchHandle":
        with torch._C._DisableTorchDispatch():
            names = list(signature(kernel.fn).parameters)
            own = {name: value for name, value in kwargs.items() if name in names}
            options = {name: value for name, value in kwargs.items() if name not in names}
            if not warmup:
                bound = signature(kernel.fn).bind(*args, **own)
                bound.apply_defaults()
                named = dict(bound.arguments)
                grid = grid(named | options) if callable(grid) else grid
        if warmup:
            return LaunchHandle(self, kernel, names, options)
        for hook in getattr(kernel, "pre_run_hooks", ()):
            hook(*args, **kwargs)
        with torch._C._DisableTorchDispatch():
            self.launch(kernel, named, options, grid)
        return LaunchHandle(self, kernel, names, options)

    def launch(self, kernel: Any, named: dict[str, Any], options: dict[str, Any], grid: Any) -> None:
        number, line = self.next_launch()
        sizes = three_sizes(grid)
        args, options = ({name: self.argument(x) for name, x in each.items()} for each in (named, options))
        self.recorder.steps.append(Launch(self.sources.number(kernel), number, sizes, args, options, line))

    def next_launch(self) -> tuple[int, int | None]:
        """(number, line) of a launch; raises what the runner saw it raise."""
        recorder = self.recorder
        recorder.note_freed()
        number, line = recorder.launches, recorder.line()
        recorder.launches += 1
        if number in recorder.failing:
            raise self.failure(recorder.failing[number])
        return number, line

    @staticmethod
    def failure(failed: FailedLaunch) -> Exception:
        """The exception of a launch that the runner saw fail; `as_seen` marks it."""
        if short := failed.shortage:
            error = OutOfResources(short.needed, short.limit, short.what)
        else:
            error = interpreter.InterpreterError(failed.text)
        error.as_seen = True
        return error

    def argument(self, value: Any) -> Any:
        """One argument of a launch as the program has it."""
        if isinstance(value, tl.constexpr):
            return Constexpr(self.argument(value.value))
        if isinstance(value, tl.dtype) and not isinstance(value, tl.pointer_type | tl.block_type):
            return TritonDtype(value.name)
        if is_kernel(value):
            return KernelNumber(self.sources.number(value))
        if isinstance(value, list):
            raise CannotRecord("a list as an argument of a launch: Triton takes tuples", self.recorder.line())
        if isinstance(value, tuple):
            fields = getattr(value, "_fields", None)
            return Tuple([self.argument(inner) for inner in value], fields and list(fields))
        gluon = type(value).__name__ == "TensorDescriptor" and "gluon" in type(value).__module__
        plain = self.recorder.plain
        if isinstance(value, TensorDescriptor) or gluon:
            layout = {name: plain(inner) for name, inner in vars(value.layout).items()} if gluon else None
            shape, strides, block = map(plain, (value.shape, value.strides, value.block_shape))
            base, padding = self.recorder.tensor(value.base), cast(Any, str(value.padding))
            return Descriptor(base, shape, strides, block, padding, layout)
        return plain(value)

    def tune(self, tuner: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Every configuration as a choice of the runner's; the wrapper goes on as with the first."""
        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        configs = tuner.prune_configs(kwargs) if len(tuner.configs) > 1 else tuner.configs
        recorder, before, steps = self.recorder, self.recorder.steps, list[Any]()
        branches, results, failure = list[Branch](), list[tuple[Any, Any]](), Exception()
        for config in configs[:CONFIGS]:
            recorder.steps = steps = []
            try:
                if config.pre_hook:
                    config.pre_hook({**tuner.nargs, **kwargs, **config.all_kwargs()})
                results.append((config, tuner.fn.run(*args, **kwargs, **config.all_kwargs())))
                branches.append(Branch(str(config), steps))
            except CompileTimeAssertionFailure as error:  # Triton then takes another configuration
                failure = error
            finally:
                recorder.steps = before
        if not results:
            raise failure
        (tuner.best_config, result), tuner.nargs = results[0], None
        if len(branches) == 1:
            recorder.steps += branches[0].steps
        else:
            recorder.steps.append(Choice(branches, recorder.line()))
        return result


def three_sizes(grid: Any) -> tuple[int, ...]:
    """The grid's sizes, of which those that it lacks are 1; raises CannotRecord where a GPU would take no such grid."""
    grid = grid if isinstance(grid, tuple | list | torch.Size) else (grid,)
    try:
        return (*map(index, grid), *[1] * (3 - len(grid)))
    except TypeError:
        raise CannotRecord(
            f"the grid {tuple(grid)} is not of whole numbers: triton.cdiv(a, b) divides and rounds up"
        ) from None


class LaunchHandle:
    """What a launch or a warm-up returns: it can be launched, and answers as a compiled kernel of a likely size."""

    n_regs, n_spills, n_max_threads = 128, 0, 1024

    def __init__(self, launches: Launches, kernel: Any, names: list[str], options: dict[str, Any]) -> None:
        self.launches, self.kernel, self.names, self.options = launches, kernel, names, options
        self.metadata = types.SimpleNamespace(shared=0, num_warps=options.get("num_warps", 4), name=kernel.fn.__name__)
        self.asm, self.name = dict[str, Any](), kernel.fn.__name__

    def _init_handles(self) -> None:
        pass

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        def launch(*args: Any, stream: Any = None) -> None:
            with torch._C._DisableTorchDispatch():
                named = dict(zip(self.names, args, strict=False))
                self.launches.launch(self.kernel, named, self.options, grid)

        return launch
