"""What a class's journal holds: one Record for each problem of each submission, and the Class that exports read."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from fractions import Fraction

from grader.result import Outcome

GRADED = "graded"
MACHINE_FAULT = "machine fault"
MEASURED = ("seconds", "core_seconds", "attempts", "machine")  # what another run may find otherwise


@dataclass(frozen=True)
class Record:
    """What became of one problem of one submission; it is written once and never changed.

    key: hash of the module's bytes, the problem, the environment and the seed. status: "graded" or "machine fault".
    earned, possible: Fractions as text ("15/4"); earned is None after a machine fault, which is no grade.
    results: for each case {case, aspect, outcome, sentence, description, again, printed, seconds, earned, possible,
    causes, evidence}, points as text too; causes: {kind: what the output equals}, once a list of kinds.
    seconds: wall clock; core_seconds: of all processes. attempts: from 1.
    """

    key: str
    submission: str
    problem: str
    status: str
    earned: str | None
    possible: str
    results: tuple[dict, ...] = ()
    seconds: float = 0.0
    core_seconds: float = 0.0
    attempts: int = 1
    machine: str = ""
    remarks: tuple[str, ...] = ()

    @property
    def points(self):
        """What was earned, as a Fraction; None where the machine failed."""
        return None if self.earned is None else Fraction(self.earned)

    @property
    def most(self):
        """What could be earned, as a Fraction."""
        return Fraction(self.possible)

    @property
    def to_review(self):
        """The results that wait for the instructor's decision."""
        return [result for result in self.results if result["outcome"] == Outcome.NEEDS_REVIEW.value]

    def verdict(self):
        """All of the record that a second run must find again, as plain data: no seconds, no machine."""
        plain = {name: value for name, value in asdict(self).items() if name not in MEASURED}
        plain["results"] = [{k: v for k, v in result.items() if k != "seconds"} for result in self.results]
        return plain

    def to_json(self):
        """One line of text, the same for equal records."""
        return json.dumps(asdict(self), ensure_ascii=True, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text):
        """The record of one line; raises ValueError where the line holds none."""
        try:
            plain = json.loads(text)
            known = {f.name: plain[f.name] for f in fields(cls) if f.name in plain}
            known["results"] = tuple(r | {"outcome": Outcome(r["outcome"]).value} for r in known.get("results", ()))
            return cls(**known | {"remarks": tuple(known.get("remarks", ()))})
        except (TypeError, AttributeError, KeyError) as error:
            raise ValueError(f"this is no record: {error}") from None


def name_of_case(result):
    """What a case is called beside those of other aspects."""
    return result["case"] if result["aspect"] == "correct" else f"{result['aspect']}: {result['case']}"


@dataclass(frozen=True)
class Row:
    """One student or submission, a line of the gradebook.

    id: safe as a file name, unique in the class, and what pages and journals call it. title: for people, any text.
    modules: those that were found, of those asked for. roster: {"id", "name", "email", "login"} as far as the roster
    has them, None without a row there. handed_in: False for a student of the roster without a submission. folder: the
    clean copy of its modules, relative to the class's folder. lms: the number by which a platform named its files.
    owner: the person that the id was given to (ids.py), "" in a class of before.
    """

    id: str
    title: str
    remarks: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    roster: dict | None = None
    handed_in: bool = True
    folder: str = ""
    lms: str = ""
    owner: str = ""


class Lazy(Mapping):
    """{name: what `read` makes of its place}, made when it is asked for, so that memory does not grow with a class."""

    def __init__(self, places, read):
        self.places, self.read_place = places, read

    def __getitem__(self, name):
        return self.read_place(self.places[name])

    def __iter__(self):
        return iter(self.places)

    def __len__(self):
        return len(self.places)


@dataclass(frozen=True)
class Class:
    """A class as its folder tells it: what every export reads, and all that it reads.

    problems: {id: points as text}, in the order of the columns. records: (row id, problem id) -> Record; absent where
    nothing was graded (not handed in, or not yet). notes: what was said of the journal itself, in words.
    """

    submissions: tuple[Row, ...]
    problems: dict[str, str]
    records: Mapping[tuple[str, str], Record]
    notes: tuple[str, ...] = field(default=())

    def find_records(self, row):
        """{problem id: Record} of one row, in the order of the columns."""
        found = {id: self.records.get((row.id, id)) for id in self.problems}
        return {id: record for id, record in found.items() if record is not None}
