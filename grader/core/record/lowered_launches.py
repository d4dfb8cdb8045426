"""Beside the submission: a launch as IR. Triton itself binds and specialises; in the place of its compiler is ours.

JITFunction.run does all that it does on a GPU, hooks and grid included. What it compiles is a LoweredKernel, and the
run of that is a step of the program.
"""

import types
from collections.abc import Callable, Iterable
from typing import Any

import torch
from triton import knobs
from triton.runtime import interpreter, jit

from grader.core.protocol.program import NO_OPTIONS, LoweredLaunch
from grader.core.record import front_end
from grader.core.record.launches import Launches, LaunchHandle, three_sizes
from grader.core.record.record import CannotRecord, Recorder

TRITONS_RUN = jit.JITFunction.run
USUAL = {"sanitize_overflow": False}  # else the IR is a fifth longer, of checks that only debug=True keeps


class LoweredLaunches(Launches):
    """Writes the launches of a recorder down as IR while `watching`."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.front_end = front_end.FrontEnd(recorder.lowered)

    def stubs(self) -> Iterable[tuple[Any, str, Any]]:
        def run(kernel: Any, *args: Any, grid: Any = None, warmup: bool = False, **kwargs: Any) -> LoweredKernel:
            return self.run(kernel, args, kwargs, grid, warmup)

        def lower(kernel: Any, key: Any, signature: Any, device: Any, constants: Any, options: Any, *_: Any) -> Any:
            return LoweredKernel(self, kernel, signature, device, constants, options)

        compiles = property(lambda knobs: False, lambda knobs, value: None, lambda knobs: None)
        return (
            (jit.JITFunction, "run", run), (jit.JITFunction, "_do_compile", lower),
            (jit.JITCallable, "parse", lambda kernel: front_end.parse(kernel.src)),
            # Whatever a file says about the interpreter, its kernels are compiled.
            (type(knobs.runtime), "interpret", compiles), (interpreter, "InterpretedFunction", jit.JITFunction),
        )  # fmt: skip

    def know(self, module: object) -> None:
        for value in list(vars(module).values()):
            if isinstance(value, jit.JITFunction):
                front_end.parse(value.src)

    def run(self, kernel: Any, args: tuple, kwargs: dict[str, Any], grid: Any, warmup: bool) -> Any:
        if kernel.is_gluon():
            what = f"the machine runs no Gluon: {kernel.__name__} is a kernel of Gluon's"
            raise CannotRecord(what, front_end.line_of(kernel))
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


def has_list(value: Any) -> bool:
    return isinstance(value, list) or (isinstance(value, tuple) and any(map(has_list, value)))


class LoweredKernel(LaunchHandle):
    """What Triton takes for a compiled kernel: a specialisation. number: of its IR in the recorder's `lowered`."""

    function = packed_metadata = None

    def __init__(
        self, launches: LoweredLaunches, kernel: Any, signature: Any, device: Any, constants: Any, options: Any
    ) -> None:
        super().__init__(launches, kernel, list(signature), vars(options))
        with torch._C._DisableTorchDispatch():
            self.number = launches.front_end.lower(kernel, signature, device, constants, options)
        self.signature, self.options = signature, self.own(kernel.device_caches[device][3], vars(options))
        self.metadata = types.SimpleNamespace(**vars(options), shared=0, name=self.name)
        self.asm = {"ttir": launches.recorder.lowered[self.number].text}

    def own(self, backend: Any, options: dict[str, Any]) -> dict[str, Any]:
        """The options that are not Triton's usual ones; raises CannotRecord where a program has none such."""
        usual = vars(backend.parse_options(dict(USUAL)))
        own = {name: value for name, value in options.items() if value != usual[name]}
        for name, value in own.items():
            if name in NO_OPTIONS or not isinstance(value, bool | int | str):
                raise CannotRecord(f"the option {name} of a launch", self.launches.recorder.line())
        return own

    def launch_metadata(self, *args: Any) -> None:
        """What Triton asks a compiled kernel for before it runs it."""

    def run(self, x: int, y: int, z: int, *rest: Any) -> None:
        """rest: the stream, what Triton asks for, and two hooks; then the arguments of the launch."""
        self.launch((x, y, z), rest[6:])

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return lambda *args, stream=None: self.launch(grid, args)

    def launch(self, grid: Any, values: tuple) -> None:
        """Write the launch down as a step."""
        with torch._C._DisableTorchDispatch():
            number, line = self.launches.next_launch()
            if len(values) != len(self.signature):
                what = f"a launch of {self.name} with {len(values)} arguments instead of {len(self.signature)}"
                raise CannotRecord(what, line)
            names, args, unspecialized = list[str](), list[Any](), list[int]()
            for parameter, form, value in zip(self.kernel.params, self.signature.values(), values, strict=True):
                for name, each in front_end.arguments_of_ir(parameter.name, form, value):
                    if parameter.do_not_specialize or parameter.do_not_specialize_on_alignment:
                        unspecialized.append(len(args))
                    names.append(name)
                    args.append(self.launches.argument(each))
            sizes = three_sizes(grid)
            step = LoweredLaunch(self.number, number, sizes, args, names, unspecialized, self.options, line)
            self.launches.recorder.steps.append(step)
