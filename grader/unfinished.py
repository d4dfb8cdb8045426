"""A reply without a result -> outcome and sentence: what the submission raised, or why its program was not run."""

import re

from grader.core.protocol import messages
from grader.core.protocol.messages import Raised, Reply
from grader.core.sandbox import handed_in
from grader.core.sandbox.handed_in import quote_line
from grader.core.worker.replies import first_open_gap
from grader.course.gaps import filled_but_failing
from grader.result import Facts, Outcome, Verdict

ALLOWED = (
    "outside kernels tensors may be made, moved, cast, scaled and merged; the computation is the kernel's work.",
    "functions of PyTorch that do the problem's work are not allowed; simple operations are.",
)
READS = " (by .item(), .tolist(), .numpy() or the like)"
OTHER_DTYPE = ": this line multiplies tensors of two dtypes; in which line did one of them get the other dtype?"


def explain_reply(reply: Reply, problem, path) -> Verdict:
    """The Verdict on a reply without a result: an exception, or what was recorded and could not be run."""
    line = getattr(reply, "line", None)
    at = f" ({problem.module}:{line}{source_at(path, line)})" if line else ""
    match reply:
        case Raised():
            return explain_exception(reply, problem, path)
        case messages.KernelRefused(text=text):
            return needs_review([f"the grader cannot run this kernel: {text}{at}."])
        case messages.NoProgram(text=text):
            sentence = f"What was recorded of your wrapper is no program that can be run: {text}."
            return Verdict(Outcome.CRASHED, sentence)
        case messages.Depends():
            sentence = (
                f"The wrapper's Python reads numbers of its input tensors{at or READS} and does other things for "
                "other numbers: what it does may depend on shapes, strides, dtypes and plain arguments alone. On a GPU "
                "such a read waits for all kernels before it."
            )
            return Verdict(Outcome.WRONG, sentence)
        case messages.KernelLaunched(kernel=kernel):
            return Verdict(Outcome.WRONG, f"The kernel {kernel}{at} is launched: {problem.id} is PyTorch alone.")
        case messages.NotAllowed(operation=name):
            which = ALLOWED[not problem.uses_triton]
            return needs_review([f"torch's {name}{at} is not among the operations of {problem.id}: {which}"])
    raise TypeError(f"{type(reply).__name__} is a reply with a result")


def explain_exception(reply: Raised, problem, path) -> Verdict:
    """The Verdict for an exception that the submission raised, while it loaded or while it ran."""
    at = f"{problem.module}:{reply.line}" if reply.line else problem.module
    if reply.bad_module:
        return Verdict(Outcome.CRASHED, f"{reply.text}. It must be {problem.signature}.")
    if reply.exception == "CannotRecord":
        return Verdict(
            Outcome.CRASHED, f"What your Python does cannot be written down as a program: {reply.text} ({at})."
        )
    if reply.exception == "Refused":
        where = f"{at}{source_at(path, reply.line)}"
        return needs_review([f"the grader cannot run this kernel: {reply.text} ({where})."])
    if reply.unfinished:
        text = handed_in.read_texts(path.parent).get(path.name, "")
        gap = reply.todo and (first_open_gap(text, problem.gap_word) or reply.todo)
        return Verdict(Outcome.UNFINISHED, open_gaps(gap, problem, text) if gap else f"NotImplementedError at {at}")
    text = re.sub(r" \([^()]+\.py, line \d+\)$", "", reply.text.strip())  # a SyntaxError names its place twice
    first, *rest = text.splitlines() or [""]
    text = first if not rest else f"{first} [...] {rest[-1].strip()}"
    text += OTHER_DTYPE if "expected scalar type" in text else ""
    source = source_at(path, reply.line).replace(": `", " in `", 1) if reply.line else ""
    return Verdict(Outcome.CRASHED, f"{reply.exception} at {at}{source}: {text[:400]}".rstrip(": "))


def open_gaps(first, problem, text):
    """`TODO 1: the loads; TODO 2 looks filled: delete the failing line 57`: the first, and what was filled since."""
    filled = filled_but_failing(problem.module, text)
    told = [f"TODO {number} looks filled: delete the failing line {line}" for number, line in filled]
    return "; ".join(told if any(first.startswith(f"TODO {number}:") for number, _ in filled) else [first, *told])


def source_at(path, line):
    """`: `the line's text``, of the submission's file."""
    source = quote_line(path, line)
    return f": `{source}`" if source else ""


def needs_review(evidence):
    """The Verdict on a result that an instructor must look at."""
    more = f" And {len(evidence) - 1} more sign{'s' * (len(evidence) > 2)}." if len(evidence) > 1 else ""
    sentence = f"Needs the instructor's review: {evidence[0]}{more}"
    return Verdict(Outcome.NEEDS_REVIEW, sentence, Facts(evidence=tuple(evidence)))
