"""What the worker process does as a runner: executes programs of submissions, and never imports one.

What it measures and computes is believed, so it is confined like a recorder and knows no answer.
"""

import functools
import gc
import importlib.util
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import numpy
import torch

from grader.core.machine import bits_trial
from grader.core.machine.bad_numbers import Follower
from grader.core.machine.observer import Observer
from grader.core.machine.report import Report
from grader.core.protocol import messages
from grader.core.protocol.messages import Call, KernelLaunched, NotAllowed, Outputs, Raised, Returned, RunnerSetup
from grader.core.protocol.program import (
    Constant,
    Float,
    Launch,
    Malformed,
    Operation,
    Program,
    Refused,
    Unseen,
    flat,
    launches_in,
    read,
    resolved,
)
from grader.core.run import dependents
from grader.core.run.allocations import Allocations
from grader.core.run.machine_launches import MachineLaunches, Stopped
from grader.core.run.operations import forbidden, made_without_a_launch
from grader.core.run.replay import (
    LaunchRaised,
    Replay,
    StepRaised,
    find_overload,
    place_inputs,
    settled,
    tune,
    used_storages,
)
from grader.core.run.timed import TimedCalls, time_module, time_program
from grader.core.run.wrapper_costs import WrapperMeter
from grader.core.worker import replies, sparse

if TYPE_CHECKING:  # what not every device needs is imported late
    from grader.core.run.compiled import CompiledKernels

GAVE_UP = 1 << 28  # bytes of a program
NUMBERS = 128  # different ones in a program, as sizes and strides: the honest entries and solutions have up to 31
CONSTANTS = re.compile(r"arith\.constant ([^:\n]*)")


@dataclass
class Runner:
    """What one child keeps between requests. kernels: compiled for a GPU, since cases of a problem share them."""

    setup: RunnerSetup
    kernels: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    timed: TimedCalls | None = None

    @property
    def device(self) -> str:
        return "cuda" if self.setup.device == "cuda" else "cpu"

    @functools.cached_property
    def texts(self) -> dict[str, str]:
        """{name: text} of the submission's files: the grader leaves them beside the first request."""
        with open("texts.json", "rb") as file:
            return msgspec.json.decode(file.read(), type=dict[str, str])

    @functools.cached_property
    def observer(self) -> Callable[[dict[str, torch.Tensor]], Observer] | None:
        """The class of the course's own observer, or None."""
        if self.setup.observer is None:
            return None
        space: dict[str, Any] = {"__name__": "observer"}
        exec(compile(self.setup.observer.text, self.setup.observer.file, "exec"), space)
        return space["OBSERVER"]

    def compiled(self, program: Program) -> "CompiledKernels":
        """The program's kernels as Triton's compiler makes them for a GPU."""
        from grader.core.run.compiled import CompiledKernels

        return CompiledKernels(program.kernels, self.texts, self.kernels)

    def in_machine(
        self, program: Program, call: Call, tensors: dict[str, torch.Tensor], allocations: Allocations,
        observers: Sequence[Observer] = (), observe: Callable[..., None] | None = None,
    ) -> Replay:  # fmt: skip
        """The program, its kernels run by the machine. allocations: the mode in which it will run."""
        kernels = MachineLaunches(program.kernels, tensors, allocations, self.texts, observers)
        return Replay(settled(program, call.choice), "cpu", kernels.launch, observer=observe)


def get_ready(device: str) -> None:
    """Import what the device needs. Raises RuntimeError where bits depend on what runs beside a program."""
    numpy.seterr(all="ignore")
    torch.set_num_threads(1)
    if device == "cpu":
        sparse.reserve()
        if fault := bits_trial.check():
            raise RuntimeError(fault)
    elif importlib.util.find_spec("triton"):
        import triton

        from grader.core.run import compiled, compiler  # noqa: F401

        if device == "cuda":  # a wrapper's own allocator is not part of a program
            triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda"))


def begin(setup: RunnerSetup) -> Runner:
    if setup.device == "compile":
        from grader.core.run import compiler

        sparse.release()
        compiler.get_ready(setup.folder)
    return Runner(setup)


def describe(error: BaseException, setup: RunnerSetup) -> Raised:
    """An exception that no step raised: the program is malformed, or the mistake is ours."""
    return Raised(type(error).__name__[:200], f"the program could not be run: {error}"[:2000])


# Jobs ----------------------------------------------------------------------------------------------------------------


def answering(job: Callable[[Runner, Any, Program], messages.RunnerReply]) -> Callable[..., messages.RunnerReply]:
    """The job, with a reply instead of an exception where the program does something wrong."""

    def answered(runner: Runner, request: Any) -> messages.RunnerReply:
        gc.freeze()  # what is there between cases stays: a collection after this case need not walk parsed kernels
        with open("program.json", "rb") as file:
            data = file.read(GAVE_UP)
        try:
            program = read(data)
            return not_allowed(program, runner) or job(runner, request, program)
        except Malformed as error:
            return messages.NoProgram(str(error))
        except Refused as error:
            return messages.KernelRefused(str(error), error.line)
        except LaunchRaised as error:
            found = describe_raised(error.__cause__, runner)
            return msgspec.structs.replace(found, line=found.line or error.line, launch=error.failed(found.text))
        except StepRaised as error:
            return msgspec.structs.replace(describe_raised(error.__cause__, runner), line=error.line)

    return answered


def not_allowed(program: Program, runner: Runner) -> messages.NotRun | None:
    """The reply that says why the program is not run, or None."""
    if program.kernels and not runner.setup.kernels:  # none runs unwatched
        return KernelLaunched(program.kernels[0].name, program.kernels[0].line)
    step = forbidden(program, runner.setup.refused)
    if step is None:
        return None
    return NotAllowed(step.op if step.namespace == "aten" else f"{step.namespace}.{step.op}", step.line)


def describe_raised(error: Any, runner: Runner) -> Raised:
    """What a step raised, with the line of the kernel where there is one."""
    if isinstance(error, Stopped):
        lines, line = runner.texts.get(runner.setup.module, "").split("\n"), error.line
        return Raised("Stopped", str(error), line, lines[line - 1].strip() if line and line <= len(lines) else "")
    return replies.describe_error(error, runner.setup.module, "", runner.setup.gap)


def run(runner: Runner, request: messages.Run, program: Program) -> Returned:
    """Run the program on the inputs; what came back is described, its bytes stand in outputs.bin."""
    call, device, data, written = request.call, runner.device, read_inputs(), set[str]()
    flats, tensors = place_inputs(call.inputs, data, device)
    allocations, wrapper = Allocations(), WrapperMeter()
    report = Report(tensors, runner.observer) if call.watched else None

    def observe(step: Operation, args: list[Any], named: dict[str, Any], made: list[torch.Tensor]) -> None:
        wrapper.operation(step, args, named, made)
        written.update(inputs_written(step, made, flats))
        if report and (step.op.endswith("_") or "out" in named):
            report.costs.overwritten(made)

    if device == "cuda":
        replay = Replay(program, device, runner.compiled(program).launch, tune, observe)
    else:
        observers = report.observers if report else ()
        replay = runner.in_machine(program, call, tensors, allocations, observers, observe)
    with torch.no_grad(), allocations:
        returned = replay.run(flats)
    if device == "cuda":
        torch.cuda.synchronize()
    program, row_elements, row_largest = resolved(replay.program, replay.chosen), None, None
    written.update(changed(call, flats, tensors, data), report.legality.written if report else ())
    if call.row:
        row_elements, row_largest = dependents.most(program, call, data)
    return Returned(
        outputs=replies.write_outputs(returned, device), several=program.several, changed=sorted(written),
        broken_fences=allocations.broken_fences(), without_launch=made_without_a_launch(program),
        kernels=used_kernels(program), unseen=unseen(program), wrapper=wrapper.costs,
        trace=report.make() if report else None, row_elements=row_elements, row_largest=row_largest,
    )  # fmt: skip


def run_sets(runner: Runner, request: messages.RunSets, program: Program) -> Outputs:
    """Run the program on several sets of inputs, which inputs.bin has one after the other; all their outputs."""
    call, data, outputs, device = request.call, read_inputs(), list[Any](), runner.device
    size = len(data) // request.sets
    for start in range(0, len(data), size):
        flats, tensors = place_inputs(call.inputs, data[start : start + size], device)
        with torch.no_grad(), Allocations() as allocations:
            if device == "cuda":
                replay = Replay(settled(program, call.choice), device, runner.compiled(program).launch)
            else:
                replay = runner.in_machine(program, call, tensors, allocations)
            outputs += replay.run(flats)
    return Outputs(replies.write_outputs(outputs, device))


def find_first_bad(runner: Runner, request: messages.FindFirstBad, program: Program) -> messages.FirstBad:
    """The line of a kernel that makes the first bad number on these inputs."""
    flats, tensors = place_inputs(request.call.inputs, read_inputs(), "cpu")
    follower = Follower(runner.texts.get(runner.setup.module, ""))
    with torch.no_grad(), Allocations() as allocations:
        runner.in_machine(program, request.call, tensors, allocations, [follower], follower.step).run(flats)
    return follower.found or messages.FirstBad()


def read_inputs() -> bytearray:
    """The bytes of the inputs, one after the other."""
    with open("inputs.bin", "rb") as file:
        return bytearray(file.read())


def changed(
    call: Call, flats: dict[str, torch.Tensor], tensors: dict[str, torch.Tensor], data: bytearray
) -> Iterator[str]:
    """Names of the inputs that are not what they were."""
    start = 0
    for spec in call.inputs:
        now = replies.raw_bytes((tensors if spec.sparse else flats)[spec.name])
        if now != data[start : start + len(now)]:
            yield spec.name
        start += len(now)


def inputs_written(step: Operation, made: list[torch.Tensor], flats: dict[str, torch.Tensor]) -> list[str]:
    """Names of the inputs that an operation of PyTorch's wrote into: at the end they may be again what they were."""
    overload = find_overload(step.op, step.overload)
    if not overload._schema.is_mutable or torch.Tag.inplace_view in overload.tags:
        return []
    storages = {tensor.untyped_storage().data_ptr() for tensor in made if tensor.numel()}
    return [name for name, flat in flats.items() if flat.untyped_storage().data_ptr() in storages]


def used_kernels(program: Program) -> list[str]:
    """Names and lines of the kernels that are launched."""
    steps = launches_in(program.setup + program.steps)
    launched = [program.kernels[step.kernel] for step in steps]
    return sorted({f"{kernel.name} (line {kernel.line})" for kernel in launched})


def unseen(program: Program) -> messages.UnseenBytes:
    """What is used and no operation made."""
    used = [program.storages[i] for i in used_storages(program)]
    large = max((s for s in used if isinstance(s, Unseen)), key=lambda s: s.bytes, default=None)
    constants = sum(s.bytes for s in used if isinstance(s, Constant)) + bytes_of_numbers(program)
    return messages.UnseenBytes(large.bytes if large else 0, large.line if large else None, constants)


def bytes_of_numbers(program: Program) -> int:
    """Of the different numbers that stand in steps and texts, where they are more than sizes and strides."""
    found, texts = set[object](), set[str]()
    for step in flat(program.setup + program.steps):
        values: list[Any] = [*step.args, *(step.kwargs.values() if isinstance(step, Operation) else ())]
        each = (inner for value in values for inner in (value if isinstance(value, list) else [value]))
        found.update(value for value in each if isinstance(value, int | Float))
        if isinstance(step, Launch):
            texts.add(program.kernels[step.kernel].text)
    found.update(number for text in texts for number in CONSTANTS.findall(text))
    return 8 * len(found) if len(found) > NUMBERS else 0


def compile_only(runner: Runner, request: messages.Compile, program: Program) -> messages.Compiled:
    from grader.core.run import compiler

    return compiler.compile_program(runner.compiled(program), request, program)


def measure(runner: Runner, request: messages.Time, program: Program) -> messages.Timed:
    runner.timed = runner.timed or time_program(runner.device, runner.compiled(program).launch, request, program)
    return runner.timed.measure(request)


def measure_ours(runner: Runner, request: messages.TimeOurs) -> messages.Timed | Raised:
    """The same of a module of the grader's own, which needs no program."""
    try:
        runner.timed = runner.timed or time_module(runner.device, request)
        return runner.timed.measure(request.time)
    except Exception as error:
        return replies.describe_error(error, "ours.py", "")


REQUESTS = msgspec.json.Decoder(messages.RunnerRequest)
JOBS = {
    messages.Run: answering(run), messages.RunSets: answering(run_sets),
    messages.FindFirstBad: answering(find_first_bad), messages.Compile: answering(compile_only),
    messages.Time: answering(measure), messages.TimeOurs: measure_ours,
}  # fmt: skip
