"""Will it compile? A submission's kernels compiled for GPUs that are not here, and what is said of it.

core/run/compiler.py does the work, in a child of its own for each GPU, within SECONDS and MEMORY.
"""

import re
import time
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from msgspec.structs import asdict

from grader import unfinished
from grader.core.protocol.messages import Call, Compile, Compiled, Raised
from grader.core.sandbox import turns
from grader.core.sandbox.child import CannotStart, ChildFailed, TimedOut
from grader.core.sandbox.handed_in import quote_line
from grader.core.sandbox.submission import Submission
from grader.core.worker.refusals import first_line, in_plain_words
from grader.course.problem import Problem
from grader.course.tensors import describe_dense
from grader.gpu.gpus import GPUS
from grader.result import CompileRow, Facts, Outcome, Verdict

SECONDS = 45.0  # for all GPUs of one problem; a kernel takes one or two
CANARY_SECONDS = 20.0
MEMORY = 4 << 30  # bytes, for the child and for ptxas each

CANARY = Path(__file__).parent / "canary" / "compile_canary.py"
SMALLER = ": smaller tiles or fewer num_stages need less"


@dataclass(frozen=True)
class Subject:
    """What is compiled of a problem: a call without values. beside: {file: bytes} for the recorder."""

    problem: Problem
    call: Call
    beside: dict[str, bytes]


MATRIX = describe_dense("a", "float16", (16, 16))
CANARY_SUBJECT = Subject(
    Problem("canary", "a product", CANARY.name, "multiply", "multiply(a, b) -> out", (), tensors=("a", "b")),
    Call([MATRIX, msgspec.structs.replace(MATRIX, name="b")], {}),
    {},
)


@dataclass
class Attempt:
    """What came of one GPU. error: why the kernel is not for it; unknown: why nothing can be said; or neither.

    late: nothing can be said because the compiler did not finish.
    """

    target: str
    kernels: list[CompileRow] = field(default_factory=list)
    outcome: Outcome = Outcome.PASSED
    error: str = ""
    unknown: str = ""
    late: bool = False
    printed: str = ""

    @property
    def compiled(self):
        return not (self.error or self.unknown)


def judge(subject, path, targets, ran=True, all_targets=True):
    """The Verdict on the kernels of the module at `path`.

    ran: whether a case has passed with them. all_targets: False to stop at the first that they compile
    for, which settles the outcome; the others would only add facts and advice. Crashed is what compiles for none of the
    targets. Where the compiler did not finish for one, or CANARY does not compile either, nothing is known: it is not
    run.
    """
    deadline = time.monotonic() + SECONDS
    attempts = []
    for left, target in zip(range(len(targets), 0, -1), targets, strict=True):
        seconds = (deadline - time.monotonic()) / left
        attempts.append(attempt(subject, path, GPUS[target], seconds))
        if attempts[-1].compiled and not all_targets:
            break
    facts = Facts(compiled=tuple(row for tried in attempts for row in tried.kernels))
    printed = next((tried.printed for tried in attempts if tried.printed), "")
    if any(tried.compiled for tried in attempts):
        return Verdict(Outcome.PASSED, advice(attempts, subject.problem), facts, printed)
    failed = [tried for tried in attempts if tried.error]
    late = [tried for tried in attempts if tried.late]
    if late or not failed:
        why = f"not judged: {late[0].unknown}" if late else f"not compiled: {attempts[0].unknown}"
        return Verdict(Outcome.NOT_RUN, why, facts, printed)
    ours = attempt(CANARY_SUBJECT, CANARY, GPUS[failed[0].target], CANARY_SECONDS)
    if not ours.compiled:
        why = f"not compiled: here, Triton compiles no kernel for {ours.target}: {ours.error or ours.unknown}"
        return Verdict(Outcome.NOT_RUN, why)
    if failed[0].outcome is Outcome.UNFINISHED:
        return Verdict(Outcome.UNFINISHED, failed[0].error, facts, printed)
    return Verdict(Outcome.CRASHED, explain_failures(failed, ran), facts, printed)


def attempt(subject, path, gpu, seconds):
    """Compile for one GPU, in a child of its own: the Attempt."""
    if seconds <= 0:
        return Attempt(gpu.target, unknown="no time was left", late=True)
    problem = subject.problem
    submission = Submission(path, problem, "compile", seconds, gpu)
    try:
        with turns.beside_others():
            reply = submission.run(Compile(subject.call, gpu, MEMORY), beside=subject.beside).reply
        printed = submission.take_printed()
    except (CannotStart, ChildFailed) as failure:
        return explain_lost_child(gpu, failure, seconds, at_work(submission))
    finally:
        submission.close()
    if isinstance(reply, Raised):
        todo = re.search(rf"{re.escape(problem.gap_word)} \d+: [^\"'\n]+", f"{reply.text}\n{reply.source}")
        if todo:
            return lost(gpu, todo.group(0).strip(), Outcome.UNFINISHED)
        at = f"{problem.module}:{reply.line}"
        said = f"{reply.exception}{f' at {at}' if reply.line else ''}: {first_line(reply.text)}"
        if reply.exception == "DoesNotCompile" and reply.line:
            said = f"{first_line(reply.text)} ({at}: `{reply.source}`)"
        # What runs elsewhere is to run here too: a wrapper that raises has no kernel to show.
        return lost(gpu, said, Outcome.CRASHED) if reply.line else Attempt(gpu.target, unknown=said)
    if not isinstance(reply, Compiled):
        return Attempt(gpu.target, unknown=unfinished.explain_reply(reply, problem, path).sentence)
    return read_reply(problem, path, gpu, reply, printed)


def explain_lost_child(gpu, failure, seconds, program):
    """The Attempt where the child gave no reply: the compiler did not finish, or it ended the process."""
    if isinstance(failure, TimedOut):
        unknown = (
            f"{program or 'the compiler'} did not finish for {gpu.target} within {seconds:.2g} s. This costs nothing; "
        )
        unknown += "smaller tiles and fewer unrolled loops take it less time"
        return Attempt(gpu.target, [CompileRow(gpu.target, None, unknown)], unknown=unknown, late=True)
    if any(name in str(failure) for name in ("SIGABRT", "SIGSEGV", "SIGILL", "SIGBUS", "SIGFPE")):
        return lost(gpu, f"the compiler crashed: {failure}", Outcome.CRASHED)
    return Attempt(gpu.target, unknown=str(failure))


def at_work(submission):
    """A name for ptxas where one runs for it, else an empty string."""
    names = submission.runner.program_names() if submission.runner else []
    return "ptxas, NVIDIA's assembler," if any("ptxas" in name for name in names) else ""


def lost(gpu, error, outcome):
    return Attempt(gpu.target, [CompileRow(gpu.target, None, error)], outcome, error)


def read_reply(problem, path, gpu, reply, printed):
    """The Attempt that the child's reply describes."""
    kernels = [CompileRow(gpu.target, **asdict(kernel)) for kernel in reply.kernels]
    error = reply.error
    if not error:
        unknown = "" if kernels else "no kernel was launched"
        return Attempt(gpu.target, kernels, unknown=unknown, printed=printed)
    if error.kind == "wrapper":
        at = f" at {problem.module}:{error.line}" if error.line else ""
        said = f"{error.exception}{at}: {first_line(error.text)}"
        return lost(gpu, said, Outcome.CRASHED) if error.line else Attempt(gpu.target, kernels, unknown=said)
    if "error code -9" in error.text:  # the machine ended ptxas, for want of memory
        return Attempt(gpu.target, kernels, unknown="this machine ended ptxas; it may want memory")
    words = say(problem, path, gpu, error, printed)
    if error.kind == "resources" and kernels:
        kernels[-1].error = words
    else:
        kernels.append(CompileRow(gpu.target, error.kernel, words))
    kept = "" if error.kind == "compiler" else printed  # the compiler's own dump is nothing to read
    return Attempt(gpu.target, kernels, Outcome.CRASHED, words, printed=kept)


# Sentences -----------------------------------------------------------------------------------------------------------


def explain_failures(failed, ran):
    """The sentence on kernels that compile for no GPU that was asked for."""
    fits = not all(tried.error.endswith(SMALLER) for tried in failed)
    start = "runs here, does not" if ran else "does not"
    start = f"{start} {'compile for' if fits else 'fit'} a GPU"
    reasons = {}
    for tried in failed:
        reasons.setdefault(tried.error, []).append(tried.target)
    if len(reasons) == 1:
        return f"{start}: {failed[0].error}"
    if not fits:
        return f"{start}: {'; '.join(error.removesuffix(SMALLER) for error in reasons)}{SMALLER}"
    return f"{start}: {'; '.join(f'for {targets[0]}: {error}' for error, targets in reasons.items())}"


def advice(attempts, problem):
    """What is worth saying of kernels that compile for some GPU, or nothing."""
    failed = [tried for tried in attempts if tried.error]
    notes = [tried.error for tried in failed if tried.error.endswith(SMALLER)]
    notes += [f"does not compile for {tried.target}: {tried.error}" for tried in failed if tried.error not in notes]
    notes += [f"not compiled for {tried.target}: {tried.unknown}" for tried in attempts if tried.unknown]
    good = [row for tried in attempts if tried.compiled for row in tried.kernels]
    for row in good:
        if (row.spill_bytes or 0) > problem.spilled:
            notes.append(
                f"{row.kernel} spills {row.spill_bytes} bytes of each thread's registers on "
                f"{row.target}: smaller tiles or more num_warps avoid that"
            )
    used = {}
    for row in good:
        used.setdefault(row.target, set()).add(row.matrix_instructions)
    if without := [target for target, kinds in used.items() if problem.multiplies and kinds == {"none"}]:
        notes.append(f"uses no matrix instructions on {', '.join(without)}: does every product go through tl.dot?")
    return "; ".join(notes)


def say(problem, path, gpu, error, printed):
    """One sentence about an error, with the student's own line."""
    if error.kind == "resources":
        short = error.launch.shortage
        return f"{error.kernel} needs {short.needed} bytes of {short.what}; an {gpu.target} has {short.limit}{SMALLER}"
    text, line = error.text, error.line
    if error.kind == "compiler":  # MLIR prints its own words, with the place
        said = re.search(rf"{re.escape(problem.module)}:(\d+):\d+\)?: error: (.*)", printed)
        failed = re.search(r"Assertion `(.*)' failed", printed)
        if said and not line:
            line, text = int(said[1]), said[2]
        elif failed:
            text = f"an assertion of Triton's compiler failed: {failed[1]}"
    at = ""
    if line:
        at = f" ({problem.module}:{line}: `{quote_line(path, line)}`)"
    return f"{in_plain_words(text)}{at}"
