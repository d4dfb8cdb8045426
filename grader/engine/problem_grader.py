"""One problem: each case's way from the request to its result, then what is judged of the problem as a whole."""

import contextlib
import functools
import importlib.util
import secrets
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import torch

from grader.core.protocol.messages import Raised, Returned
from grader.core.sandbox import sandboxed_child
from grader.core.sandbox.child import CannotStart, ChildFailed, TimedOut
from grader.core.sandbox.submission import Submission
from grader.core.sandbox.texts import clean, shortened
from grader.course import course
from grader.course.problem import COMPILES, SECONDS_PER_CASE, WORK
from grader.diagnosis import cross_case, failures, faults, unfinished
from grader.engine import aspects, canary
from grader.engine.case_runs import CaseRuns
from grader.gpu import machine, speed
from grader.kinds import registry
from grader.result import Aspect, Outcome, Result, Verdict

CLEARED = 2  # crashes of a problem in which our own kernel was asked, and passed: then the next are not doubted
FEW_OTHERS = 6  # cases that are judged beside the one that was asked for, where its cause is certain
RIGHT = (Outcome.PASSED, Outcome.WASTEFUL)


class ProblemGrader:
    """Grades one problem; `results` has what is known. spare: a core is free for what can run beside the cases."""

    def __init__(self, request, problem, on_case, folder=None, on_look=lambda problem, words: None, spare=False):
        self.request, self.problem, self.on_case, self.on_look, self.results = request, problem, on_case, on_look, []
        self.spare = spare
        self.kind = registry.kind_of(problem)
        self.path = (folder or request.submission) / problem.module
        self.submission = Submission(self.path, problem, "cpu", SECONDS_PER_CASE["cpu"])
        self.runs = self.in_machine = CaseRuns(request, self.submission)
        self.on_gpu, self.gpu_cases = None, None  # names of those that a GPU runs, too; None: all
        if request.device == "cuda":
            gpu = machine.first_gpu() if torch.cuda.is_available() else None
            self.on_gpu = CaseRuns(request, Submission(self.path, problem, "cuda", SECONDS_PER_CASE["cuda"], gpu))
        self.fault, self.cleared, self.beside = None, 0, {}

    def run(self):
        """All but the speed."""
        cases = self.request.cases(self.problem)
        given = self.cannot_run()
        if not given:
            self.submission.begin()
            self.begin_on_gpu(cases)
        try:
            with self.in_machine.looking_ahead([case for case in cases if not case.gpu]):
                results = [self.graded(case, given) for case in cases]
            self.outcomes = [result.outcome for result in results]
            with failures.harmless("the search for causes"):
                self.kind.find_causes({case.name: case for case in cases}, self.results)
            self.explain(*self.with_others(cases))
        finally:
            self.close()
        if self.request.judges_work(self.problem):
            judged = self.kind.long_case(cases) or cases[0]
            self.judge(replace(judged, name=WORK), Aspect.WORK, aspects.judge_work, self.problem, results)
        if self.request.compiles(self.problem):
            case = self.kind.compiled_case(self.problem, COMPILES)
            self.judge(case, Aspect.COMPILE, self.compiled, given)

    def compiled(self, given):
        """The Verdict on the kernels' compiling, which may have begun beside the cases."""
        if begun := self.beside.get("compiled"):
            return begun.result()
        return aspects.compile_kernels(self.request, self.problem, self.path, given, self.outcomes)

    def speed(self):
        about = self.request, self.problem, self.path, self.outcomes, self.beside.get("host")
        self.judge(self.problem.speed_case, Aspect.SPEED, aspects.judge_speed, *about)

    def is_timed(self):
        """True where its speed is asked for, too."""
        return self.problem.speed_case and self.request.names is None

    def judge(self, case, aspect, judge, *about):
        """Keep the result of what is judged of the problem as a whole: judge(*about) gives the Verdict."""
        started = time.perf_counter()
        result = self.result(case, judge(*about), aspect)
        result.seconds = time.perf_counter() - started
        self.keep(result)

    def keep(self, result):
        self.results.append(result)
        self.on_case(self.problem, result.case)

    def result(self, case, verdict, aspect=Aspect.CORRECT):
        return Result(
            self.problem.id, case.name, aspect, verdict.outcome, shortened(verdict.sentence), verdict.facts,
            case.describe(self.request.seed_told), self.request.again(self.problem, case.name), verdict.printed,
            diagnosis=verdict.diagnosis,
        )  # fmt: skip

    def cannot_run(self):
        """The Verdict where nothing of this problem can run, else None."""
        module, here = self.problem.module, self.path.is_file()
        if (self.request.submission / module).is_symlink() and not here:
            sentence = f"{module} is a link, and none is followed: put the file there."
        elif not here:
            sentence = f"There is no {module} in {clean(str(self.request.submission))}."
        elif self.problem.uses_triton and importlib.util.find_spec("triton") is None:
            sentence = "Triton is not installed; it has wheels for Linux only. See docs/students.md, 'Without Linux'."
        else:
            return None
        return Verdict(Outcome.NOT_RUN, sentence)

    # Beside the cases ------------------------------------------------------------------------------------------------

    def begin_compiling(self, result):
        """Compile beside the other cases, once one is right."""
        wanted = self.spare and self.request.compiles(self.problem)
        if wanted and result.outcome is Outcome.PASSED and "compiled" not in self.beside:
            pool = ThreadPoolExecutor(1)
            about = self.request, self.problem, self.path, None, [result.outcome]
            self.beside["compiled"] = pool.submit(aspects.compile_kernels, *about)
            pool.shutdown(wait=False)

    def begin_on_gpu(self, cases):
        """Choose the cases that run on the GPU, too: its own, and of those that are compiled alike the first."""
        if not self.on_gpu:
            return
        first = {}
        for case in cases:
            if case.fits_gpu:
                first.setdefault(case.name if case.gpu else self.kind.compiled_alike(case), case.name)
        self.gpu_cases = set(first.values())
        if self.is_timed():
            pool = ThreadPoolExecutor(1)
            self.beside["host"] = pool.submit(speed.host_time, self.problem, self.kind, self.path)
            pool.shutdown(wait=False)

    def close(self):
        """End the processes of the submission."""
        for runs in filter(None, (self.in_machine, self.on_gpu)):
            runs.submission.close()

    # The cases together ----------------------------------------------------------------------------------------------

    def with_others(self, cases):
        """(cases, results) to be explained together: one case alone is to say what it says among all.

        A certain cause needs few others, which show whether it is chance.
        """
        if not self.request.hear_others or not any(result.diagnosis for result in self.results):
            return cases, self.results
        known = {result.case: result for result in self.results}
        every = replace(self.request, names=None).cases(self.problem)
        every = sorted(every, key=self.kind.size)[:FEW_OTHERS] if is_certain(self.results) else every
        every += [case for case in cases if case not in every]
        unknown = [case for case in every if case.name not in known and not case.gpu]
        with self.in_machine.looking_ahead(unknown):
            return every, [known.get(case.name) or self.without_doubt(case) for case in every]

    def explain(self, cases, results):
        """Say why cases are wrong, when all of them are known: one pass, one sentence for each."""
        by_name, seed = {case.name: case for case in cases}, self.request.seed
        confirmed = False
        with failures.harmless("the comparison of cases"):
            self.kind.check_cases(self.problem, by_name, seed, results)
            confirmed = True
        for result in () if confirmed else results:
            if result.diagnosis:
                result.diagnosis.causes = []
        if self.request.hints and any(result.diagnosis for result in results) and not is_certain(results):
            with failures.harmless("the closer look"), contextlib.suppress(ChildFailed):
                show = functools.partial(self.on_look, self.problem)
                self.kind.look_closer(self.problem, by_name, seed, results, self.submission, show)
        cross_case.follow_pointers(results)
        for result in results:
            if diagnosis := result.diagnosis:
                result.sentence, result.facts = diagnosis.sentence, diagnosis.add_to(result.facts)
                result.diagnosis = None

    # One case --------------------------------------------------------------------------------------------------------

    def graded(self, case, given):
        """Grade one case, or give it the verdict that holds for all."""
        started = time.perf_counter()
        known = given or self.fault
        result = self.result(case, known) if known else self.without_doubt(case)
        result.seconds = time.perf_counter() - started
        self.keep(result)
        self.begin_compiling(result)
        return result

    def without_doubt(self, case):
        """The result of a case. What may be a fault of ours is tried again by new processes, and is believed to be one
        only where our own kernel fails in the same place: a fault must not be worth provoking.
        """
        result, doubt = self.attempt(case)
        if doubt is not None:
            self.in_machine.drop_ahead()
        if doubt is None or (self.cleared >= CLEARED and not isinstance(doubt, Exception)):
            return result
        self.close()
        solution = (course.current().solutions / self.problem.module).is_file()
        if solution:
            ours_passes = faults.reference_passes(self.request, self.problem, case, ProblemGrader)
        else:
            ours_passes = canary.passes(self.runs.submission.device)
        if not ours_passes:  # perhaps the runner that all share is what fails
            sandboxed_child.renew()
        result, doubt = self.attempt(case)  # last: what failed us for a moment is over by now
        if doubt is None:
            return result
        self.close()
        if ours_passes and not isinstance(doubt, CannotStart):  # a process that did not start ran nothing of theirs
            self.cleared += 1
            result.sentence += "" if solution else f" {canary.UNSURE}"
            return result
        if isinstance(doubt, CannotStart):
            self.fault = faults.grader_fault(doubt)  # the next case would fare no better
        return self.result(case, faults.grader_fault(doubt))

    def attempt(self, case):
        """(the result of a case, why it may be our fault or None)."""
        try:
            try:
                verdict = self.grade_in_time(case)
            except ChildFailed as failure:
                verdict = self.runs.explain_failure(failure)
            return self.result(case, verdict), verdict.doubt
        except Exception as error:
            sentence = f"Your code could not be graded, and ours can: {faults.in_words(error)}"
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
        """The Verdict on a case: the machine's; where it is right, the GPU's too, which is told where it is not.

        Raises ChildFailed where processes gave no reply.
        """
        verdict = None if case.gpu else self.grade_with(self.in_machine, case)
        left_out = not self.on_gpu or (self.gpu_cases is not None and case.name not in self.gpu_cases)
        if verdict and (left_out or verdict.outcome not in RIGHT):
            return verdict
        on_gpu = self.grade_with(self.on_gpu, case)
        return verdict if verdict and on_gpu.outcome is Outcome.PASSED else on_gpu

    def grade_with(self, runs, case):
        """The Verdict on a case that these CaseRuns run."""
        self.runs, device = runs, runs.submission.device
        run, handler = runs.take(case), self.kind.handler(case)
        if run.verdict:
            return run.verdict
        reply = run.answer.reply
        if not run.answer.returned:
            runs.close() if device == "cuda" else None  # its context may be lost
            verdict = unfinished.explain_reply(reply, self.problem, self.path)
            doubtful = verdict.outcome is Outcome.CRASHED and unexplained(reply)
            return replace(verdict, printed=run.printed, doubt=verdict.sentence if doubtful else None)
        runs.look_ahead(case)
        verdict = handler.judge(self.problem, case, run.placed, run.answer, device)
        if isinstance(reply, Returned) and verdict.outcome in RIGHT:
            wrong = self.judge_on_other_numbers(handler, case, run.answer) if reply.unseen.constants else None
            evidence = [] if wrong else handler.own_work(self.problem, case, reply)
            verdict = wrong or (unfinished.needs_review(evidence) if evidence else verdict)
        return replace(verdict, printed=run.printed)

    def judge_on_other_numbers(self, handler, case, answer):
        """The Verdict where a program that has run is wrong on numbers that nobody could know, else None.

        What a program brings along may be the answer to a case, made from the public seed.
        """
        placed, device = handler.inputs(case, secrets.token_hex(8)), self.runs.submission.device
        call, files = handler.request(self.problem, case, placed, device)
        other = self.runs.run_program(call, answer.program, files)
        if other.returned and handler.judge(self.problem, case, placed, other, device).outcome in RIGHT:
            return None
        sentence = "The numbers that your wrapper brings along give the right output for this case's inputs alone."
        return Verdict(Outcome.WRONG, sentence)


def is_certain(results):
    """True where one cause alone explains at least half of what is wrong: nothing more is tried out."""
    named = [result.diagnosis.named for result in results if result.diagnosis]
    alone = Counter(causes[0].kind for causes in named if len(causes) == 1 and not causes[0].general)
    return 2 * max(alone.values(), default=0) >= max(1, len(named))


def unexplained(reply):
    """True for a crash that names no line of the submission, or that arose in a file of ours."""
    if isinstance(reply, Raised):
        return reply.ours or not (reply.line or reply.bad_module)
    return not getattr(reply, "line", None)
