"""Kernels of files that are trusted, run in this process by the machine: no sandbox, no recorder, no GPU.

Triton itself binds and specialises, as beside a submission; the IR of a launch runs at once, on the launch's tensors.
"""

import contextlib
import functools
import linecache
import os
from collections.abc import Iterator, Sequence
from typing import Any
from unittest.mock import patch

import torch

with patch.dict(os.environ):  # Triton's own functions are such as its compiler takes, or as its interpreter does
    os.environ.pop("TRITON_INTERPRET", None)
    import triton.language as tl
    from triton.runtime import interpreter, jit

from grader.core.machine import bits_trial
from grader.core.machine.observer import Observer
from grader.core.protocol.program import Launch, Refused
from grader.core.record import front_end
from grader.core.record.launches import Launches, Specialized, three_sizes
from grader.core.record.record import Recorder
from grader.core.run import machine_launches
from grader.core.run.allocations import Allocations
from grader.core.worker import without_gpu


class DoesNotRun(Exception):
    """A launch that Triton's front end or the machine refuses, or that the machine stops.

    text: a sentence. file, line: of the kernel, where it is known. plain: the exception that make grade names.
    """

    def __init__(self, text: str, file: str, line: int | None, kind: str) -> None:
        super().__init__(text)
        self.file, self.line, self.plain = file, line, type(kind, (Exception,), {"line": line})(text)

    def __str__(self) -> str:
        text, source = str(self.args[0]), linecache.getline(self.file, self.line or 0).strip()
        return f"{text} (line {self.line}: {source})" if source else text


@contextlib.contextmanager
def machine(observers: Sequence[Observer] = (), one_by_one: bool = False, backwards: bool = False) -> Iterator[None]:
    """While open, launches of kernels on tensors of the CPU run in the machine; files take their small tiles.

    Open it before a module with kernels is imported. One inside another says anew how launches run. observers: hear of
    them. one_by_one: each program ends before the next begins; backwards: the last program first. The prints of a
    kernel show program 0, at most 20 lines of a launch. Launches raise DoesNotRun.
    """
    launches = make_launches()
    here = Here(launches, observers, one_by_one, backwards)
    with contextlib.ExitStack() as stack:
        if launches.here is None:
            stack.enter_context(launches.watching())
        stack.enter_context(patch.object(launches, "here", here))
        yield


def begin() -> None:
    """Run kernels in the machine from here on, until the process ends."""
    STAYS.enter_context(machine())


STAYS = contextlib.ExitStack()


def run_interpreted(kernel: Any, *args: Any, **kwargs: Any) -> None:
    what = f"{kernel.fn.__name__} was made for Triton's interpreter"
    raise RuntimeError(f"{what}: import its module while the machine is open")


class Here(machine_launches.MachineLaunches):
    """How launches run now."""

    def __init__(self, launches: "InProcess", observers: Sequence[Observer], one_by_one: bool, backwards: bool) -> None:
        super().__init__(launches.recorder.kernels, {}, Allocations(), launches.texts, observers)
        self.one_by_one, self.backwards = one_by_one, backwards

    def machine(self, number: int) -> Any:
        made = super().machine(number)
        made.one_by_one, made.backwards = made.one_by_one or self.one_by_one, self.backwards
        return made


class InProcess(Launches):
    """Runs launches as `here` says. texts: of the files with kernels, by their names."""

    here: Here | None = None
    more_stubs = ((interpreter.InterpretedFunction, "run", run_interpreted),)

    def __init__(self) -> None:
        super().__init__(Recorder(""), prints=True)  # which records nothing: the list of IR is its
        self.texts: dict[str, str] = {}

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        driver = without_gpu.active_driver(without_gpu.Driver(without_gpu.LIKELY))
        with super().watching(), patch.dict(os.environ, TRITON_INTERPRET="1"), driver:  # modules ask the variable alone
            yield

    def tune(self, tuner: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """The first configuration that is left is the best one."""
        tuner.best_config, *_ = self.begin_tuning(tuner, args, kwargs)
        return self.run_config(tuner, tuner.best_config, args, kwargs)

    def run(self, kernel: Any, args: tuple, kwargs: dict[str, Any], grid: Any, warmup: bool) -> Any:
        file = kernel.fn.__code__.co_filename
        self.texts[os.path.basename(file)] = "".join(linecache.getlines(file))
        try:
            return super().run(kernel, args, kwargs, grid, warmup)
        except (Refused, machine_launches.Stopped) as error:
            raise DoesNotRun(str(error), file, error.line, type(error).__name__) from None
        except Exception as error:
            refused = front_end.find_refusal(error, file)
            if refused is None:
                raise
            kind, words = refused.in_words(linecache.getline(file, refused.line or 0).strip())
            raise DoesNotRun(words, file, refused.line, kind) from None

    def launched(self, kernel: Specialized, grid: Any, values: tuple) -> None:
        """Run it; raises Refused, machine_launches.Stopped."""
        names, args, _ = kernel.arguments(values, None)
        assert self.here
        with torch.no_grad():
            self.here.launch(Launch(kernel.number, 0, three_sizes(grid), [], names, [], {}, None), args)


@functools.cache
def make_launches() -> InProcess:
    """The one of this process: kernels keep what was made of them."""
    if not isinstance(tl.sum, jit.JITFunction):
        raise RuntimeError("Triton was imported with TRITON_INTERPRET=1: leave the variable out, the machine sets it")
    if fault := bits_trial.check():
        raise RuntimeError(fault)
    return InProcess()
