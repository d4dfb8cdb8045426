"""One case: the way from its inputs to its result, in one place where kernels run: the machine, or a GPU."""

import secrets
import time
from dataclasses import replace

from msgspec import structs

from grader import failures, unfinished
from grader.core.protocol.messages import Raised, Returned, Run
from grader.core.sandbox import pool
from grader.core.sandbox.child import CannotStart, ChildFailed, TimedOut
from grader.core.sandbox.submission import Submission
from grader.core.sandbox.texts import shortened
from grader.course import course
from grader.course.problem import SECONDS_PER_CASE
from grader.engine.case_runs import CaseRuns
from grader.gpu import compiling, machine
from grader.result import Aspect, Outcome, Result, Verdict

CLEARED = 2  # crashes of a problem in which our own kernel was asked, and passed: then the next are not doubted
UNSURE = "This handout has no kernel to try in the same place, so it is not certain that the fault is yours."
RIGHT = (Outcome.PASSED, Outcome.WASTEFUL)


class CaseGrader:
    """Grades cases of the module at `path`, one after the other. device: "cpu" is the machine, "cuda" a GPU.

    fault: the Verdict that holds for all cases from now on, or None.
    """

    def __init__(self, request, problem, path, device):
        self.request, self.problem, self.path, self.device = request, problem, path, device
        self.kind = problem.kind
        self.submission = self.submit(path, problem)
        self.runs = CaseRuns(request, self.submission)
        self.fault, self.cleared = None, 0

    def submit(self, path, problem):
        gpu = machine.first_gpu() if self.device == "cuda" else None
        return Submission(path, problem, self.device, SECONDS_PER_CASE[self.device], gpu)

    def graded(self, case, given=None):
        """The Result of a case. given: the Verdict that holds for all."""
        started = time.perf_counter()
        known = given or self.fault
        result = self.result(case, known) if known else self.without_doubt(case)
        result.seconds = time.perf_counter() - started
        return result

    def result(self, case, verdict, aspect=Aspect.CORRECT):
        """The Result that says this Verdict on a case."""
        return Result(
            self.problem.id, case.name, aspect, verdict.outcome, shortened(verdict.sentence), verdict.facts,
            case.describe(self.request.seed_told), self.request.again(self.problem, case.name), verdict.printed,
            diagnosis=verdict.diagnosis,
        )  # fmt: skip

    def without_doubt(self, case):
        """The result of a case. What may be a fault of ours is tried again by new processes, and is believed to be one
        only where our own kernel fails in the same place: a fault must not be worth provoking.
        """
        result, doubt = self.attempt(case)
        if doubt is not None:
            self.runs.drop_ahead()
        if doubt is None or (self.cleared >= CLEARED and not isinstance(doubt, Exception)):
            return result
        self.runs.close()
        solution = (course.current().solutions / self.problem.module).is_file()
        ours_passes = self.solution_passes(case) if solution else self.canary_returns()
        if not ours_passes:  # perhaps the runner that all share is what fails
            pool.renew()
        result, doubt = self.attempt(case)  # last: what failed us for a moment is over by now
        if doubt is None:
            return result
        self.runs.close()
        # A process that did not start ran nothing of theirs; that a kernel of ours runs says nothing of our own errors.
        if ours_passes and not isinstance(doubt, CannotStart if solution else Exception):
            self.cleared += 1
            result.sentence += "" if solution else f" {UNSURE}"
            return result
        if isinstance(doubt, CannotStart):
            self.fault = failures.as_verdict(doubt)  # the next case would fare no better
        return self.result(case, failures.as_verdict(doubt))

    def solution_passes(self, case):
        """True where the solution passes this case here, now; it goes the way that the submission went."""
        path = course.current().solutions / self.problem.module
        solution = CaseGrader(self.request, self.problem, path, self.device)
        try:
            result, doubt = solution.attempt(case)
        finally:
            solution.runs.close()
        return doubt is None and result.outcome is Outcome.PASSED

    def canary_returns(self):
        """True where a kernel of the grader's own runs here, now: a handout has no solution to try."""
        subject, submission = compiling.CANARY_SUBJECT, self.submit(compiling.CANARY, compiling.CANARY_SUBJECT.problem)
        call = structs.replace(subject.call, watched=self.device == "cpu")
        size = sum(2 * spec.elements for spec in call.inputs)  # bytes, float16
        try:
            return submission.run(Run(call), {"inputs.bin": bytes(size)}).returned
        except (CannotStart, ChildFailed):
            return False
        finally:
            submission.close()

    def attempt(self, case):
        """(the result of a case, why it may be our fault or None)."""
        try:
            try:
                verdict = self.grade_in_time(case)
            except ChildFailed as failure:
                verdict = self.runs.explain_failure(failure)
            return self.result(case, verdict), verdict.doubt
        except Exception as error:
            failures.log(f"{self.problem.id}, case {case.name!r},", error)
            sentence = f"Your code could not be graded, and ours can: {failures.name(error)}."
            return self.result(case, Verdict(Outcome.CRASHED, sentence)), error

    def grade_in_time(self, case):
        """As `grade_case`, a second time alone where the first did not end: what was slow may be the machine."""
        try:
            return self.grade_case(case)
        except TimedOut:
            self.runs.close()
        with self.runs.alone():
            return self.grade_case(case)

    def grade_case(self, case):
        """The Verdict on a case. Raises ChildFailed where processes gave no reply."""
        run, handler = self.runs.take(case), self.kind.handler(case)
        if run.verdict:
            return run.verdict
        reply = run.answer.reply
        if not run.answer.returned:
            self.runs.close() if self.device == "cuda" else None  # its context may be lost
            verdict = unfinished.explain_reply(reply, self.problem, self.path)
            doubtful = verdict.outcome is Outcome.CRASHED and unexplained(reply)
            return replace(verdict, printed=run.printed, doubt=verdict.sentence if doubtful else None)
        self.runs.look_ahead(case)
        verdict = handler.judge(self.problem, case, run.placed, run.answer, self.device)
        if isinstance(reply, Returned) and verdict.outcome in RIGHT:
            wrong = self.judge_on_other_numbers(handler, case, run.answer) if reply.unseen.constants else None
            evidence = [] if wrong else handler.own_work(self.problem, case, reply)
            verdict = wrong or (unfinished.needs_review(evidence) if evidence else verdict)
        return replace(verdict, printed=run.printed)

    def judge_on_other_numbers(self, handler, case, answer):
        """The Verdict where a program that has run is wrong on numbers that nobody could know, else None.

        What a program brings along may be the answer to a case, made from the public seed.
        """
        placed = handler.inputs(case, secrets.token_hex(8))
        call, files = handler.request(self.problem, case, placed, self.device)
        other = self.runs.run_program(call, answer.program, files)
        if other.returned and handler.judge(self.problem, case, placed, other, self.device).outcome in RIGHT:
            return None
        sentence = "The numbers that your wrapper brings along give the right output for this case's inputs alone."
        return Verdict(Outcome.WRONG, sentence)


def unexplained(reply):
    """True for a crash that names no line of the submission, or that arose in a file of ours."""
    if isinstance(reply, Raised):
        return reply.ours or not (reply.line or reply.bad_module)
    return not getattr(reply, "line", None)
