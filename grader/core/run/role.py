"""What the worker process does as a runner: executes programs of submissions, and never imports one.

What it measures and computes is believed, so it is confined like a recorder and knows no answer.
"""

import contextlib
import functools
import importlib.util
import io
import json
import os
import time
from dataclasses import dataclass, field

import msgspec
import numpy
import torch

from grader.core.inside import replies, sparse
from grader.core.protocol.program import Constant, Malformed, Refused, Unseen, launches_in, read, resolved
from grader.core.run import refusals
from grader.core.run.allocations import INPUT_POISON, Allocations
from grader.core.run.costs import WrapperCosts
from grader.core.run.operations import depends_on_a_launch, forbidden
from grader.core.run.replay import LaunchRaised, Replay, StepRaised, launch, place_inputs, tune, used_storages

GAVE_UP = 1 << 28  # bytes of a program


@dataclass
class Runner:
    """What one child keeps between requests. kernels: by their text, since cases of a problem share them."""

    setup: dict
    kernels: dict = field(default_factory=dict)
    timed: object = None

    @functools.cached_property
    def texts(self):
        """{name: text} of the submission's files: the grader leaves them beside the first request."""
        with open("texts.json") as file:
            return json.load(file)

    def make_kernels(self, program):
        from grader.core.run.build import Kernels, fields_of

        fields = fields_of(program)
        key = msgspec.json.encode(program.kernels), fields
        if key not in self.kernels:
            made = Kernels(program.kernels, fields, self.setup["device"] == "cpu")
            made.check()
            self.kernels[key] = made
        return self.kernels[key]


def get_ready(device):
    """Import what the device needs; returns what the grader is told of this machine, or None."""
    if device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported
    numpy.seterr(all="ignore")  # a kernel's own NaN is judged; numpy's warnings about it are noise
    torch.set_num_threads(1)
    if device == "cpu":
        sparse.reserve()
    if not importlib.util.find_spec("triton"):
        return None
    import triton

    from grader.core.run import build  # noqa: F401

    if device == "cpu":
        from grader.core.inside import without_gpu
        from grader.core.interpret import semantics
        from grader.core.run import trial

        without_gpu.index_with_scalars()
        semantics.enable()
        if fault := trial.check_tracing():
            raise RuntimeError(fault)
        return {"trial_seconds": trial.time_trial()}
    if device == "compile":
        from grader.core.run import compiler  # noqa: F401
    if device == "cuda":  # a wrapper's own allocator is not part of a program
        triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    return None


def begin(setup):
    if setup["device"] == "compile":
        from grader.core.run import compiler

        compiler.get_ready(setup["folder"])
    return Runner(setup)


def describe(error, setup):
    """An exception that is not a step's: the program's own fault, where it is none, or ours."""
    nothing = {"line": None, "source": "", "todo": None, "unfinished": False, "bad_module": False}
    return {"exception": type(error).__name__, "text": f"the program could not be run: {error}"[:2000]} | nothing


# Jobs ----------------------------------------------------------------------------------------------------------------


def answering(job):
    """The job, such that what a program does wrong is told as its own: {"status": "refused", "raised" ...}."""

    def answered(runner, request):
        with open("program.json", "rb") as file:
            data = file.read(GAVE_UP)
        try:
            program = read(data)
            if reply := not_allowed(program, request, runner.texts):
                return reply
            return job(runner, request, program)
        except Malformed as error:
            return {"status": "malformed", "text": str(error)}
        except Refused as error:
            return {"status": "refused", "text": str(error), "line": error.line}
        except LaunchRaised as error:
            reply = describe_raised(error.__cause__, program, request)
            reply["line"] = reply["line"] or error.line
            return {"status": "raised", **reply, "launch": error.number}
        except StepRaised as error:
            reply = describe_raised(error.__cause__, program, request)
            return {"status": "raised", **reply, "line": error.line}

    return answered


def not_allowed(program, request, texts):
    if program.kernels and not request["kernels"]:  # none runs unwatched
        kernel = program.kernels[0]
        return {"status": "a kernel", "kernel": kernel.name, "line": kernel.line}
    for kernel in program.kernels:
        if not stands_there(kernel, texts):
            return {"status": "another text", "kernel": kernel.name, "line": kernel.line}
    step = forbidden(program, request["refused"])
    if step is None:
        return None
    name = step.op if step.namespace == "aten" else f"{step.namespace}.{step.op}"
    return {"status": "not allowed", "operation": name, "line": step.line}


def lines_of(text):
    """Its lines as Python counts them: a form feed, or a separator of Unicode's, ends none."""
    return io.StringIO(text, newline=None).readlines()


def stands_there(kernel, texts):
    """True where a kernel's text is what the submission's file has at its line."""
    lines = lines_of(texts.get(kernel.file, ""))[kernel.line - 1 :]
    wanted = lines_of(kernel.source)
    indent = len(lines[0]) - len(lines[0].lstrip()) if lines else 0
    there = [line[indent:] if not line[:indent].strip() else line for line in lines[: len(wanted)]]
    return [line.rstrip() for line in there] == [line.rstrip() for line in wanted]


def describe_raised(error, program, request):
    """What a step raised, with the line of the kernel where there is one."""
    code = "\n".join(kernel.source for kernel in program.kernels)
    found = replies.describe_error(error, request["module"], code)
    if program.kernels and (words := refusals.in_words(replies.find_causes(error)[-1], found["source"])):
        found |= {"exception": "DoesNotCompile", "text": words}
    found["kind"] = "resources" if type(error).__name__ == "OutOfResources" else "other"
    if found["kind"] == "resources":
        found |= {"needed": error.required, "limit": error.limit, "what": error.name}
    return found


def run(runner, request, program):
    """Run the program on the inputs; what came back is described, its bytes stand in outputs.bin."""
    device = "cuda" if runner.setup["device"] == "cuda" else "cpu"
    kernels = runner.make_kernels(program)
    with open("inputs.bin", "rb") as file:
        data = bytearray(file.read())
    places, bases, tensors = place_inputs(request["inputs"], data, device, INPUT_POISON)
    watch = Allocations()
    trace, wrapper = None, WrapperCosts()
    if request["trace"]:
        from grader.core.run.trace import Trace

        followed = {role: tensors[role] for role in "qkv" if role in tensors}
        trace = Trace(followed, watch, request["module"], {n: base for n, base in bases.items() if n not in followed})
    choose = tune if device == "cuda" else lambda choices, run: request["choice"] % len(choices)

    def observe(step, args, named, made):
        wrapper(step, args, named, made)
        if trace and (step.op.endswith("_") or "out" in named):
            trace.costs.overwritten(made)

    replay = Replay(program, kernels, device, launch, choose, observe)
    started = time.perf_counter()
    with torch.no_grad(), watch, trace or contextlib.nullcontext():
        returned = replay.run(places)
    if device == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - started
    program = resolved(program, replay.chosen)
    reply = {
        "status": "returned", "seconds": seconds, "several": program.several,
        "outputs": replies.write_outputs(returned, device), "changed": changed(bases, data),
        "broken_fences": watch.broken_fences(),
        "trace": trace.report() if trace else None, "wrapper": wrapper.report(),
        "launched": depends_on_a_launch(program), "kernels": used_kernels(program),
        "unseen": unseen(program),
    }  # fmt: skip
    if request.get("row"):
        from grader.core.run import dependents

        reply["held_of_a_row"] = dependents.most(program, kernels, request["inputs"], data, request["row"])
    return reply


def run_sets(runner, request, program):
    """Run the program on several sets of inputs, of which "inputs.bin" has one after the other: their outputs."""
    device = "cuda" if runner.setup["device"] == "cuda" else "cpu"
    kernels = runner.make_kernels(program)
    with open("inputs.bin", "rb") as file:
        data = file.read()
    size, outputs = len(data) // request["sets"], []
    replay = Replay(program, kernels, device, launch)
    for start in range(0, len(data), size):
        places, *_ = place_inputs(request["inputs"], bytearray(data[start : start + size]), device, INPUT_POISON)
        watch, trace = Allocations(), contextlib.nullcontext()
        if device == "cpu":
            from grader.core.run.trace import Trace

            trace = Trace({}, watch, request["module"])
        with torch.no_grad(), watch, trace:
            outputs += replay.run(places)
    return {"status": "returned", "outputs": replies.write_outputs(outputs, device)}


def find_first_bad(runner, request, program):
    """The line of a kernel that makes the first bad number on these inputs: {"found": None or as FirstBad has it}."""
    from grader.core.run.first_bad import FirstBad
    from grader.core.run.trace import Trace

    kernels = runner.make_kernels(program)
    with open("inputs.bin", "rb") as file:
        data = bytearray(file.read())
    places, *_ = place_inputs(request["inputs"], data, "cpu", INPUT_POISON)
    watch = Allocations()
    follow = FirstBad(request["module"], runner.texts.get(request["module"], ""))
    replay = Replay(program, kernels, "cpu", launch)
    replay.observer = lambda step, args, named, made: follow.operation(replay, step.op, args, named, made)
    with torch.no_grad(), watch, Trace({}, watch, request["module"]), follow.open():
        replay.run(places)
    found = follow.found
    if found:
        found["source"] = follow.source(found["line"])
    return {"status": "returned", "found": found, "outputs": []}


def changed(bases, data):
    """Names of the inputs that are not what they were."""
    names, start = [], 0
    for name, base in bases.items():
        now = replies.raw_bytes(base)
        if now != data[start : start + len(now)]:
            names.append(name)
        start += len(now)
    return names


def used_kernels(program):
    """Names and lines of the kernels that are launched."""
    launched = [program.kernels[step.kernel] for step in launches_in(program.setup + program.steps)]
    return sorted({f"{kernel.name} (line {kernel.line})" for kernel in launched})


def unseen(program):
    """Storages that no operation made and that are used: {"bytes", "line" of the largest unseen, "constants"}."""
    used = [program.storages[i] for i in used_storages(program)]
    large = max((s for s in used if isinstance(s, Unseen)), key=lambda s: s.bytes, default=None)
    constants = sum(s.bytes for s in used if isinstance(s, Constant))
    return {"bytes": large.bytes if large else 0, "line": large and large.line, "constants": constants}


def compile_only(runner, request, program):
    from grader.core.run import compiler

    return compiler.compile_program(runner, request, program)


def measure(runner, request, program):
    from grader.core.run import timed

    runner.timed = runner.timed or timed.Timed(runner, request, program)
    return runner.timed.measure(request)


def measure_ours(runner, request):
    """The same of a module of the grader's own, which needs no program."""
    from grader.core.run import timed

    try:
        runner.timed = runner.timed or timed.Timed(runner, request)
        return runner.timed.measure(request)
    except Exception as error:
        return {"status": "raised", **replies.describe_error(error, "ours.py", "")}


JOBS = {
    "run": answering(run), "run sets": answering(run_sets), "first bad": answering(find_first_bad),
    "compile": answering(compile_only), "time": answering(measure), "time ours": measure_ours,
}  # fmt: skip
