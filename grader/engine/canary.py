"""A kernel of the grader's own, tried where a course has no solution to try: in a handout."""

from msgspec.structs import replace

from grader.core.protocol.messages import Run
from grader.core.sandbox.child import CannotStart, ChildFailed
from grader.core.sandbox.submission import Submission
from grader.course.problem import SECONDS_PER_CASE
from grader.gpu import machine
from grader.gpu.compiling import CANARY, CANARY_SUBJECT

UNSURE = "This handout has no kernel to try in the same place, so it is not certain that the fault is yours."


def passes(device):
    """True where it runs here, now."""
    gpu = machine.first_gpu() if device == "cuda" else None
    submission = Submission(CANARY, CANARY_SUBJECT.problem, device, SECONDS_PER_CASE[device], gpu)
    call = replace(CANARY_SUBJECT.call, watched=device == "cpu")
    size = sum(2 * spec.elements for spec in call.inputs)  # bytes, float16
    try:
        return submission.run(Run(call), {"inputs.bin": bytes(size)}).returned
    except (CannotStart, ChildFailed):
        return False
    finally:
        submission.close()
