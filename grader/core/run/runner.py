"""What the worker process does as a runner: executes programs of submissions, and never imports one.

What it measures and computes is believed, so it is confined like a recorder and knows no answer.
"""

import contextlib
import functools
import importlib.util
import io
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import numpy
import torch

from grader.core.protocol import messages
from grader.core.protocol.messages import KernelLaunched, NotAllowed, Outputs, Raised, Returned, RunnerSetup
from grader.core.protocol.program import (
    Constant,
    Kernel,
    Launch,
    Lowered,
    Malformed,
    Operation,
    Program,
    Refused,
    Unseen,
    launches_in,
    read,
    resolved,
)
from grader.core.run.allocations import INPUT_POISON, Allocations
from grader.core.run.operations import forbidden, made_without_a_launch
from grader.core.run.replay import LaunchRaised, Replay, StepRaised, launch, place_inputs, tune, used_storages
from grader.core.run.wrapper_costs import WrapperMeter
from grader.core.worker import refusals, replies, sparse

if TYPE_CHECKING:  # what not every device needs is imported late
    from grader.core.run.build import Kernels
    from grader.core.run.observe import Observer
    from grader.core.run.timed import TimedCalls
    from grader.core.run.trace import Trace

GAVE_UP = 1 << 28  # bytes of a program


@dataclass
class Runner:
    """What one child keeps between requests. kernels: by their text, since cases of a problem share them."""

    setup: RunnerSetup
    kernels: dict[tuple[bytes, frozenset[str]], "Kernels"] = field(default_factory=dict)
    timed: "TimedCalls | None" = None

    @property
    def device(self) -> str:
        return "cuda" if self.setup.device == "cuda" else "cpu"

    @functools.cached_property
    def texts(self) -> dict[str, str]:
        """{name: text} of the submission's files: the grader leaves them beside the first request."""
        with open("texts.json", "rb") as file:
            return msgspec.json.decode(file.read(), type=dict[str, str])

    @functools.cached_property
    def observer(self) -> "type[Observer] | None":
        """The class of the course's own observer, or None."""
        if self.setup.observer is None:
            return None
        space: dict[str, Any] = {"__name__": "observer"}
        exec(compile(self.setup.observer.text, self.setup.observer.file, "exec"), space)
        return space["OBSERVER"]

    def make_kernels(self, program: Program) -> "Kernels":
        from grader.core.run.build import Kernels, fields_of

        fields = fields_of(program)
        key = msgspec.json.encode(program.kernels), fields
        if key not in self.kernels:
            made = Kernels(program.kernels, fields, self.setup.device == "cpu")
            made.check()
            self.kernels[key] = made
        return self.kernels[key]

    def watch(
        self, allocations: Allocations, inputs: dict[str, torch.Tensor] | None = None, observed: bool = False
    ) -> "Trace":
        """A Trace, where kernels are interpreted; observed: the course's own observer follows them, too."""
        from grader.core.run.trace import Trace

        return Trace(inputs or {}, allocations, self.setup.module, self.observer if observed else None)


def get_ready(device: str) -> float:
    """Import what the device needs; returns the seconds that a kernel of ours takes, 0 where that does not matter."""
    if device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported
    numpy.seterr(all="ignore")  # a kernel's own NaN is judged; numpy's warnings about it are noise
    torch.set_num_threads(1)
    if device in ("cpu", "machine"):
        sparse.reserve()
    if device == "machine":
        return jobs_of_machine().get_ready()
    if not importlib.util.find_spec("triton"):
        return 0.0
    import triton

    from grader.core.run import build  # noqa: F401

    if device == "cpu":
        from grader.core.interpret import semantics
        from grader.core.run import trial

        semantics.enable()
        if fault := trial.check_tracing():
            raise RuntimeError(fault)
        return trial.time_trial()
    if device == "compile":
        from grader.core.run import compiler  # noqa: F401
    if device == "cuda":  # a wrapper's own allocator is not part of a program
        triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    return 0.0


def begin(setup: RunnerSetup) -> Runner:
    if setup.device == "compile":
        from grader.core.run import compiler

        compiler.get_ready(setup.folder)
    return Runner(setup)


def describe(error: BaseException, setup: RunnerSetup) -> Raised:
    """An exception that no step raised: the program is malformed, or the mistake is ours."""
    return Raised(type(error).__name__[:200], f"the program could not be run: {error}"[:2000])


# Jobs ----------------------------------------------------------------------------------------------------------------


def jobs_of_machine() -> Any:
    """The same jobs where kernels are IR; they import this module."""
    return importlib.import_module("grader.core.run.lowered_jobs")


def answering(job: Callable[[Runner, Any, Program], messages.RunnerReply]) -> Callable[..., messages.RunnerReply]:
    """The job, with a reply instead of an exception where the program does something wrong."""

    def answered(runner: Runner, request: Any) -> messages.RunnerReply:
        with open("program.json", "rb") as file:
            data = file.read(GAVE_UP)
        try:
            program = read(data)
            here = getattr(jobs_of_machine(), job.__name__) if runner.setup.device == "machine" else job
            return not_allowed(program, runner) or here(runner, request, program)
        except Malformed as error:
            return messages.NoProgram(str(error))
        except Refused as error:
            return messages.KernelRefused(str(error), error.line)
        except LaunchRaised as error:
            found = describe_raised(error.__cause__, program, runner)
            return msgspec.structs.replace(found, line=found.line or error.line, launch=error.failed(found.text))
        except StepRaised as error:
            return msgspec.structs.replace(describe_raised(error.__cause__, program, runner), line=error.line)

    return answered


def not_allowed(program: Program, runner: Runner) -> messages.NotRun | None:
    """The reply that says why the program is not run, or None."""
    kernels: list[Kernel | Lowered] = [*program.kernels, *program.lowered]
    if kernels and not runner.setup.kernels:  # none runs unwatched
        return KernelLaunched(kernels[0].name, kernels[0].line)
    for kernel in program.kernels:
        if not stands_there(kernel, runner.texts):
            return messages.OtherText(kernel.name, kernel.line)
    step = forbidden(program, runner.setup.refused)
    if step is None:
        return None
    return NotAllowed(step.op if step.namespace == "aten" else f"{step.namespace}.{step.op}", step.line)


def lines_of(text: str) -> list[str]:
    """Its lines as Python counts them: a form feed, or a separator of Unicode's, ends none."""
    return io.StringIO(text, newline=None).readlines()


def stands_there(kernel: Kernel, texts: dict[str, str]) -> bool:
    """True where a kernel's text is what stands in the submission's file."""
    lines = lines_of(texts.get(kernel.file, ""))[kernel.line - 1 :]
    wanted = lines_of(kernel.source)
    indent = len(lines[0]) - len(lines[0].lstrip()) if lines else 0
    there = [line[indent:] if not line[:indent].strip() else line for line in lines[: len(wanted)]]
    return [line.rstrip() for line in there] == [line.rstrip() for line in wanted]


def describe_raised(error: Any, program: Program, runner: Runner) -> Raised:
    """What a step raised, with the line of the kernel where there is one."""
    if hasattr(error, "as_reply"):  # the machine stopped it
        return error.as_reply(runner.texts.get(runner.setup.module, ""))
    code = "\n".join(kernel.source for kernel in program.kernels)
    found = replies.describe_error(error, runner.setup.module, code, runner.setup.gap)
    if program.kernels and (words := refusals.in_words(replies.find_causes(error)[-1], found.source)):
        found = msgspec.structs.replace(found, exception="DoesNotCompile", text=words)
    return found


def run(runner: Runner, request: messages.Run, program: Program) -> Returned:
    """Run the program on the inputs; what came back is described, its bytes stand in outputs.bin."""
    call, device, kernels = request.call, runner.device, runner.make_kernels(program)
    data = read_inputs()
    places, bases, tensors = place_inputs(call.inputs, data, device, INPUT_POISON)
    allocations, wrapper = Allocations(), WrapperMeter()
    trace = runner.watch(allocations, tensors, observed=True) if call.watched else None
    choose: Callable[..., int] = tune if device == "cuda" else lambda choices, run: call.choice % len(choices)

    def observe(step: Operation, args: list[Any], named: dict[str, Any], made: list[torch.Tensor]) -> None:
        wrapper.operation(step, args, named, made)
        if trace and (step.op.endswith("_") or "out" in named):
            trace.costs.overwritten(made)

    replay = Replay(program, kernels, device, launch, choose, observe)
    with torch.no_grad(), allocations, trace or contextlib.nullcontext():
        returned = replay.run(places)
    if device == "cuda":
        torch.cuda.synchronize()
    program, row_elements, row_largest = resolved(program, replay.chosen), None, None
    if call.row:
        from grader.core.run import dependents

        row_elements, row_largest = dependents.most(program, kernels, call, data)
    return Returned(
        outputs=replies.write_outputs(returned, device), several=program.several, changed=changed(bases, data),
        broken_fences=allocations.broken_fences(), without_launch=made_without_a_launch(program),
        kernels=used_kernels(program), unseen=unseen(program), wrapper=wrapper.costs,
        trace=trace.report() if trace else None, row_elements=row_elements, row_largest=row_largest,
    )  # fmt: skip


def run_sets(runner: Runner, request: messages.RunSets, program: Program) -> Outputs:
    """Run the program on several sets of inputs, which inputs.bin has one after the other; all their outputs."""
    kernels, data = runner.make_kernels(program), read_inputs()
    outputs: list[Any] = []
    size, replay = len(data) // request.sets, Replay(program, kernels, runner.device, launch)
    for start in range(0, len(data), size):
        places, *_ = place_inputs(request.call.inputs, data[start : start + size], runner.device, INPUT_POISON)
        allocations = Allocations()
        trace = runner.watch(allocations) if runner.device == "cpu" else contextlib.nullcontext()
        with torch.no_grad(), allocations, trace:
            outputs += replay.run(places)
    return Outputs(replies.write_outputs(outputs, runner.device))


def find_first_bad(runner: Runner, request: messages.FindFirstBad, program: Program) -> messages.FirstBad:
    """The line of a kernel that makes the first bad number on these inputs."""
    from grader.core.run.first_bad import Follower

    places, *_ = place_inputs(request.call.inputs, read_inputs(), "cpu", INPUT_POISON)
    module, allocations = runner.setup.module, Allocations()
    follower = Follower(module, runner.texts.get(module, ""))
    replay = Replay(program, runner.make_kernels(program), "cpu", launch, observer=follower.operation)
    with torch.no_grad(), allocations, runner.watch(allocations), follower.open():
        replay.run(places)
    return follower.found or messages.FirstBad()


def read_inputs() -> bytearray:
    """The bytes of the inputs, one after the other."""
    with open("inputs.bin", "rb") as file:
        return bytearray(file.read())


def changed(bases: dict[str, torch.Tensor], data: bytearray) -> list[str]:
    """Names of the inputs that are not what they were."""
    names, start = [], 0
    for name, base in bases.items():
        now = replies.raw_bytes(base)
        if now != data[start : start + len(now)]:
            names.append(name)
        start += len(now)
    return names


def used_kernels(program: Program) -> list[str]:
    """Names and lines of the kernels that are launched."""
    steps = launches_in(program.setup + program.steps)
    launched = [(program.kernels if isinstance(step, Launch) else program.lowered)[step.kernel] for step in steps]
    return sorted({f"{kernel.name} (line {kernel.line})" for kernel in launched})


def unseen(program: Program) -> messages.UnseenBytes:
    """What is used and no operation made."""
    used = [program.storages[i] for i in used_storages(program)]
    large = max((s for s in used if isinstance(s, Unseen)), key=lambda s: s.bytes, default=None)
    constants = sum(s.bytes for s in used if isinstance(s, Constant))
    return messages.UnseenBytes(large.bytes if large else 0, large.line if large else None, constants)


def compile_only(runner: Runner, request: messages.Compile, program: Program) -> messages.Compiled:
    from grader.core.run import compiler

    return compiler.compile_program(runner, request, program)


def measure(runner: Runner, request: messages.Time, program: Program) -> messages.Timed:
    from grader.core.run import timed

    runner.timed = runner.timed or timed.time_program(runner, request, program)
    return runner.timed.measure(request)


def measure_ours(runner: Runner, request: messages.TimeOurs) -> messages.Timed | Raised:
    """The same of a module of the grader's own, which needs no program."""
    from grader.core.run import timed

    try:
        runner.timed = runner.timed or timed.time_module(runner, request)
        return runner.timed.measure(request.time)
    except Exception as error:
        return replies.describe_error(error, "ours.py", "")


REQUESTS = msgspec.json.Decoder(messages.RunnerRequest)
JOBS = {
    messages.Run: answering(run), messages.RunSets: answering(run_sets),
    messages.FindFirstBad: answering(find_first_bad), messages.Compile: answering(compile_only),
    messages.Time: answering(measure), messages.TimeOurs: measure_ours,
}  # fmt: skip
