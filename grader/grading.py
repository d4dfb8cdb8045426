"""One case's way from the question to the verdict: inputs, child, comparison, diagnosis, result."""

import math
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch

from grader import assignment, compare, diagnose, inputs, oracle, sandbox, timing
from grader.result import Aspect, Outcome, Result
from grader.sandbox import Child, ChildFailed, WorkerBroken


@dataclass(frozen=True)
class Request:
    """What to grade: a folder, the problems, the names of the cases or None for all, where, and with which inputs."""

    submission: Path
    problems: tuple[assignment.Problem, ...]
    names: frozenset[str] | None
    device: str
    seed: int
    default_submission: bool = True

    def cases(self, problem):
        """The cases of `problem` that run on this device and have the name that was asked for."""
        every = (*problem.cases, *problem.memory_cases)
        return [
            c for c in every if (self.device == "cuda" or not c.gpu) and (self.names is None or c.name in self.names)
        ]

    def again(self, problem, case_name):
        """The command that runs one case again."""
        parts = [f"make grade P={problem.number}", f'CASE="{case_name}"']
        parts += [] if self.default_submission else [f'SUBMISSION="{self.submission}"']
        parts += [f"SEED={self.seed}"] if self.seed else []
        return " ".join(parts)


def grade(request, lanes, on_result=lambda result: None):
    """Grade every problem of the request, `lanes` at a time; the results of each problem in the order of its cases."""

    def one(problem):
        results = []

        def keep(result):
            results.append(result)
            on_result(result)

        ProblemGrader(request, problem, keep).run()
        return results

    pool = ThreadPoolExecutor(lanes)
    try:
        return [result for results in pool.map(one, request.problems) for result in results]
    except BaseException:  # Ctrl-C: the threads wait for children, so the children go first
        pool.shutdown(wait=False, cancel_futures=True)
        sandbox.close_all()
        raise
    finally:
        pool.shutdown(wait=False)


class ProblemGrader:
    """Grades one problem: a child for its module, started anew when a case kills it."""

    def __init__(self, request, problem, keep):
        self.request, self.problem, self.keep = request, problem, keep
        self.path = request.submission / problem.module
        self.seconds = assignment.SECONDS_PER_CASE[request.device]
        self.child, self.timeouts, self.fault = None, 0, None

    def run(self):
        cases = self.request.cases(self.problem)
        verdict = self.cannot_run()
        try:
            outcomes = [self.verdict(case, verdict) for case in cases]
        finally:
            self.close()
        if self.problem.speed_case and self.request.names is None:
            self.speed(outcomes)

    def verdict(self, case, given):
        """Grade one case, or give it the verdict that holds for all; returns the outcome."""
        started = time.perf_counter()
        try:
            result = self.result(case, *(given or self.fault)) if given or self.fault else self.grade_case(case)
        except WorkerBroken as broken:
            self.fault = grader_fault(broken)  # the next case would fare no better
            result = self.result(case, *self.fault)
        except Exception as error:  # ours, whatever it is: it must not cost a point, nor the other cases
            result = self.result(case, *grader_fault(error))
        result.seconds = time.perf_counter() - started
        self.keep(result)
        return result.outcome

    def cannot_run(self):
        """(outcome, sentence) where nothing of this problem can run, else None."""
        if not self.path.is_file():
            return Outcome.NOT_RUN, f"There is no {self.problem.module} in {self.request.submission}."
        if self.problem.uses_triton and not triton_is_here():
            return (
                Outcome.NOT_RUN,
                "Triton is not installed; it has wheels for Linux only. The ways round: README.md, 'Without Linux'.",
            )
        return None

    def result(self, case, outcome, sentence="", facts=None, printed="", aspect=None):
        aspect = aspect or (Aspect.WORK if case in self.problem.memory_cases else Aspect.CORRECT)
        return Result(
            self.problem.id, case.name, aspect, outcome, sentence, facts or {},
            case.describe(self.request.seed), self.request.again(self.problem, case.name), printed,
        )  # fmt: skip

    def grade_case(self, case):
        if self.timeouts >= assignment.TIMEOUTS_BEFORE_GIVING_UP:
            return self.result(
                case, Outcome.NOT_RUN, f"Not run: {self.timeouts} cases of this problem timed out before."
            )
        placed = inputs.make(case, self.request.seed)
        try:
            reply = self.ask(case, placed)
        except ChildFailed as failure:
            return self.child_failed(case, failure)
        printed = self.child.output.take()
        if reply["status"] == "raised":
            if reply.get("broken") or self.child.loading:
                self.close()
            return self.result(case, *explain_exception(reply, self.problem), printed=printed)
        return self.judge(case, placed, reply, printed)

    def ask(self, case, placed):
        """The child's reply; the module is loaded first where no child is alive."""
        if self.child is None:
            arguments = self.problem.cases[0].arguments
            self.child = Child(self.path, self.problem.entry_point, arguments, self.request.device, self.seconds)
        if self.child.loading:
            return self.child.loading
        with open(self.child.folder / "inputs.bin", "wb") as file:
            for tensor in placed:
                file.write(tensor.base.view(torch.uint8).numpy().tobytes())
        described = [
            {
                "dtype": case.dtype, "elements": t.base.numel(), "shape": t.shape,
                "strides": t.strides, "offset": t.offset,
            }
            for t in placed
        ]  # fmt: skip
        request = {"op": "run", "inputs": described, "arguments": case.arguments}
        return self.child.call({**request, "count": case in self.problem.memory_cases}, self.seconds)

    def child_failed(self, case, failure):
        printed = self.child.output.take() if self.child else failure.printed
        self.close()
        if failure.how == "timed out":
            self.timeouts += 1
            return self.result(
                case, Outcome.TIMED_OUT, f"Stopped: {failure}. Does every loop end, and does it step by a whole tile?",
                printed=printed,
            )  # fmt: skip
        return self.result(case, Outcome.CRASHED, f"Your code did not return: {failure}.", printed=printed)

    def judge(self, case, placed, reply, printed):
        """The verdict on what came back: form, safety, memory, values, in this order."""
        form = wrong_form(self.problem, case, reply, self.request.device)
        if form:
            return self.result(case, Outcome.WRONG, form, printed=printed)
        outputs, bases_after = read_outputs(self.child.folder / "outputs.bin", reply, placed)
        changed = [
            name for name, t, after in zip("qkv", placed, bases_after, strict=True) if not same_bits(t.base, after)
        ]
        if changed:
            return self.result(
                case, Outcome.UNSAFE,
                f"Your code wrote into its input {', '.join(changed)}: inputs must stay as they were.",
                printed=printed,
            )  # fmt: skip
        if reply["broken_fences"]:
            shapes = " and ".join(str(tuple(shape)) for shape in reply["broken_fences"])
            return self.result(
                case, Outcome.UNSAFE,
                f"Your code wrote past the end (or before the beginning) of the tensor of shape {shapes} that it "
                "allocated: is every store masked where rows may not exist, and does it use the output's own strides?",
                printed=printed,
            )  # fmt: skip
        q, k, v = (t.tensor for t in placed)
        answer = self.expect(q, k, v, case)
        facts = compare.mismatch(outputs[0], answer.o, answer.allowed_o)
        if facts:
            sentence = diagnose.locate(facts) + diagnose.name_the_mistake(case, q, k, v, outputs[0], answer)
            return self.result(case, Outcome.WRONG, sentence, facts, printed)
        if self.problem.returns_lse:
            facts = compare.mismatch(outputs[1], answer.lse, answer.allowed_lse)
            if facts:
                sentence = (
                    f"o is right, lse is not: {diagnose.locate(facts)}{diagnose.name_lse(outputs[1], answer.lse)}"
                )
                return self.result(case, Outcome.WRONG, sentence, facts, printed)
        if case in self.problem.memory_cases:
            return self.judge_memory(case, reply, printed)
        return self.result(case, Outcome.PASSED, printed=printed)

    def judge_memory(self, case, reply, printed):
        limit = case.N * case.num_keys
        facts = {"largest_tensor": reply["largest"], "peak_elements": reply["peak"], "limit": limit}
        sentence = ""
        if reply["largest"] >= limit:
            sentence = (
                f"A tensor of {reply['largest']} elements was made; the whole score matrix has {limit} "
                f"({case.N} x {case.num_keys}). Keep one tile of it at a time."
            )
        elif reply["peak"] >= limit:
            sentence = (
                f"{reply['peak']} elements were alive at once; the whole score matrix has {limit}. Let go of each tile "
                "when its part is added up."
            )
        outcome = Outcome.WASTEFUL if sentence else Outcome.PASSED
        return self.result(case, outcome, sentence, facts, printed)

    def expect(self, q, k, v, case):
        """The oracle's answer; on a GPU machine it is computed there, in the grader's own process."""
        device = self.request.device
        tf32 = device == "cuda" and self.problem.uses_triton
        answer = oracle.expect(q.to(device), k.to(device), v.to(device), case.visibility, tf32)
        tensors = (answer.o, answer.lse, answer.allowed_o, answer.allowed_lse)
        return oracle.Expected(*(t.cpu() for t in tensors), answer.relative)

    def speed(self, outcomes):
        """Time the submission against the naive attention and the reference, where that is possible and earned."""
        case = self.problem.speed_case
        if self.request.device != "cuda":
            return self.keep(self.result(case, Outcome.NOT_RUN, "not run: needs a GPU", aspect=Aspect.SPEED))
        if any(outcome != Outcome.PASSED for outcome in outcomes):
            sentence = "not run: only a kernel that passes every case is timed"
            return self.keep(self.result(case, Outcome.NOT_RUN, sentence, {"earned": False}, aspect=Aspect.SPEED))
        started = time.perf_counter()
        try:
            outcome, sentence, facts = timing.judge(self.problem, self.path, self.request.seed)
        except ChildFailed as failure:
            outcome, sentence, facts = Outcome.CRASHED, f"While it was timed, your code did not return: {failure}.", {}
        except Exception as error:
            outcome, sentence, facts = *grader_fault(error), {}
        result = self.result(case, outcome, sentence, facts, aspect=Aspect.SPEED)
        result.seconds = time.perf_counter() - started
        return self.keep(result)

    def close(self):
        if self.child:
            self.child.close()
        self.child = None


def grader_fault(error):
    """(outcome, sentence) for a failure that is not the student's."""
    text = str(error).strip() or type(error).__name__
    return (
        Outcome.GRADER_FAULT,
        f"The grader failed, not your code; no points are taken. {type(error).__name__}: {text}",
    )


def triton_is_here():
    import importlib.util

    return importlib.util.find_spec("triton") is not None


def explain_exception(reply, problem):
    """(outcome, sentence) for an exception that the submission raised, while it loaded or while it ran."""
    at = f"{problem.module}:{reply['line']}" if reply["line"] else problem.module
    if reply["bad_module"]:
        return Outcome.CRASHED, f"{reply['text']}. It must be {problem.signature}."
    if reply["unfinished"]:
        return Outcome.UNFINISHED, reply["todo"] or f"NotImplementedError at {at}"
    text = reply["text"].strip()
    first, *rest = text.splitlines() or [""]
    text = first if not rest else f"{first} [...] {rest[-1].strip()}"
    source = f" in `{reply['source']}`" if reply["source"] else ""
    return Outcome.CRASHED, f"{reply['exception']} at {at}{source}: {text[:400]}".rstrip(": ")


def wrong_form(problem, case, reply, device):
    """A sentence where what came back is not tensors of the right number, shape, dtype and device, else None."""
    shape = [case.B, case.Hq, case.N, case.D]
    wanted = {"o": (shape, case.dtype)}
    if problem.returns_lse:
        wanted["lse"] = (shape[:3], "float32")
    got = reply["outputs"]
    if reply["several"] != problem.returns_lse or len(got) != len(wanted):
        came = f"{len(got)} values" if reply["several"] else f"one {got[0]['type']}"
        return f"{problem.entry_point} must return {' and '.join(wanted)}; it returned {came}."
    for (name, (want_shape, want_dtype)), output in zip(wanted.items(), got, strict=True):
        if not output["plain"]:
            return f"{name} must be a plain torch.Tensor; it is a {output['type']}."
        if output["shape"] != want_shape:
            return f"{name} has the shape {tuple(output['shape'])}; it must be {tuple(want_shape)}."
        if output["dtype"] != want_dtype:
            return f"{name} is {output['dtype']}; it must be {want_dtype}."
        if output["device"] != device:
            return f"{name} is on {output['device']}; the inputs are on {device}."
    return None


def read_outputs(path, reply, placed):
    """The returned tensors, and the buffers of q, k and v as they are now, from the child's raw bytes."""
    data = bytearray(path.read_bytes())
    pieces = [(tuple(o["shape"]), getattr(torch, o["dtype"])) for o in reply["outputs"]]
    pieces += [((t.base.numel(),), t.base.dtype) for t in placed]
    tensors, start = [], 0
    for shape, dtype in pieces:
        count = math.prod(shape)
        tensors.append(torch.frombuffer(data, dtype=dtype, count=count, offset=start).reshape(shape))
        start += count * tensors[-1].element_size()
    return tensors[: len(reply["outputs"])], tensors[len(reply["outputs"]) :]


def same_bits(a, b):
    return torch.equal(a.view(torch.uint8), b.view(torch.uint8))
