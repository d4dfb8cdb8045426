"""One thing of a wrong case changed: which change makes the output right?"""

from dataclasses import dataclass, fields, replace
from typing import Any

from grader.core.protocol.messages import Returned, Run
from grader.course import tensors
from grader.engine.cause import Measured
from grader.engine.compare_values import off_by


@dataclass(frozen=True)
class Contrast:
    """What is changed of a case: {field: value, or function of the case}; words: behind "comes out right"."""

    words: str
    ask: str
    read: str
    changes: dict[str, Any]

    def of(self, case):
        """The changed case, or None where the case is so already, or has no such field."""
        new = {name: value(case) if callable(value) else value for name, value in self.changes.items()}
        if not new.keys() <= {field.name for field in fields(case)}:
            return None
        changed = replace(case, **new)
        return None if changed == case else changed


# Of any case with these fields; a kind puts its own behind them, or in their place.
DTYPE = Contrast("in float32", "which numbers are rounded to the input's dtype?", "", {"dtype": "float32"})
LAYOUT = Contrast("with dense tensors", "which stride of which tensor is taken?", "", {"layout": "contiguous"})
VALUES = Contrast(
    "with numbers of ordinary size", "what can grow too large with the numbers?", "", {"values": "normal"}
)
GENERAL = (DTYPE, LAYOUT, VALUES)


def find(kind, submission, case, seed):
    """[Measured]: the first of the kind's changes of the case that makes its outputs right."""
    for each in kind.contrasts:
        changed = each.of(case)
        if changed is not None and is_right(kind, submission, changed, kind.inputs(changed, seed)):
            said = f"The same case comes out right {each.words}."
            return [Measured(next(iter(each.changes)), said, each.ask, each.read)]
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
    return all(bool((off_by(each, of.expected) <= of.allowed).all()) for each, of in zip(got, right, strict=True))
