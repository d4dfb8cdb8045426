"""What a runner does where kernels are IR: runner.py has the same jobs for Triton's interpreter."""

from typing import Any

import torch

from grader.core.machine import bits_trial
from grader.core.machine.bad_numbers import Follower
from grader.core.machine.report import Report
from grader.core.protocol import messages
from grader.core.protocol.messages import Returned
from grader.core.protocol.program import Operation, Program, resolved
from grader.core.run import dependents, lowered
from grader.core.run.allocations import INPUT_POISON, Allocations
from grader.core.run.operations import made_without_a_launch
from grader.core.run.replay import Replay, place_inputs
from grader.core.run.runner import Runner, changed, read_inputs, unseen, used_kernels
from grader.core.run.wrapper_costs import WrapperMeter
from grader.core.worker import replies


def get_ready() -> float:
    """Raises RuntimeError where bits depend on what runs beside a program."""
    if fault := bits_trial.check():
        raise RuntimeError(fault)
    return 0.0


def run(runner: Runner, request: messages.Run, program: Program) -> Returned:
    """The same where kernels are IR."""
    call, data = request.call, read_inputs()
    places, bases, tensors = place_inputs(call.inputs, data, "cpu", INPUT_POISON)
    allocations, wrapper = Allocations(), WrapperMeter()
    report = Report(tensors, runner.observer) if call.watched else None
    observers = report.observers if report else ()
    kernels = lowered.LoweredKernels(program.lowered, tensors, allocations, runner.texts, observers)

    def observe(step: Operation, args: list[Any], named: dict[str, Any], made: list[torch.Tensor]) -> None:
        wrapper.operation(step, args, named, made)
        if report and (step.op.endswith("_") or "out" in named):
            report.costs.overwritten(made)

    replay = Replay(program, {}, "cpu", None, lambda choices, run: call.choice % len(choices), observe, kernels.launch)
    with torch.no_grad(), allocations:
        returned = replay.run(places)
    program, row_elements, row_largest = resolved(program, replay.chosen), None, None
    if call.row:
        row_elements, row_largest = dependents.most(program, {}, call, data)
    return Returned(
        outputs=replies.write_outputs(returned, "cpu"), several=program.several, changed=changed(bases, data),
        broken_fences=allocations.broken_fences(), without_launch=made_without_a_launch(program),
        kernels=used_kernels(program), unseen=unseen(program), wrapper=wrapper.costs,
        trace=report.make() if report else None, row_elements=row_elements, row_largest=row_largest,
    )  # fmt: skip


def run_sets(runner: Runner, request: messages.RunSets, program: Program) -> messages.Outputs:
    """The same where kernels are IR."""
    data, outputs = read_inputs(), list[Any]()
    size = len(data) // request.sets
    for start in range(0, len(data), size):
        places, _, tensors = place_inputs(request.call.inputs, data[start : start + size], "cpu", INPUT_POISON)
        allocations = Allocations()
        kernels = lowered.LoweredKernels(program.lowered, tensors, allocations, runner.texts)
        with torch.no_grad(), allocations:
            outputs += Replay(program, {}, "cpu", None, launch_lowered=kernels.launch).run(places)
    return messages.Outputs(replies.write_outputs(outputs, "cpu"))


def find_first_bad(runner: Runner, request: messages.FindFirstBad, program: Program) -> messages.FirstBad:
    """The same where kernels are IR."""
    places, _, tensors = place_inputs(request.call.inputs, read_inputs(), "cpu", INPUT_POISON)
    follower, allocations = Follower(runner.texts.get(runner.setup.module, "")), Allocations()
    kernels = lowered.LoweredKernels(program.lowered, tensors, allocations, runner.texts, [follower])
    replay = Replay(program, {}, "cpu", None, observer=follower.step, launch_lowered=kernels.launch)
    with torch.no_grad(), allocations:
        replay.run(places)
    return follower.found or messages.FirstBad()
