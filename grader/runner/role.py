"""What the worker process does as a runner: executes programs of submissions, and never imports one.

What it measures and computes is believed, so it is confined like a recorder and knows no answer.
"""

import contextlib
import importlib.util
import json
import os
import time
from dataclasses import dataclass, field
from math import prod

import numpy
import refusals
import replies
import spans
import torch
from allocations import INPUT_POISON, Allocations
from operations import WITHOUT_KERNELS, depends_on_a_launch, forbidden, volume
from program import Malformed, Refused, flat, read, resolved
from replay import LaunchRaised, Replay, StepRaised, launch, place_inputs, tune, used_storages

GAVE_UP = 1 << 28  # bytes of a program


@dataclass
class Runner:
    """What one child keeps between requests. kernels: by their text, since cases of a problem share them."""

    setup: dict
    kernels: dict = field(default_factory=dict)
    timed: object = None

    def make_kernels(self, program):
        from build import Kernels

        key = json.dumps(program["kernels"])
        if key not in self.kernels:
            made = Kernels(program, self.setup["device"] == "cpu")
            made.check()
            self.kernels[key] = made
        return self.kernels[key]


def get_ready(device):
    """Import what the device needs."""
    if device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported
    numpy.seterr(all="ignore")  # a kernel's own NaN is judged; numpy's warnings about it are noise
    torch.set_num_threads(1)
    if not importlib.util.find_spec("triton"):
        return
    import build  # noqa: F401
    import triton

    if device == "cpu":
        import semantics
        import without_gpu

        without_gpu.index_with_scalars()
        semantics.enable()
        if fault := semantics.check_tracing():
            raise RuntimeError(fault)
    if device == "compile":
        import compiler  # noqa: F401
    if device == "cuda":  # a wrapper's own allocator is not part of a program
        triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda"))


def begin(setup):
    if setup["device"] == "compile":
        import compiler

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
            if reply := not_allowed(program, request):
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


def not_allowed(program, request):
    if program["kernels"] and request["problem"] in WITHOUT_KERNELS:
        kernel = program["kernels"][0]
        return {"status": "a kernel", "kernel": kernel["name"], "line": kernel["line"]}
    for kernel in program["kernels"]:
        if not stands_there(kernel, request["texts"]):
            return {"status": "another text", "kernel": kernel["name"], "line": kernel["line"]}
    step = forbidden(program, request["problem"])
    if step is None:
        return None
    name = step["op"] if step["namespace"] == "aten" else f"{step['namespace']}.{step['op']}"
    return {"status": "not allowed", "operation": name, "line": step["line"]}


def stands_there(kernel, texts):
    """True where a kernel's text is what the submission's file has at its line."""
    lines = texts.get(kernel["file"], "").splitlines()[kernel["line"] - 1 :]
    wanted = kernel["source"].splitlines()
    indent = len(lines[0]) - len(lines[0].lstrip()) if lines else 0
    there = [line[indent:] if not line[:indent].strip() else line for line in lines[: len(wanted)]]
    return [line.rstrip() for line in there] == [line.rstrip() for line in wanted]


def describe_raised(error, program, request):
    """What a step raised, with the line of the kernel where there is one."""
    code = "\n".join(kernel["source"] for kernel in program["kernels"])
    found = replies.describe_error(error, request["module"], code)
    if program["kernels"] and (words := refusals.in_words(replies.find_causes(error)[-1], found["source"])):
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
    watch = Allocations(request["count"], tensors.values())
    looking, trace, observer = contextlib.ExitStack(), None, None
    if request["trace"]:
        from trace import Trace

        bits = Bits(request, tensors)
        followed = {role: tensors[role] for role in "qkv" if role in tensors}
        others = [base for name, base in bases.items() if name not in followed]
        trace = Trace(followed, watch, request["module"], bits.watchers, others)
        observer = trace.origins
    choose = tune if device == "cuda" else lambda choices, run: request["choice"] % len(choices)
    replay = Replay(program, kernels, device, launch, choose, observer)
    started = time.perf_counter()
    with torch.no_grad(), watch, trace or looking:
        returned = replay.run(places)
    if device == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - started
    program = resolved(program, replay.chosen)
    reply = {
        "status": "returned", "seconds": seconds, "several": program["several"],
        "outputs": replies.write_outputs(returned, device), "changed": changed(bases, data),
        "broken_fences": watch.broken_fences(), "largest": watch.largest, "peak": watch.peak,
        "trace": trace.report() if trace else None, "volume": volume(program),
        "launched": depends_on_a_launch(program), "kernels": used_kernels(program),
        "unseen": unseen(program),
    }  # fmt: skip
    if trace:
        reply |= bits.report()
    if request.get("spans"):
        with torch.no_grad():
            reply["keys_of_a_row"] = spans.most_keys(replay, places, tensors)
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
        places, _, tensors = place_inputs(
            request["inputs"], bytearray(data[start : start + size]), device, INPUT_POISON
        )
        watch, trace = Allocations(False, tensors.values()), contextlib.nullcontext()
        if device == "cpu":
            from trace import Trace

            trace = Trace({}, watch, request["module"])
        with torch.no_grad(), watch, trace:
            outputs += replay.run(places)
    return {"status": "returned", "outputs": replies.write_outputs(outputs, device)}


def find_first_bad(runner, request, program):
    """The line of a kernel that makes the first bad number on these inputs: {"found": None or as FirstBad has it}."""
    from trace import Trace

    from first_bad import FirstBad

    kernels = runner.make_kernels(program)
    with open("inputs.bin", "rb") as file:
        data = bytearray(file.read())
    places, _, tensors = place_inputs(request["inputs"], data, "cpu", INPUT_POISON)
    watch = Allocations(False, tensors.values())
    follow = FirstBad(request["module"], request["texts"].get(request["module"], ""))
    replay = Replay(program, kernels, "cpu", launch)
    replay.observer = lambda op, function, args, named, made: follow.operation(replay, op, args, named, made)
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
    launched = {step["launch"] for step in flat(program["setup"] + program["steps"]) if "launch" in step}
    return sorted({f"{program['kernels'][i]['name']} (line {program['kernels'][i]['line']})" for i in launched})


def unseen(program):
    """Storages that no operation made and that are used: {"bytes", "line" of the largest unseen, "constants"}."""
    used = [program["storages"][i] for i in used_storages(program)]
    large = max((s for s in used if s["kind"] == "unseen"), key=lambda s: s["bytes"], default=None)
    constants = sum(s["bytes"] for s in used if s["kind"] == "constant")
    return {"bytes": large["bytes"] if large else 0, "line": large and large["line"], "constants": constants}


class Bits:
    """Of x1: whose bits each program loaded, by their places."""

    def __init__(self, request, tensors):
        self.loaded, self.watchers = {}, {}
        if "lists" in request:
            bits = tensors["bits"]
            self.tile_bytes, self.start = max(1, 4 * prod(bits.shape[1:])), bits.storage_offset() * 4
            self.watchers = {bits.untyped_storage().data_ptr(): self.load}

    def load(self, program, offsets):
        self.loaded.setdefault(program, set()).update(((offsets - self.start) // self.tile_bytes).tolist())

    def report(self):
        return {"bits_loaded": [[program, sorted(places)] for program, places in self.loaded.items()]}


def compile_only(runner, request, program):
    import compiler

    return compiler.compile_program(runner, request, program)


def measure(runner, request, program):
    import timed

    runner.timed = runner.timed or timed.Timed(runner, request, program)
    return runner.timed.measure(request)


def measure_ours(runner, request):
    """The same of a module of the grader's own, which needs no program."""
    import timed

    try:
        runner.timed = runner.timed or timed.Timed(runner, request)
        return runner.timed.measure(request)
    except Exception as error:
        return {"status": "raised", **replies.describe_error(error, "ours.py", "")}


def look_at_program(runner, request, program):
    import candidates

    return candidates.look(runner, request, program)


def run_candidates(runner, request, program):
    import candidates

    return candidates.run(runner, request, program)


JOBS = {
    "run": answering(run), "run sets": answering(run_sets), "first bad": answering(find_first_bad),
    "compile": answering(compile_only), "time": answering(measure), "time ours": measure_ours,
    "look": answering(look_at_program), "candidates": answering(run_candidates),
}  # fmt: skip
