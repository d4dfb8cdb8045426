"""One result model: every renderer shows it and decides nothing. What it says is made harmless here: it may come from a
submission, and it is shown on terminals and pages."""

import re
from dataclasses import dataclass, field
from enum import Enum

from grader.core.sandbox.texts import SENTENCE, clean, shortened

PRINTED = 20_000


class Outcome(str, Enum):
    PASSED = "passed"
    WRONG = "wrong"
    UNSAFE = "unsafe"
    WASTEFUL = "wasteful"
    SLOW = "slow"
    UNFINISHED = "unfinished"
    CRASHED = "crashed"
    TIMED_OUT = "timed out"
    NEEDS_REVIEW = "needs review"  # by the instructor: evidence that the output is not of the submission's own kernel
    NOT_RUN = "not run"
    GRADER_FAULT = "grader fault"

    @classmethod
    def _missing_(cls, value):
        """Journals of before say "held"."""
        return cls.NEEDS_REVIEW if value == "held" else None


class Aspect(str, Enum):
    CORRECT = "correct"
    SAFE = "safe"
    WORK = "work"
    COMPILE = "compiles"
    SPEED = "speed"

    @property
    def concerns_case(self):
        """False for what is asked of the problem as a whole, beside its cases."""
        return self not in (Aspect.WORK, Aspect.COMPILE, Aspect.SPEED)


@dataclass
class Verdict:
    """What is decided: of one case, of a problem's work, of its compiling or its speed. It becomes a Result.

    sentence, facts, printed and diagnosis: as a Result has them. doubt: why it may be a fault of ours, or None.
    """

    outcome: Outcome
    sentence: str = ""
    facts: dict = field(default_factory=dict)
    printed: str = ""
    diagnosis: object = None
    doubt: object = None


@dataclass
class Result:
    """What became of one case of one problem under one aspect.

    sentence: for the student, one sentence. facts: what it rests on, plain data. again: how to run this case alone.
    printed: what the student's code printed. seconds: wall clock of the case, its inputs and comparison included.
    diagnosis: of a wrong output, a diagnosis.cause.Diagnosis.
    """

    problem: str
    case: str
    aspect: Aspect
    outcome: Outcome
    sentence: str = ""
    facts: dict = field(default_factory=dict)
    description: str = ""
    again: str = ""
    printed: str = ""
    seconds: float = 0.0
    diagnosis: object = None

    def __setattr__(self, name, value):
        """Whoever writes a text here, from wherever it came: it is clean and has a length."""
        super().__setattr__(name, tidy(value) if name in TEXTS else value)

    @property
    def message(self):
        """What two results have in common that tell a student the same thing: the causes, or the sentence's words.

        Only a wrong place is part of the message, where no cause is known; other numbers are not.
        """
        causes = tuple(cause.kind for cause in self.facts.get("causes", ()))
        words = self.sentence if self.outcome is Outcome.WRONG else re.sub(r"\d+", "#", self.sentence)
        return self.outcome, causes or words


TEXTS = {"sentence", "description", "again", "printed", "facts"}


def tidy(value):
    """Texts clean and bounded, also those that stand in lists and dicts; all else as it is."""
    if isinstance(value, str):
        return shortened(clean(value), PRINTED if "\n" in value else SENTENCE)
    if type(value) is dict:
        return {name: tidy(inner) for name, inner in value.items()}
    if type(value) in (list, tuple):
        return (
            type(value)(map(tidy, value)) if any(type(inner) in (str, dict, list, tuple) for inner in value) else value
        )
    return value
