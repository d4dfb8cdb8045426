"""The runs of a problem's cases by its submission's processes, one case ahead of the one that is judged."""

import contextlib
import itertools
import time
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass

from grader.core.sandbox import turns
from grader.core.sandbox.child import TimedOut
from grader.core.sandbox.submission import Answer
from grader.course.problem import SECONDS_PER_PROBLEM, TIMEOUTS_BEFORE_GIVING_UP
from grader.result import Outcome, Verdict


@dataclass
class CaseRun:
    """The inputs of a case and what the submission's processes gave; or the Verdict where it was not run."""

    placed: tuple = ()
    answer: Answer | None = None
    printed: str = ""
    verdict: Verdict | None = None


class CaseRuns:
    """Runs cases; a case that is lost takes the submission's processes along, and the next one gets new ones.

    following: {name of a case: the next one}, which the processes run while this one is judged (`ahead`).
    """

    def __init__(self, request, submission):
        self.request, self.submission, self.problem = request, submission, submission.problem
        self.kind = self.problem.kind
        self.timeouts, self.spent = 0, 0.0
        self.turn = turns.beside_others
        self.following, self.ahead, self.pool = {}, None, None

    def run(self, case):
        """Have the case recorded and run: the CaseRun. Raises ChildFailed where the processes gave no reply."""
        if self.timeouts >= TIMEOUTS_BEFORE_GIVING_UP:
            sentence = f"Not run: {self.timeouts} cases of this problem timed out before."
            return CaseRun(verdict=Verdict(Outcome.NOT_RUN, sentence))
        whole = SECONDS_PER_PROBLEM[self.submission.device]
        if self.spent > 2 * whole:
            sentence = f"Not run: the cases before took {self.spent:.0f} s, half of it with the machine to themselves."
            return CaseRun(verdict=Verdict(Outcome.NOT_RUN, sentence))
        handler = self.kind.handler(case)
        placed = handler.inputs(case, self.request.seed)
        with (turns.alone if self.spent > whole else self.turn)():
            started = time.monotonic()
            try:
                answer = self.with_outputs(handler.reply(self.submission, case, placed))
            finally:
                self.spent += time.monotonic() - started
        return CaseRun(placed, answer, self.submission.take_printed())

    @contextlib.contextmanager
    def alone(self):
        """While open, no other run of a grader goes on beside one of these on this machine."""
        self.drop_ahead()
        self.turn = turns.alone
        try:
            yield
        finally:
            self.turn = turns.beside_others

    def run_program(self, call, program, files):
        """The Answer of a program that has run, on other inputs. Raises as `run` does."""
        self.wait_for_ahead()
        with self.turn():
            return self.with_outputs(self.submission.rerun(call, program, files))

    def with_outputs(self, answer):
        """The Answer with the bytes that came back."""
        if answer.returned and answer.data is None:
            answer.data = self.submission.take_outputs(answer.reply) if answer.reply.outputs else b""
        return answer

    # One case ahead --------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def looking_ahead(self, cases):
        """While open, the processes run the next of these cases while the one before is judged."""
        self.following = {case.name: after for case, after in itertools.pairwise(cases)}
        with ThreadPoolExecutor(1) as self.pool:
            try:
                yield
            finally:
                self.drop_ahead()
                self.following = {}

    def look_ahead(self, case):
        """Begin to run the case after this one."""
        if (after := self.following.get(case.name)) is not None and self.ahead is None:
            self.ahead = after.name, self.pool.submit(self.run, after)

    def take(self, case):
        """As `run`: what was begun ahead, or a new run."""
        if self.ahead is None or self.ahead[0] != case.name:
            self.wait_for_ahead()
            return self.run(case)
        (_, future), self.ahead = self.ahead, None
        return future.result()

    def wait_for_ahead(self):
        """Leave the processes to whoever asks next."""
        if self.ahead:
            wait([self.ahead[1]])

    def drop_ahead(self):
        """The processes end, or the next case has its verdict already: what was begun is run again, or never."""
        self.wait_for_ahead()
        self.ahead = None

    # A case that is lost ---------------------------------------------------------------------------------------------

    def close(self):
        """End the submission's processes."""
        self.submission.close()

    def explain_failure(self, failure):
        """The Verdict where the submission's process gave no reply, also to a second request alone."""
        timed_out = isinstance(failure, TimedOut)
        line = failure.line or (self.submission.running_line() if timed_out else None)
        printed = failure.printed or self.submission.take_printed()
        self.close()
        if timed_out:
            self.timeouts += 1
            at = f" It was at {self.problem.module}:{line}." if line else ""
            hint = " Does every loop end, and does it step by a whole tile?"
            twice = ", twice, the second time with the machine to itself"
            return Verdict(Outcome.TIMED_OUT, f"Stopped: {failure}{twice}.{at}{hint}", printed=printed)
        hint = " Does a pointer leave its tensor?" if "SIGSEGV" in str(failure) else ""
        sentence = f"Your code did not return: {failure}.{hint}"
        return Verdict(Outcome.CRASHED, sentence, printed=printed, doubt=sentence)
