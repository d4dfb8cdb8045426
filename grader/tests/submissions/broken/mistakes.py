"""The mistakes as data: which words of which kernel, what stands there instead, and the right verdict.

Those in our solutions are read from mistakes.txt, labs.txt, decode.txt and decode_blind.txt, whose author had not seen
the grader; those in the honest kernels, which have other shapes, from on_honest.txt.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from grader.result import Outcome

VERDICT = re.compile(r"\? (?P<case>[^()]+?)(?: \((?P<outcome>[a-z ]+)\))?(?:: (?P<because>.+))?")


@dataclass(frozen=True)
class Mistake:
    """A kernel with one idea wrong.

    case: one that must show it. because: a word or two that the sentence for the student must contain, since a
    rejection for the wrong reason is a failure of the grader; empty where no cause may be named. base: the honest
    kernel that is changed, where it is not our solution.
    """

    problem: str
    name: str
    was: tuple[str, ...]
    now: tuple[str, ...]
    case: str
    outcome: Outcome = Outcome.WRONG
    because: str = ""
    base: str = ""

    def apply(self, source):
        """The source with the mistake in it; each of `was` must stand in it."""
        for was, now in zip(self.was, self.now, strict=True):
            if was not in source:
                raise ValueError(f"{self.problem} {self.name!r}: the solution no longer contains {was!r}")
            source = source.replace(was, now)
        return source


def mistake(problem, name, was, now, case, **rest):
    pair = (was,), (now,)
    return Mistake(problem, name, *(pair if isinstance(was, str) else (was, now)), case, **rest)


def read(path):
    """The mistakes of a text, in its order; its first lines say how they are written."""
    blocks = (
        [line for line in part.splitlines() if line and line[0] != "#"]
        for part in path.read_text("utf-8").split("\n\n")
    )
    return tuple(parsed(lines) for lines in blocks if lines)


def parsed(lines):
    base, name = lines[0].split(": ", 1)
    said = VERDICT.fullmatch(lines[-1])
    if said is None or any(line[0] not in "-+" for line in lines[1:-1]):
        raise ValueError(f"{lines[0]!r} is not followed by lines of - and +, and by one of ?")
    was, now = (tuple(line[2:].replace("\\n", "\n") for line in lines[1:-1] if line[0] == mark) for mark in "-+")
    problem, _, honest = base.partition("_")
    return Mistake(
        problem, name, was, now, said["case"], Outcome(said["outcome"] or "wrong"), said["because"] or "",
        base=base if honest else "",
    )  # fmt: skip


MISTAKES = read(Path(__file__).with_name("mistakes.txt"))
LABS = tuple(
    mistake for name in ("labs", "decode", "decode_blind") for mistake in read(Path(__file__).with_name(f"{name}.txt"))
)
ON_HONEST = read(Path(__file__).with_name("on_honest.txt"))
