"""Beside the submission: a launch of a kernel is a step of the program, and runs nothing.

Triton itself binds and specialises; in the place of its compiler is front_end.py. JITFunction.run does all that it does
on a GPU, hooks and grid included; what it takes for a compiled kernel is a Specialized, and the run of that is a step.
With triton.autotune every configuration is written down with its grid, its options and what its hooks do; the runner
chooses. A compiled kernel that Triton hands out (kernel.warmup, kernel[grid](...)) can be launched too.
"""

import contextlib
import types
from collections.abc import Callable, Iterator
from operator import index
from typing import Any, cast
from unittest.mock import patch

import torch
from triton import knobs
from triton.compiler.code_generator import CodeGenerator
from triton.compiler.errors import CompileTimeAssertionFailure
from triton.runtime import autotuner, interpreter, jit
from triton.runtime.errors import OutOfResources
from triton.tools.tensor_descriptor import TensorDescriptor

from grader.core.protocol.program import CONFIGS, NO_OPTIONS, Branch, Choice, Descriptor, Launch, Refused
from grader.core.record import front_end
from grader.core.record.record import CannotRecord, Recorder

TRITONS_RUN = jit.JITFunction.run
USUAL = {"sanitize_overflow": False}  # else the IR is a fifth longer, of checks that only debug=True keeps


class Launches:
    """Writes the launches of a recorder down while `watching`.

    prints: a kernel's print(x) may have no text before the block, as a GPU's compiler asks.
    """

    more_stubs: tuple[tuple[Any, str, Any], ...] = (
        (torch, "compile", lambda model=None, **_: model if model is not None else lambda function: function),
        (torch.library, "wrap_triton", lambda kernel: kernel),
        (torch.library, "triton_op", torch.library.custom_op),  # the other looks for kernels with torch._dynamo
    )

    def __init__(self, recorder: Recorder, prints: bool) -> None:
        self.recorder, self.front_end = recorder, front_end.FrontEnd(recorder.kernels)
        self.prints = {"print": front_end.print_values} if prints else {}

    def stubs(self) -> list[tuple[Any, str, Any]]:
        """(owner, name, what takes its place) where Triton launches a kernel."""

        def run(kernel: Any, *args: Any, grid: Any = None, warmup: bool = False, **kwargs: Any) -> Specialized:
            return self.run(kernel, args, kwargs, grid, warmup)

        def lower(kernel: Any, key: Any, signature: Any, device: Any, constants: Any, options: Any, *_: Any) -> Any:
            return Specialized(self, kernel, signature, device, constants, options)

        def tune(tuner: Any, *args: Any, **kwargs: Any) -> Any:
            return self.tune(tuner, args, kwargs)

        compiles = property(lambda knobs: False, lambda knobs, value: None, lambda knobs: None)
        return [
            (jit.JITFunction, "run", run), (jit.JITFunction, "_do_compile", lower),
            (jit.JITCallable, "parse", lambda kernel: front_end.parse(kernel.src)),
            # Whatever a file says about the interpreter, its kernels are compiled.
            (type(knobs.runtime), "interpret", compiles), (interpreter, "InterpretedFunction", jit.JITFunction),
            (autotuner.Autotuner, "run", tune), *self.more_stubs,
        ]  # fmt: skip

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for owner, name, stub in self.stubs():
                stack.enter_context(patch.object(owner, name, stub))
            stack.enter_context(patch.dict(CodeGenerator.builtin_namespace, self.prints))
            yield

    def know(self, module: object) -> None:
        """Read the kernels of a module once, before a process is forked for each case."""
        for value in list(vars(module).values()):
            if isinstance(value, jit.JITFunction):
                front_end.parse(value.src)

    def run(self, kernel: Any, args: tuple, kwargs: dict[str, Any], grid: Any, warmup: bool) -> Any:
        if kernel.is_gluon():
            what = f"{kernel.__name__} is a kernel of Gluon's, and the machine runs none"
            raise Refused(what, front_end.line_of(kernel))
        if any(map(has_list, (*args, *kwargs.values()))):
            raise CannotRecord("a list as an argument of a launch: Triton takes tuples", self.recorder.line())

        def sizes(bound: dict[str, Any]) -> tuple[int, ...]:
            return three_sizes(grid(bound) if callable(grid) else grid)

        try:
            return TRITONS_RUN(kernel, *args, grid=sizes, warmup=warmup, **(USUAL | kwargs))
        except TypeError as error:
            if str(error).startswith("dynamic_func()"):  # Triton's name of what binds arguments
                error.args = (str(error).replace("dynamic_func", kernel.__name__, 1),)
            raise

    def launched(self, kernel: "Specialized", grid: Any, values: tuple) -> None:
        """Write the launch down as a step."""
        number, line = self.next_launch()
        names, args, unspecialized = kernel.arguments(values, line)
        args, sizes = [self.argument(value) for value in args], three_sizes(grid)
        step = Launch(kernel.number, number, sizes, args, names, unspecialized, kernel.options, line)
        self.recorder.steps.append(step)

    def next_launch(self) -> tuple[int, int | None]:
        """(number, line) of a launch; raises what the runner saw it raise."""
        recorder = self.recorder
        recorder.note_freed()
        number, line = recorder.launches, recorder.line()
        recorder.launches += 1
        if failed := recorder.failing.get(number):
            short = failed.shortage
            error: Any = short and OutOfResources(short.needed, short.limit, short.what)
            error = error or interpreter.InterpreterError(failed.text)
            error.as_seen = True
            raise error
        return number, line

    def argument(self, value: Any) -> Any:
        """One argument of the IR's function as the program has it."""
        plain = self.recorder.plain
        if isinstance(value, TensorDescriptor):
            shape, strides, block = map(plain, (value.shape, value.strides, value.block_shape))
            return Descriptor(self.recorder.tensor(value.base), shape, strides, block, cast(Any, str(value.padding)))
        return plain(value)

    @staticmethod
    def begin_tuning(tuner: Any, args: tuple, kwargs: dict[str, Any]) -> list[Any]:
        """The configurations that are left to choose from."""
        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        return tuner.prune_configs(kwargs) if len(tuner.configs) > 1 else tuner.configs

    @staticmethod
    def run_config(tuner: Any, config: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        if config.pre_hook:
            config.pre_hook({**tuner.nargs, **kwargs, **config.all_kwargs()})
        return tuner.fn.run(*args, **kwargs, **config.all_kwargs())

    def tune(self, tuner: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Every configuration as a choice of the runner's; the wrapper goes on as with the first."""
        configs = self.begin_tuning(tuner, args, kwargs)
        recorder, before, steps = self.recorder, self.recorder.steps, list[Any]()
        branches, results, failure = list[Branch](), list[tuple[Any, Any]](), Exception()
        for config in configs[:CONFIGS]:
            recorder.steps = steps = []
            try:
                results.append((config, self.run_config(tuner, config, args, kwargs)))
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


def has_list(value: Any) -> bool:
    return isinstance(value, list) or (isinstance(value, tuple) and any(map(has_list, value)))


def three_sizes(grid: Any) -> tuple[int, ...]:
    """The grid's sizes, of which those that it lacks are 1; raises CannotRecord where a GPU would take no such grid."""
    grid = grid if isinstance(grid, tuple | list | torch.Size) else (grid,)
    try:
        return (*map(index, grid), *[1] * (3 - len(grid)))
    except TypeError:
        raise CannotRecord(
            f"the grid {tuple(grid)} is not of whole numbers: triton.cdiv(a, b) divides and rounds up"
        ) from None


class Specialized:
    """What Triton takes for a compiled kernel: its IR for some types and constants.

    It answers as a compiled kernel of a likely size. number: of its IR in the recorder's `kernels`.
    """

    n_regs, n_spills, n_max_threads = 128, 0, 1024
    function = packed_metadata = None

    def __init__(
        self, launches: Launches, kernel: Any, signature: Any, device: Any, constants: Any, options: Any
    ) -> None:
        self.launches, self.kernel, self.signature, self.name = launches, kernel, signature, kernel.fn.__name__
        with torch._C._DisableTorchDispatch():
            self.number = launches.front_end.lower(kernel, signature, device, constants, options)
        self.options = self.own(kernel.device_caches[device][3], vars(options))
        self.metadata = types.SimpleNamespace(**vars(options), shared=0, name=self.name)
        self.asm = {"ttir": launches.recorder.kernels[self.number].text}

    def own(self, backend: Any, options: dict[str, Any]) -> dict[str, Any]:
        """The options that are not Triton's usual ones; raises CannotRecord where a program has none such."""
        usual = vars(backend.parse_options(dict(USUAL)))
        own = {name: value for name, value in options.items() if value != usual[name]}
        for name, value in own.items():
            if name in NO_OPTIONS or not isinstance(value, bool | int | str):
                raise CannotRecord(f"the option {name} of a launch", self.launches.recorder.line())
        return own

    def _init_handles(self) -> None:
        pass

    def launch_metadata(self, *args: Any) -> None:
        """What Triton asks a compiled kernel for before it runs it."""

    def run(self, x: int, y: int, z: int, *rest: Any) -> None:
        """rest: the stream, what Triton asks for, and two hooks; then the arguments of the launch."""
        self.launch((x, y, z), rest[6:])

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return lambda *args, stream=None: self.launch(grid, args)

    def launch(self, grid: Any, values: tuple) -> None:
        with torch._C._DisableTorchDispatch():
            self.launches.launched(self, grid, values)

    def arguments(self, values: tuple, line: int | None) -> tuple[list[str], list[Any], list[int]]:
        """(names, arguments, the places of those unspecialized) of the IR; raises CannotRecord."""
        if len(values) != len(self.signature):
            what = f"a launch of {self.name} with {len(values)} arguments instead of {len(self.signature)}"
            raise CannotRecord(what, line)
        names, args, unspecialized = list[str](), list[Any](), list[int]()
        for parameter, form, value in zip(self.kernel.params, self.signature.values(), values, strict=True):
            for name, each in front_end.arguments_of_ir(parameter.name, form, value):
                if parameter.do_not_specialize or parameter.do_not_specialize_on_alignment:
                    unspecialized.append(len(args))
                names.append(name)
                args.append(each)
        return names, args, unspecialized
