"""One result model: every renderer shows it and decides nothing. What it says is made harmless here: it may come from a
submission, and it is shown on terminals and pages."""

import re
from dataclasses import dataclass
from enum import Enum
from typing import Any

from msgspec import Struct, field, structs, to_builtins

from grader.core.sandbox.texts import SENTENCE, clean, shortened

PRINTED = 20_000
# What the same mistake says otherwise in another case, beside its numbers.
VARIES = r" \((in )?tiles of \d+[^)]*\)", r", (\d+ )?zeros past the end too", ", inside the tiles that are loaded"


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


# Facts ---------------------------------------------------------------------------------------------------------------


class Cause(Struct, frozen=True):
    """What the output equals, the question that leads to the fix, and the notebook section to read.

    general: said only where nothing more specific is known. of: the outputs that show it, where there are several.
    """

    equals: str
    question: str
    section: str
    general: bool = False
    of: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """The same mistake in another case, where its numbers are others."""
        return mistake_pattern(self.equals)


def mistake_pattern(equals: str) -> str:
    for what in VARIES:
        equals = re.sub(what, "", equals)
    return re.sub(r"\d+", "#", equals)


class Mismatch(Struct, frozen=True):
    """How an output differs from what is right: counts of elements, where the first and the worst are, and which rows.

    allowed: the error allowed there; worst_excess: the worst error as a multiple of it. heads: (batch, head) with wrong
    elements. row_ranges, columns: [first, last] of those with wrong elements in any head; an lse has no columns.
    """

    wrong: int
    total: int
    nan: int
    inf: int
    zero: int
    unwritten: int
    first: tuple[int, ...]
    first_got: float
    first_expected: float
    first_allowed: float
    worst: tuple[int, ...]
    worst_excess: float
    heads: list[tuple[int, int]]
    num_batches: int
    num_heads: int
    row_ranges: list[tuple[int, int]]
    num_rows: int
    columns: list[tuple[int, int]]
    num_columns: int


class Waste(Struct, frozen=True):
    """What a kernel did more than its case needs: the sentence, and the costs that show it, by name.

    uncounted: the costs could not be counted, and the sentence says why.
    """

    sentence: str
    costs: dict[str, Any] = field(default_factory=dict)
    uncounted: bool = False


class CompileRow(Struct, omit_defaults=True):
    """One kernel compiled for one GPU, as results.json has it; None where it is not known.

    error: why it does not compile, or does not fit. configs_tried: of a kernel that is tuned.
    """

    target: str
    kernel: str | None
    error: str | None = None
    shared_bytes: int | None = None
    shared_limit: int | None = None
    num_warps: int | None = None
    num_stages: int | None = None
    registers: int | None = None
    spill_bytes: int | None = None
    matrix_instructions: str | None = None
    seconds: float | None = None
    configs_tried: int | None = None


class ArmTimes(Struct, frozen=True):
    """Milliseconds of so many samples, the most bytes that an arm took, and its launch's milliseconds on the host."""

    avg_ms: float
    std_ms: float
    min_ms: float
    median_ms: float
    p20_ms: float
    p80_ms: float
    samples: int
    peak_bytes: int | None = None
    host_ms: float | None = None


class Speed(Struct, frozen=True):
    """How fast a submission is beside naive PyTorch and the reference, each an arm.

    shape: the case in words. times_as_fast: the median ratio and its interval. wrapper_host_ms: of a call, as the
    submission's own process measures it. least_ms: what the GPU needs at its peak. machine: its facts and clocks.
    """

    shape: str
    dtype: str
    flops: int
    arms: dict[str, ArmTimes]
    failures: dict[str, str]
    oom: list[str]
    times_as_fast: dict[str, tuple[float, float, float] | None]
    wrapper_host_ms: float | None
    least_ms: float | None
    machine: dict[str, Any]


class Facts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a verdict rests on; what is not known is empty.

    mismatch: of an output that is wrong. picture: the numbers behind the case's picture, plain data. where, causes,
    met, measured, question, section and shown_by: what a Diagnosis says. evidence: why an instructor must look.
    earned: False where what was not run loses its points. share: the part of its points that what is slow keeps.
    """

    mismatch: Mismatch | None = None
    picture: dict[str, Any] = field(default_factory=dict)
    where: str = ""
    causes: tuple[Cause, ...] = ()
    met: str = ""
    measured: tuple[str, ...] = ()
    question: str = ""
    section: str = ""
    shown_by: str = ""
    evidence: tuple[str, ...] = ()
    waste: Waste | None = None
    compiled: tuple[CompileRow, ...] = field(default=(), name="compile")
    speed: Speed | None = None
    earned: bool = True
    share: float = 0.0


NO_FACTS = Facts()


# Verdicts and results ------------------------------------------------------------------------------------------------


@dataclass
class Verdict:
    """What is decided: of one case, of a problem's work, of its compiling or its speed. It becomes a Result.

    sentence, facts, printed and diagnosis: as a Result has them. doubt: why it may be a fault of ours, or None.
    """

    outcome: Outcome
    sentence: str = ""
    facts: Facts = NO_FACTS
    printed: str = ""
    diagnosis: Any = None
    doubt: Any = None


@dataclass
class Result:
    """What became of one case of one problem under one aspect.

    sentence: for the student, one sentence. again: how to run this case alone. printed: what the student's code
    printed. seconds: wall clock of the case, its inputs and comparison included. diagnosis: of a wrong output, a
    diagnosis.cause.Diagnosis, until its sentence is written.
    """

    problem: str
    case: str
    aspect: Aspect
    outcome: Outcome
    sentence: str = ""
    facts: Facts = NO_FACTS
    description: str = ""
    again: str = ""
    printed: str = ""
    seconds: float = 0.0
    diagnosis: Any = None

    def __setattr__(self, name, value):
        """Whoever writes a text here, from wherever it came: it is clean and has a length."""
        super().__setattr__(name, tidy(value) if name in TEXTS else value)

    @property
    def message(self):
        """What two results have in common that tell a student the same thing: the causes, the case that says more, what
        was measured, or the sentence's words.

        Only a wrong place is part of the message, where nothing more is known; other numbers are not.
        """
        causes = tuple(cause.kind for cause in self.facts.causes)
        told = next(iter(self.facts.measured), self.sentence)
        words = told if self.facts.where and told is self.sentence else re.sub(r"\d+", "#", told)
        return self.outcome, causes or self.facts.shown_by or words


TEXTS = {"sentence", "description", "again", "printed", "facts"}


def tidy(value: Any) -> Any:
    """Texts clean and bounded, also those that stand in lists, dicts and structs; all else as it is."""
    if isinstance(value, str):
        return shortened(clean(value), PRINTED if "\n" in value else SENTENCE)
    if isinstance(value, Struct):
        return structs.replace(value, **{name: tidy(getattr(value, name)) for name in value.__struct_fields__})
    if type(value) is dict:
        return {name: tidy(inner) for name, inner in value.items()}
    if type(value) in (list, tuple):
        plain = not any(isinstance(inner, (str, dict, list, tuple, Struct)) for inner in value)
        return value if plain else type(value)(map(tidy, value))
    return value


def to_plain(value: Any) -> Any:
    """Plain data of results or facts, for JSON; facts that are empty are left out."""
    return to_builtins(value, str_keys=True, enc_hook=str)
