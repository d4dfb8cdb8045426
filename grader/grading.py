"""One case's way from the request to the result: inputs, child, verdict; a new child where one was lost."""

import importlib.util
import math
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from grader import agreement, asking, assignment, compiling, honesty, sandbox, speed, verdict
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
    options: tuple[str, ...] = ()  # of make, that a case needs to run again as it did
    targets: tuple[str, ...] = ()  # GPUs to compile for, names of gpus.py
    all_targets: bool = True  # False: until the first that the kernels compile for

    def cases(self, problem):
        """The cases of `problem` that run on this device and have the name that was asked for."""
        every = (*problem.cases, *problem.memory_cases)
        return [
            c for c in every if (self.device == "cuda" or not c.gpu) and (self.names is None or c.name in self.names)
        ]

    def compiles(self, problem):
        """True where the kernels of `problem` are to be compiled."""
        return bool(self.targets) and problem.uses_triton and (self.names is None or compiling.CASE in self.names)

    def again(self, problem, case_name):
        """The command that runs one case again."""
        parts = [f"make grade P={problem.number}", f'CASE="{case_name}"']
        parts += [] if self.default_submission else [f'SUBMISSION="{self.submission}"']
        parts += [f"SEED={self.seed}"] if self.seed else []
        return " ".join([*parts, *self.options])


def grade(request, lanes, on_result=lambda result: None):
    """Grade every problem of the request, `lanes` at a time; the results of each problem in the order of its cases."""

    def one(problem):
        results = []

        def keep(result):
            results.append(result)
            on_result(result)

        ProblemGrader(request, problem, keep).run()
        agreement.settle(problem, {case.name: case for case in request.cases(problem)}, request.seed, results)
        return results

    torch.set_num_threads(1)  # the lanes are the parallelism: small tensors, many questions
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
        self.seconds, self.spent = assignment.SECONDS_PER_CASE[request.device], 0.0
        self.child, self.timeouts, self.fault = None, 0, None
        self.again = honesty.Again(problem, request.cases(problem), request.device)

    def run(self):
        cases = self.request.cases(self.problem)
        given = self.cannot_run()
        try:
            outcomes = [self.graded(case, given) for case in cases]
        finally:
            self.close()
        if self.request.compiles(self.problem):
            self.compile(outcomes, given)
        if self.problem.speed_case and self.request.names is None:
            self.speed(outcomes)

    def graded(self, case, given):
        """Grade one case, or give it the verdict that holds for all; returns the outcome."""
        started = time.perf_counter()
        try:
            result = self.result(case, *(given or self.fault)) if given or self.fault else self.grade_case(case)
        except WorkerBroken as broken:
            self.fault = grader_fault(broken)  # the next case would fare no better
            result = self.result(case, *self.fault)
        except Exception as error:  # ours, whatever it is: it must not cost a point, nor the other cases
            result = self.result(case, *grader_fault(error))
        self.again.graded(case.name, passed=False)  # of one that was asked nothing is left to be drawn
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
        whole = assignment.SECONDS_PER_PROBLEM[self.request.device]
        if self.spent > whole:
            sentence = f"Not run: the cases before took {self.spent:.0f} s; all of a problem have {whole:g} s together."
            return self.result(case, Outcome.NOT_RUN, sentence)
        how = asking.how(case)
        placed = how.placed(case, self.request.seed)
        try:
            reply = self.ask(how, case, placed)
            outputs = self.outputs(reply, placed)
        except ChildFailed as failure:
            return self.child_failed(case, failure)
        printed = self.child.output.take()
        if reply["status"] == "raised":
            if reply.get("broken") or self.child.loading:
                self.close()
            return self.result(case, *verdict.of_exception(reply, self.problem), printed=printed)
        judged = how.judged(self.problem, case, placed, reply, outputs, self.request.device)
        evidence = []
        if honesty.worth_judging(judged[0], reply):
            evidence = honesty.judge(self.problem, case, reply, placed)
        if evidence:
            judged = honesty.held(evidence)
        elif judged[0] is Outcome.PASSED:
            try:
                judged = self.asked_again(how, case, reply, outputs) or judged
                self.again.graded(case.name, passed=True)
            except ChildFailed as failure:
                return self.child_failed(case, failure)
        return self.result(case, *judged, printed=printed)

    def asked_again(self, how, case, reply, outputs):
        """(outcome, sentence, facts) where a case that passed, and was drawn, shows something when asked again."""
        if case.name == self.again.values:
            size = sum(output_bytes(output) for output in reply["outputs"][:1])
            first = outputs.read_bytes()[:size]  # what comes back next takes its place
            outcome, other, outputs = self.ask_other(how, case)
            same = outputs is not None and outputs.read_bytes()[:size] == first
            found = honesty.of_other_values(outcome, same, reply.get("evidence") or {}, other.get("evidence") or {})
            if found:
                return found
        if case.name == self.again.without:
            return honesty.of_no_launches(self.ask_other(how, case, suppressed=True)[0])
        return None

    def ask_other(self, how, case, **more):
        """(outcome, reply, outputs) of a case on inputs that nobody can know beforehand."""
        placed = how.placed(case, honesty.Again.seed())
        reply = self.ask(how, case, placed, **more)
        outputs = self.outputs(reply, placed)
        if reply["status"] == "raised":
            return Outcome.CRASHED, reply, outputs
        return how.judged(self.problem, case, placed, reply, outputs, self.request.device)[0], reply, outputs

    def ask(self, how, case, placed, **more):
        """The child's reply; the module is loaded first where no child is alive. Its seconds are the submission's."""
        started = time.monotonic()
        try:
            return self.reply(how, case, placed, **more)
        finally:
            self.spent += time.monotonic() - started

    def reply(self, how, case, placed, **more):
        if self.child is None:
            keywords, device = self.problem.keywords, self.request.device
            self.child = Child(self.path, self.problem.entry_point, keywords, device, self.seconds)
        if self.child.loading:
            return self.child.loading
        folder, device = self.child.folder, self.request.device
        self.asked = how.request(self.problem, self.path, case, placed, folder, device) | more
        return self.child.call(self.asked, self.seconds)

    def outputs(self, reply, placed):
        """The file with the bytes that came back, where the request has any."""
        if reply["status"] == "raised" or "outputs" not in reply:
            return None
        try:
            size = verdict.bytes_of(reply["outputs"], self.request.device)
        except (AttributeError, KeyError, TypeError):  # no worker of ours describes its outputs so
            raise ChildFailed("forged", "a reply came that is not the grader's own") from None
        if "inputs" in self.asked:
            size += sum(tensor.base.nbytes for tensor in placed)
        return self.child.returned("outputs.bin", size)

    def child_failed(self, case, failure):
        printed, line = failure.printed, failure.line
        if self.child:
            line = self.child.where() if failure.how == "timed out" else None
            printed = self.child.output.take()
        self.close()
        if failure.how == "timed out":
            self.timeouts += 1
            at = f" It was at {self.problem.module}:{line}." if line else ""
            hint = " Does every loop end, and does it step by a whole tile?"
            return self.result(case, Outcome.TIMED_OUT, f"Stopped: {failure}.{at}{hint}", printed=printed)
        if failure.how == "forged":
            evidence = f"The code reached for the grader: {failure}. Nothing that came with it counts."
            return self.result(case, *honesty.held([evidence]), printed=printed)
        hint = " Does a pointer leave its tensor?" if "SIGSEGV" in str(failure) else ""
        return self.result(case, Outcome.CRASHED, f"Your code did not return: {failure}.{hint}", printed=printed)

    def compile(self, outcomes, given):
        """Compile the submission's kernels for the GPUs asked for; an unfinished problem is spared."""
        case = replace(self.problem.compiled_case, name=compiling.CASE, **compiling.SHAPE)
        passed = Outcome.PASSED in outcomes
        started, printed = time.perf_counter(), ""
        if given:
            outcome, sentence, facts = *given, {"compile": []}
        elif outcomes and not passed:
            outcome, sentence, facts = Outcome.NOT_RUN, "not compiled: no case has passed", {"compile": []}
        else:
            try:
                targets, every = self.request.targets, self.request.all_targets
                judged = compiling.judge(self.problem, self.path, targets, passed, every)
                outcome, sentence, facts, printed = judged
            except WorkerBroken as broken:
                outcome, sentence, facts = Outcome.NOT_RUN, f"not compiled: {broken}", {"compile": []}
            except Exception as error:
                outcome, sentence, facts = *grader_fault(error), {"compile": []}
        result = self.result(case, outcome, sentence, facts, printed, Aspect.COMPILE)
        result.seconds = time.perf_counter() - started
        self.keep(result)

    def speed(self, outcomes):
        """Time the submission against the naive attention and the reference, where that is possible and earned."""
        case = self.problem.speed_case
        if self.request.device != "cuda":
            return self.keep(self.result(case, Outcome.NOT_RUN, "not run: needs a GPU", aspect=Aspect.SPEED))
        if all(outcome in (Outcome.PASSED, Outcome.GRADER_FAULT) for outcome in outcomes):
            if Outcome.GRADER_FAULT in outcomes:  # not timed because of us: the speed is not lost either
                sentence = "The grader failed on a case before, not your code; no points are taken."
                return self.keep(self.result(case, Outcome.GRADER_FAULT, sentence, aspect=Aspect.SPEED))
        else:
            sentence = "not run: only a kernel that passes every case is timed"
            return self.keep(self.result(case, Outcome.NOT_RUN, sentence, {"earned": False}, aspect=Aspect.SPEED))
        started = time.perf_counter()
        try:
            outcome, sentence, facts = speed.judge(self.problem, self.path, self.request.seed)
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


def output_bytes(output):
    """Of a returned tensor, as child/outputs.py describes it."""
    return math.prod(output["shape"]) * getattr(torch, output["dtype"]).itemsize


def grader_fault(error):
    """(outcome, sentence) for a failure that is not the student's."""
    text = str(error).strip() or type(error).__name__
    return (
        Outcome.GRADER_FAULT,
        f"The grader failed, not your code; no points are taken. {type(error).__name__}: {text}",
    )


def triton_is_here():
    return importlib.util.find_spec("triton") is not None
