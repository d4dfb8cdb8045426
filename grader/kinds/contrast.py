"""One thing of a wrong case changed: which change makes the output right?"""

from grader.core.protocol.messages import Returned, Run
from grader.course import tensors
from grader.diagnosis.cause import Measured

# What every kind changes: (name, words, question).
DTYPE = "dtype", "in float32", "which numbers are rounded to the input's dtype?"
LAYOUT = "layout", "with dense tensors", "which stride of which tensor is taken?"


def find(kind, submission, case, changes, make):
    """[Measured]: the first change of the case that makes its outputs right.

    changes: (case, name, words, question, section) each. make(case): its inputs, Placed.
    """
    for changed, name, words, question, section in changes:
        if changed != case and is_right(kind, submission, changed, make(changed)):
            return [Measured(name, f"The same case comes out right {words}.", question, section)]
    return []


def is_right(kind, submission, case, placed):
    call, files = kind.request(submission.problem, case, placed, submission.device)
    reply = submission.run(Run(call), files, kind.beside(case)).reply
    if not isinstance(reply, Returned) or (reply.trace and reply.trace.faults):
        return False
    shapes = [tuple(output.shape) for output in reply.outputs]
    if shapes != [tuple(shape) for _, shape, _ in kind.outputs(submission.problem, case)]:
        return False
    got = tensors.read_outputs(submission.take_outputs(reply), reply.outputs)
    right = kind.right(submission.problem, case, placed, submission.device)
    return all(
        bool((((each.double() - of.expected).abs() <= of.allowed) | (each.double() == of.expected)).all())
        for each, of in zip(got, right, strict=True)
    )
