"""A diagnosis: what is known of one wrong case."""

from dataclasses import dataclass, field

from msgspec import structs

from grader.course import course
from grader.result import Cause, Facts

NAMED = 4  # causes in one sentence
CLEAR = 2  # causes that a reader can weigh
TOLD = 2  # measured facts in one sentence; the page has all


@dataclass(frozen=True)
class Measured:
    """A fact that more runs of a kernel have shown: what kind of mistake shows so, a sentence, the question to ask.

    shown: of keys that should be hidden, (batch, head, booleans (N, Nk)); else None. lost: the same of keys that should
    be seen. line: where that happens, where it is known.
    """

    kind: str
    sentence: str
    question: str
    section: str
    shown: tuple | None = None
    lost: tuple | None = None
    line: int | None = None


@dataclass
class Diagnosis:
    """What is known of one case whose output is wrong.

    what: the output that is wrong, as a student calls it. where: a sentence on the wrong elements. causes: every cause
    that fits this case; the cross-case check leaves those that fit the others, too. evidence: what a kind needs to ask
    other cases about these causes. measured: what more runs of the kernel have shown, the most telling first; true of
    the kernel, whatever the cause is. shown_by: another case, which shows more where this one shows nothing. met: a
    sentence on what the first wrong rows met, and where, told beside what leads to one of the sections `met_for`.
    """

    what: str
    where: str
    causes: list[Cause] = field(default_factory=list)
    evidence: dict = field(default_factory=dict)
    measured: list["Measured"] = field(default_factory=list)
    shown_by: str = ""
    met: str = ""
    met_for: tuple[str, ...] = ()

    @property
    def named(self):
        """The causes that are told: the general ones only where nothing more specific is known."""
        return [cause for cause in self.causes if not cause.general] or self.causes

    @property
    def sentence(self):
        """`Your output equals ...; or .... First wrong row 32 ...`; without a cause, what was measured first."""
        facts = " ".join(each.sentence for each in self.measured[:TOLD])
        if not self.named or (len(self.named) > CLEAR and self.measured):
            first = facts
        else:
            first = self.equals
        other = f'Case "{self.elsewhere}" says more: look at it first.' if self.elsewhere else ""
        return " ".join(part for part in (first, self.met_told, self.where, other) if part)

    @property
    def elsewhere(self):
        """The case to look at first, where this one shows no cause."""
        return "" if self.named else self.shown_by

    @property
    def met_told(self):
        return self.met if self.hints and self.hints[0].section in self.met_for else ""

    @property
    def hints(self):
        """What is told, with its question: the causes, where they are few, else what was measured."""
        both = self.named, self.measured
        return [each for told in (both if len(self.named) <= CLEAR else both[::-1]) for each in told]

    @property
    def equals(self):
        """Causes of the same outputs are alternatives; those of others are there beside them."""
        if not self.named:
            return ""
        told, more = self.named[:NAMED], len(self.named) - NAMED
        sides = [[cause.equals for cause in told if cause.of == of] for of in dict.fromkeys(cause.of for cause in told)]
        rest = f"; or {more} more mistakes" if more > 0 else ""
        alike = " (all the same in this case)" if len(sides) == 1 < len(self.named) else ""
        return f"Your {self.what} equals {'; and '.join(map('; or '.join, sides))}{rest}{alike}."

    def add_to(self, facts: Facts) -> Facts:
        """The same as facts of a Result, beside those that are known."""
        hint = self.hints[0] if self.hints else None
        return structs.replace(
            facts, where=self.where, causes=tuple(self.named), met=self.met_told,
            measured=tuple(each.sentence for each in self.measured), shown_by=self.elsewhere,
            question=hint.question if hint else "",
            section=hint.section if hint and course.current().notebooks.is_dir() else "",
        )  # fmt: skip
