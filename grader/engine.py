"""One case's way from the request to the result: inputs, program, verdict; new processes where one was lost."""

import contextlib
import ctypes
import functools
import importlib.util
import itertools
import secrets
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from grader.core.protocol.messages import Raised, Returned
from grader.core.sandbox import confined, handed_in, sandboxes
from grader.core.sandbox.child import CannotStart, ChildFailed, TimedOut
from grader.core.sandbox.submission import Answer, Submission
from grader.core.sandbox.texts import clean, quoted, shortened
from grader.course.problem import (
    COMPILES,
    SECONDS_PER_CASE,
    SECONDS_PER_PROBLEM,
    TIMEOUTS_BEFORE_GIVING_UP,
    WORK,
    Problem,
)
from grader.diagnosis import failures, faults, unfinished
from grader.gpu import compiling, machine, speed
from grader.kinds import registry
from grader.result import Aspect, Outcome, Result, Verdict

CLEARED = 2  # crashes of a problem in which our own kernel was asked, and passed: then the next are not doubted
# Options of glibc's mallopt: M_ARENA_MAX, M_MMAP_THRESHOLD and M_TRIM_THRESHOLD, the latter two in bytes.
MALLOC = {-8: 1, -3: 16 << 20, -1: 16 << 20}
FEW_OTHERS = 6  # cases that are judged beside the one that was asked for, where its cause is certain


@dataclass(frozen=True)
class Request:
    """What to grade: a folder, the problems, the names of the cases or None for all, where, and with which inputs."""

    submission: Path
    problems: tuple[Problem, ...]
    names: frozenset[str] | None
    device: str
    seed: int
    default_submission: bool = True
    options: tuple[str, ...] = ()  # of make, that a case needs to run again as it did
    targets: tuple[str, ...] = ()  # GPUs to compile for, names of gpus.py
    private_seed: bool = False  # True: the seed is a class's own, and is not told to students
    all_targets: bool = True  # False: until the first that the kernels compile for
    hear_others: bool = False  # judge a problem's other cases too, silently, where one that was asked for is wrong
    hints: bool = True  # look closer at what is wrong: more runs of the kernel, for sentences and no verdict

    @property
    def seed_told(self):
        """The seed as students see it: they run a case again with values of the public seed."""
        return "of the class" if self.private_seed else self.seed

    def cases(self, problem):
        """The cases of `problem` that run on this device and have the name that was asked for."""
        every = registry.cases_of(problem, self.seed)
        every = [case for case in every if (case.fits_gpu if self.device == "cuda" else not case.gpu)]
        if self.names is None:
            return every
        named = [case for case in every if case.name in self.names or (self.judges_work(problem) and not case.gpu)]
        kind = registry.kind_of(problem)
        others = (kind.case_by_name(problem, name) for name in self.names - {case.name for case in every})
        return named + [case for case in others if case]

    def judges_work(self, problem):
        """True where the work of `problem` is to be judged, over its cases."""
        return problem.counts_work and (self.names is None or WORK in self.names)

    def compiles(self, problem):
        """True where the kernels of `problem` are to be compiled."""
        wanted = self.names is None or COMPILES in self.names
        return bool(self.targets and problem.uses_triton and problem.compiled_case and wanted)

    def again(self, problem, case_name):
        """The command that runs one case again."""
        parts = [f"make grade P={problem.number}", f'CASE="{case_name}"']
        parts += [] if self.default_submission else [f"SUBMISSION={quoted(self.submission)}"]
        parts += [f"SEED={self.seed}"] if self.seed and not self.private_seed else []
        return " ".join([*parts, *self.options])


def grade(request, lanes, on_case=lambda problem, name: None, on_look=lambda problem, words: None):
    """Grade every problem of the request, `lanes` at a time; the results of each problem in the order of its cases.

    on_case(problem, name of the case) is called whenever one has been graded, on_look(problem, words) now and then
    while what is wrong is looked at more closely.
    What is timed is timed when nothing else runs any more, one after the other.
    """

    torch.set_num_threads(1)  # the lanes are the parallelism: small tensors, many questions
    give_memory_back()
    with handed_in.readable(request.submission) as folder:
        return grade_in(folder, request, lanes, on_case, on_look)


def grade_in(folder, request, lanes, on_case, on_look):
    pool = ThreadPoolExecutor(lanes)
    try:
        graders = [ProblemGrader(request, problem, on_case, folder, on_look) for problem in request.problems]
        longest_first = sorted(graders, key=lambda grader: -len(request.cases(grader.problem)))
        list(pool.map(ProblemGrader.run, longest_first))  # the last to end has little left to do alone
        for grader in graders:
            if grader.is_timed():
                grader.speed()
        return [result for grader in graders for result in grader.results]
    except BaseException:  # Ctrl-C: the threads wait for children, so the children go first
        pool.shutdown(wait=False, cancel_futures=True)
        confined.close_all()
        raise
    finally:
        pool.shutdown(wait=False)


@dataclass
class Asked:
    """What the submission's processes gave for a case: the Answer, or why there is none."""

    placed: tuple = ()
    answer: Answer | None = None
    printed: str = ""
    verdict: Verdict | None = None
    failure: ChildFailed | None = None


class ProblemGrader:
    """Grades one problem: its submission's processes are started anew when a case kills one.

    following: {name of a case: the next one}, which the processes run while this one judges (`ahead`).
    """

    def __init__(self, request, problem, on_case, folder=None, on_look=lambda problem, words: None):
        self.request, self.problem, self.on_case, self.on_look, self.results = request, problem, on_case, on_look, []
        self.kind = registry.kind_of(problem)
        self.path = (folder or request.submission) / problem.module
        self.seconds, self.spent = SECONDS_PER_CASE[request.device], 0.0
        gpu = machine.first_gpu() if request.device == "cuda" and torch.cuda.is_available() else None
        self.submission = Submission(self.path, problem, request.device, self.seconds, gpu)
        self.timeouts, self.fault, self.cleared, self.beside = 0, None, 0, {}
        self.following, self.ahead, self.asking = {}, None, None

    def keep(self, result):
        self.results.append(result)
        self.on_case(self.problem, result.case)

    def run(self):
        """All but the speed."""
        cases = self.request.cases(self.problem)
        given = self.cannot_run()
        if not given:
            self.submission.begin()
        self.begin_beside(given)
        try:
            with self.looking_ahead(cases):
                results = [self.graded(case, given) for case in cases]
            self.add_waste(results)
            self.outcomes = [result.outcome for result in results]
            with failures.harmless("the search for causes"):
                self.kind.find_causes({case.name: case for case in cases}, self.results)
            self.explain(*self.with_others(cases))
        finally:
            self.submission.close()
        if self.request.judges_work(self.problem):
            self.work(results)
        if self.request.compiles(self.problem):
            self.compile(given)

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
        with self.looking_ahead([case for case in every if case.name not in known]):
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
        for result in results:
            if diagnosis := result.diagnosis:
                result.sentence = diagnosis.sentence
                result.facts |= diagnosis.facts()
                result.diagnosis = None

    def is_timed(self):
        """True where its speed is asked for, too."""
        return self.problem.speed_case and self.request.names is None

    def graded(self, case, given):
        """Grade one case, or give it the verdict that holds for all."""
        started = time.perf_counter()
        known = given or self.fault
        result = self.result(case, known) if known else self.without_doubt(case)
        result.seconds = time.perf_counter() - started
        self.keep(result)
        return result

    def without_doubt(self, case):
        """The result of a case. What may be a fault of ours is tried again by new processes, and is believed to be one
        only where our own kernel fails in the same place: a fault must not be worth provoking.
        """
        result, doubt = self.attempt(case)
        if doubt is not None:
            self.drop_ahead()
        if doubt is None or (self.cleared >= CLEARED and not isinstance(doubt, Exception)):
            return result
        self.submission.close()
        ours_passes = faults.reference_passes(self.request, self.problem, case, ProblemGrader)
        if not ours_passes:  # perhaps the runner that all share is what fails
            sandboxes.renew()
        result, doubt = self.attempt(case)  # last: what failed us for a moment is over by now
        if doubt is None:
            return result
        self.submission.close()
        if ours_passes and not isinstance(doubt, CannotStart):  # a process that did not start ran nothing of theirs
            self.cleared += 1
            return result
        if isinstance(doubt, CannotStart):
            self.fault = grader_fault(doubt)  # the next case would fare no better
        return self.result(case, grader_fault(doubt))

    def attempt(self, case):
        """(the result of a case, why it may be our fault or None)."""
        try:
            verdict = self.grade_case(case)
            return self.result(case, verdict), verdict.doubt
        except Exception as error:
            sentence = f"Your code could not be graded, and ours can: {faults.in_words(error)}"
            return self.result(case, Verdict(Outcome.CRASHED, sentence)), error

    def cannot_run(self):
        """The Verdict where nothing of this problem can run, else None."""
        if (self.request.submission / self.problem.module).is_symlink() and not self.path.is_file():
            return Verdict(
                Outcome.NOT_RUN, f"{self.problem.module} is a link, and none is followed: put the file there."
            )
        if not self.path.is_file():
            return Verdict(
                Outcome.NOT_RUN, f"There is no {self.problem.module} in {clean(str(self.request.submission))}."
            )
        if self.problem.uses_triton and not triton_is_here():
            return Verdict(
                Outcome.NOT_RUN,
                "Triton is not installed; it has wheels for Linux only. See docs/students.md, 'Without Linux'.",
            )
        return None

    def result(self, case, verdict, aspect=Aspect.CORRECT):
        return Result(
            self.problem.id, case.name, aspect, verdict.outcome, shortened(verdict.sentence), verdict.facts,
            case.describe(self.request.seed_told), self.request.again(self.problem, case.name), verdict.printed,
            diagnosis=verdict.diagnosis,
        )  # fmt: skip

    def grade_case(self, case):
        """The Verdict on a case."""
        asked, handler = self.take(case), self.kind.handler(case)
        if asked.verdict:
            return asked.verdict
        if asked.failure:
            return self.child_failed(asked.failure)
        placed, answer, reply = asked.placed, asked.answer, asked.answer.reply
        if not answer.returned:
            self.lose_processes() if self.request.device == "cuda" else None  # its context may be lost
            verdict = unfinished.explain_reply(reply, self.problem, self.path)
            doubtful = verdict.outcome is Outcome.CRASHED and unexplained(reply)
            return replace(verdict, printed=asked.printed, doubt=verdict.sentence if doubtful else None)
        self.look_ahead(case)
        verdict = handler.judge(self.problem, case, placed, answer, self.request.device)
        right, ran = verdict.outcome in (Outcome.PASSED, Outcome.WASTEFUL), isinstance(reply, Returned)
        if right and ran and reply.unseen.constants:
            self.wait_for_ahead()
            try:
                verdict = self.judge_on_other_numbers(handler, case, answer.program) or verdict
            except ChildFailed as failure:
                return self.child_failed(failure)
        if ran and verdict.outcome in (Outcome.PASSED, Outcome.WASTEFUL):
            evidence = handler.own_work(self.problem, case, reply)
            verdict = unfinished.needs_review(evidence) if evidence else verdict
        return replace(verdict, printed=asked.printed)

    def ask(self, case):
        """Have the case recorded and run: the Asked."""
        if self.timeouts >= TIMEOUTS_BEFORE_GIVING_UP:
            sentence = f"Not run: {self.timeouts} cases of this problem timed out before."
            return Asked(verdict=Verdict(Outcome.NOT_RUN, sentence))
        whole = SECONDS_PER_PROBLEM[self.request.device]
        if self.spent > whole and self.spent > (whole := whole * sandboxes.find_slowness(self.request.device)):
            sentence = f"Not run: the cases before took {self.spent:.0f} s; all of a problem have {whole:g} s together."
            return Asked(verdict=Verdict(Outcome.NOT_RUN, sentence))
        handler = self.kind.handler(case)
        placed, started = handler.inputs(case, self.request.seed), time.monotonic()
        try:
            answer = handler.reply(self.submission, case, placed)
            self.take_outputs(answer)
        except ChildFailed as failure:
            return Asked(failure=failure)
        finally:
            self.spent += time.monotonic() - started
        return Asked(placed, answer, self.submission.take_printed())

    # One case ahead --------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def looking_ahead(self, cases):
        """While open, the processes run the next of these cases while the one before is judged."""
        if self.request.device == "cuda":  # a case that fails may take the next one's context along
            yield
            return
        self.following = {case.name: after for case, after in itertools.pairwise(cases)}
        with ThreadPoolExecutor(1) as self.asking:
            try:
                yield
            finally:
                self.drop_ahead()
                self.following = {}

    def look_ahead(self, case):
        """Begin to ask the case after this one."""
        if (after := self.following.get(case.name)) is not None and self.ahead is None:
            self.ahead = after.name, self.asking.submit(self.ask, after)

    def take(self, case):
        """The Asked of this case: the one that was begun ahead, or a new one."""
        if self.ahead is None or self.ahead[0] != case.name:
            self.wait_for_ahead()
            return self.ask(case)
        (_, future), self.ahead = self.ahead, None
        return future.result()

    def wait_for_ahead(self):
        """Leave the processes to whoever asks next."""
        if self.ahead:
            wait([self.ahead[1]])

    def drop_ahead(self):
        """The processes end, or the next case has its verdict already: what was begun is asked again, or never."""
        self.wait_for_ahead()
        self.ahead = None

    # What a case's processes left ------------------------------------------------------------------------------------

    def judge_on_other_numbers(self, handler, case, program):
        """The Verdict where a program that has run is wrong on numbers that nobody could know.

        What a program brings along may be the answer to a case, made from the public seed.
        """
        placed, device = handler.inputs(case, secrets.token_hex(8)), self.request.device
        call, files = handler.request(self.problem, case, placed, device)
        answer = self.submission.rerun(call, program, files)
        self.take_outputs(answer)
        if answer.returned:
            verdict = handler.judge(self.problem, case, placed, answer, device)
            if verdict.outcome in (Outcome.PASSED, Outcome.WASTEFUL):
                return None
        sentence = "The numbers that your wrapper brings along give the right output for this case's inputs alone."
        return Verdict(Outcome.WRONG, sentence)

    def take_outputs(self, answer):
        """Add the bytes that came back, where they are not there."""
        if answer.returned and answer.data is None:
            answer.data = self.submission.take_outputs(answer.reply) if answer.reply.outputs else b""

    def lose_processes(self):
        """End the submission's processes; what it left to remove is its own time."""
        started = time.monotonic()
        self.submission.close()
        self.spent += time.monotonic() - started

    def child_failed(self, failure):
        """The Verdict where the submission's process gave no reply."""
        timed_out = isinstance(failure, TimedOut)
        line = failure.line or (self.submission.running_line() if timed_out else None)
        printed = failure.printed or self.submission.take_printed()
        self.lose_processes()
        if timed_out:
            self.timeouts += 1
            at = f" It was at {self.problem.module}:{line}." if line else ""
            hint = " Does every loop end, and does it step by a whole tile?"
            return Verdict(Outcome.TIMED_OUT, f"Stopped: {failure}.{at}{hint}", printed=printed)
        hint = " Does a pointer leave its tensor?" if "SIGSEGV" in str(failure) else ""
        sentence = f"Your code did not return: {failure}.{hint}"
        return Verdict(Outcome.CRASHED, sentence, printed=printed, doubt=sentence)

    def begin_beside(self, given):
        """On a GPU: what needs no turn of its own, beside the cases."""
        if self.request.device != "cuda" or given:
            return
        pool = ThreadPoolExecutor(2)
        case = self.kind.long_case(self.request.cases(self.problem))
        if case and (self.request.judges_work(self.problem) or not self.problem.counts_work):
            self.beside["waste"] = pool.submit(self.interpreted, case)
        if self.is_timed():
            self.beside["host"] = pool.submit(speed.host_time, self.problem, self.kind, self.path)
        pool.shutdown(wait=False)

    def add_waste(self, results):
        """On a GPU: what the interpreter counted of the long row, where that is right."""
        case = self.kind.long_case(self.request.cases(self.problem))
        right = next((r for r in results if case and r.case == case.name and r.outcome is Outcome.PASSED), None)
        waste = self.beside["waste"].result() if "waste" in self.beside and right else None
        if waste and self.problem.counts_work:
            right.facts["waste"] = waste
        elif waste:
            sentence, facts = waste
            wasteful = Verdict(Outcome.WASTEFUL, sentence, right.facts | facts)
            verdict = unfinished.needs_review([sentence]) if facts.get("uncounted") else wasteful
            right.outcome, right.sentence, right.facts = verdict.outcome, verdict.sentence, verdict.facts

    def work(self, results):
        """What the kernels cost, judged over the cases that are right."""
        case = self.request.cases(self.problem)[0]
        try:
            verdict = self.kind.judge_work(results)
            if verdict.outcome not in (Outcome.NEEDS_REVIEW, Outcome.GRADER_FAULT):
                verdict = self.not_learned(results) or verdict
        except Exception as error:
            verdict = grader_fault(error)
        self.keep(self.result(replace(case, name=WORK), verdict, Aspect.WORK))

    def not_learned(self, results):
        """The Verdict where a case that shows the problem's lesson is not right, else None."""
        missed = [r for r in results if r.case in self.problem.lesson and r.outcome is not Outcome.PASSED]
        if not missed:
            return None
        if all(result.outcome is Outcome.GRADER_FAULT for result in missed):
            return Verdict(Outcome.GRADER_FAULT, missed[0].sentence)
        missed = [result for result in missed if result.outcome is not Outcome.GRADER_FAULT]
        taught = f'"{missed[0].case}" shows what {self.problem.id.upper()} teaches'
        return Verdict(Outcome.NOT_RUN, f"not judged: {taught}, and must be right first", {"earned": False})

    def interpreted(self, case):
        """What a GPU's program wastes, told by the interpreter: (sentence, facts) or None."""
        seconds, handler = SECONDS_PER_CASE["cuda"], self.kind.handler(case)
        submission = Submission(self.path, self.problem, "cpu", seconds, machine.first_gpu())
        try:
            answer = handler.reply(submission, case, handler.inputs(case, self.request.seed))
        except (ChildFailed, CannotStart) as failure:
            return f"What the kernels cost could not be counted: {failure}.", {"uncounted": True}
        finally:
            submission.close()
        if not answer.returned:
            sentence = unfinished.explain_reply(answer.reply, self.problem, self.path).sentence
            return f"What the kernels cost could not be counted: {sentence}", {"uncounted": True}
        return self.kind.wasted(case, answer)

    def compile(self, given):
        """Compile the submission's kernels for the GPUs asked for; an unfinished problem is spared."""
        case = self.kind.compiled_case(self.problem, COMPILES)
        outcomes, passed = self.outcomes, Outcome.PASSED in self.outcomes
        started = time.perf_counter()
        if given:
            verdict = replace(given, facts={"compile": []})
        elif outcomes and not passed:
            verdict = Verdict(Outcome.NOT_RUN, "not compiled: no case has passed", {"compile": []})
        else:
            try:
                targets, every = self.request.targets, self.request.all_targets
                canary = subject_of(registry.EVERY["p3"])
                subject = subject_of(self.problem)
                verdict = compiling.judge(subject, self.path, targets, canary, passed, every)
            except CannotStart as broken:
                verdict = Verdict(Outcome.NOT_RUN, f"not compiled: {broken}", {"compile": []})
            except Exception as error:  # it can cost points alone, so that nothing is gained by it
                failures.log("compiling", error)
                verdict = Verdict(Outcome.NOT_RUN, f"not compiled: {faults.in_words(error)}", {"compile": []})
        result = self.result(case, verdict, Aspect.COMPILE)
        result.seconds = time.perf_counter() - started
        self.keep(result)

    def speed(self):
        """Time the submission against naive PyTorch and the reference, where that is possible and earned."""
        case, outcomes = self.problem.speed_case, self.outcomes
        if self.request.device != "cuda":
            return self.keep(self.result(case, Verdict(Outcome.NOT_RUN, "not run: needs a GPU"), Aspect.SPEED))
        if all(outcome in (Outcome.PASSED, Outcome.GRADER_FAULT) for outcome in outcomes):
            if Outcome.GRADER_FAULT in outcomes:  # not timed because of us: what it earns is open, too
                sentence = "The grader failed on a case before, not your code: the speed is open."
                return self.keep(self.result(case, Verdict(Outcome.GRADER_FAULT, sentence), Aspect.SPEED))
        else:
            sentence = "not run: only a kernel that passes every case is timed"
            verdict = Verdict(Outcome.NOT_RUN, sentence, {"earned": False})
            return self.keep(self.result(case, verdict, Aspect.SPEED))
        if torch.cuda.get_device_capability() < speed.OLDEST_GPU:
            sentence = "not run: for a GPU older than sm_80 Triton makes no matrix instructions"
            return self.keep(self.result(case, Verdict(Outcome.NOT_RUN, sentence), Aspect.SPEED))
        started = time.perf_counter()
        try:
            host_ms = self.beside["host"].result()
            verdict = speed.judge(self.problem, self.kind, self.path, self.request.seed, host_ms)
        except ChildFailed as failure:
            verdict = Verdict(Outcome.CRASHED, f"While it was timed, your code did not return: {failure}.")
        except Exception as error:
            verdict = grader_fault(error)
        result = self.result(case, verdict, Aspect.SPEED)
        result.seconds = time.perf_counter() - started
        return self.keep(result)


def is_certain(results):
    """True where one cause alone explains at least half of what is wrong: nothing more is tried out."""
    named = [result.diagnosis.named for result in results if result.diagnosis]
    alone = Counter(causes[0].kind for causes in named if len(causes) == 1 and not causes[0].general)
    return 2 * max(alone.values(), default=0) >= max(1, len(named))


def subject_of(problem):
    """What compiling.py needs of a problem."""
    kind = registry.kind_of(problem)
    case = kind.compiled_case(problem, COMPILES)
    return compiling.Subject(problem, kind.unvalued_call(case), kind.beside(case))


def give_memory_back():
    """Have glibc give the memory of freed tensors back at once: each lane, a thread, keeps a heap of it otherwise."""
    with contextlib.suppress(AttributeError, OSError):  # another C library
        set_option = ctypes.CDLL(None).mallopt
        for option, value in MALLOC.items():
            set_option(option, value)


def grader_fault(error):
    """The Verdict for a failure that is not the student's."""
    failures.log("the grader", error)
    return Verdict(
        Outcome.GRADER_FAULT, f"The grader failed, not your code: these points are open. {faults.in_words(error)}"
    )


def unexplained(reply):
    """True for a crash that names no line of the submission, or that arose in a file of ours."""
    if isinstance(reply, Raised):
        return reply.ours or not (reply.line or reply.bad_module)
    return not getattr(reply, "line", None)


def triton_is_here():
    return importlib.util.find_spec("triton") is not None
