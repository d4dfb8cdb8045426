"""Calls of submissions that observers follow: on the machine here, and in Triton's interpreter in a process of its own.

`python -m grader.tests.core.machine.observed FILE` is that process: it reads jobs, and prints today's reports.
"""

import contextlib
import importlib.util
import os
import sys
from pathlib import Path

import msgspec
import torch

from grader.core.protocol.reports import TraceReport
from grader.core.run.allocations import GUARD, INPUT_POISON, Allocations
from grader.core.run.replay import place_inputs
from grader.kinds import registry
from grader.kinds.attention import inputs as attention
from grader.kinds.attention.cases import Case
from grader.kinds.decode import inputs as decode
from grader.kinds.decode.cases import DecodeCase

KINDS = Path(registry.__file__).parent


class Job(msgspec.Struct):
    """A call of one submission: its file, and the fields of a case."""

    file: str
    case: dict

    @property
    def problem(self):
        return Path(self.file).name[:2]

    def call(self):
        """(name of the entry point, TensorSpecs of what it is given, their bytes, other arguments)."""
        if self.problem == "x4":
            case = DecodeCase("observed", **{**self.case, "lengths": tuple(self.case["lengths"])})
            names, placed = ("q", "k_cache", "v_cache"), decode.make(case, 0)
            tensors = dict(zip(names, placed, strict=True)) | decode.placed_beside(case)
        else:
            case = Case("observed", **self.case)
            tensors = dict(zip("qkv", attention.make(case, 0), strict=True))
        specs = [each.describe(name) for name, each in tensors.items()]
        data = bytearray(b"".join(each.raw() for each in tensors.values()))
        return registry.EVERY[self.problem].entry_point, specs, data, case.arguments

    def observer(self, file):
        """The class of the course's own observer, as a runner makes it of a file's text."""
        path, space = KINDS / ("decode" if self.problem == "x4" else "attention") / file, {"__name__": "observer"}
        exec(compile(path.read_text(encoding="utf-8"), path, "exec"), space)
        return space["OBSERVER"]


def load_file(file):
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


# On the machine ------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def launched_by(launch):
    """While open, launches of kernels call launch(text, entry, grid, arguments, their names)."""
    import pytest
    from triton import knobs
    from triton.runtime.jit import JITFunction

    from grader.tests.core.machine.lowering import lowered

    def run(kernel, *args, grid, **named):
        given = dict(zip(kernel.arg_names, args, strict=False)) | named
        constants, arguments, names = {}, [], []
        for parameter in kernel.params:
            value = given.get(parameter.name, parameter.default)
            if parameter.is_constexpr or value is None:
                constants[parameter.name] = getattr(value, "value", value)
            else:
                arguments.append(value)
                names.append(parameter.name)
        with torch._C._DisableTorchDispatch():
            text, entry, values = lowered(kernel, arguments, constants)
            sizes = grid(given) if callable(grid) else grid
            launch(text, entry, (*sizes, 1, 1)[:3], values, names)

    compiles = property(lambda knobs: False, lambda knobs, value: None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(knobs.runtime), "interpret", compiles, raising=False)
        patch.setenv("TRITON_INTERPRET", "1")  # the small tiles
        patch.setattr(JITFunction, "run", run)
        yield


def report_of_machine(job, chunk=None):
    """The TraceReport of a job."""
    from grader.core.machine.buffers import Memory
    from grader.core.machine.execution import Machine
    from grader.core.machine.lines import Lines
    from grader.core.machine.report import Report

    entry_point, specs, data, arguments = job.call()
    _, _, tensors = place_inputs(specs, data, "cpu", INPUT_POISON)
    allocations, report = Allocations(), Report(tensors, job.observer("machine_observer.py"))

    def launch(text, entry, grid, values, names):
        machine = Machine(text, entry, report.observers)
        for observer in report.observers:
            observer.lines = Lines(machine.module.locations, job.file, Path(job.file).read_text(encoding="utf-8"))
        fences = {base.untyped_storage().data_ptr(): (GUARD, GUARD + size) for base, size, _ in allocations.buffers}
        machine.launch(grid, values, chunk, Memory(tensors, fences), names)

    with launched_by(launch):
        module = load_file(job.file)
        with torch.no_grad(), allocations:
            getattr(module, entry_point)(**tensors, **arguments)
    return report.make()


# In the interpreter --------------------------------------------------------------------------------------------------


def report_of_interpreter(job):
    """The TraceReport of a job, today's. A wrapper's own lines are none of a kernel's."""
    from types import FunctionType

    from grader.core.run import trace

    entry_point, specs, data, arguments = job.call()
    module, frames_of = load_file(job.file), trace.frames_of
    plain = {name for name, value in vars(module).items() if type(value) is FunctionType}

    def inside_kernels(file):
        return (frame for frame in frames_of(file) if frame.f_code.co_name not in plain)

    _, _, tensors = place_inputs(specs, data, "cpu", INPUT_POISON)
    allocations = Allocations()
    trace.frames_of = inside_kernels
    try:
        with (
            torch.no_grad(),
            allocations,
            trace.Trace(tensors, allocations, job.file, job.observer("observer.py")) as it,
        ):
            getattr(module, entry_point)(**tensors, **arguments)
    finally:
        trace.frames_of = frames_of
    return it.report()


def reports_of_interpreter(jobs):
    """The TraceReports of all jobs, from a process in which Triton interprets."""
    import subprocess

    words = [sys.executable, "-m", __name__]
    done = subprocess.run(
        words, input=msgspec.json.encode(jobs), capture_output=True, env=os.environ | {"TRITON_INTERPRET": "1"}
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return msgspec.json.decode(done.stdout.rpartition(b"\n")[2], type=list[TraceReport])


def main():
    import numpy

    from grader.core.interpret import semantics
    from grader.core.worker import sparse

    numpy.seterr(all="ignore")
    torch.set_num_threads(1)
    sparse.reserve()
    semantics.enable()
    jobs = msgspec.json.decode(sys.stdin.buffer.read(), type=list[Job])
    sys.stdout.buffer.write(b"\n" + msgspec.json.encode([report_of_interpreter(job) for job in jobs]))


if __name__ == "__main__":
    main()
