"""A Class -> what an instructor asks of it, counted in one pass: points, problems, cases, misconceptions, time."""

import json
import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from fractions import Fraction

from grader.classroom.export.standing import Standing, standing
from grader.classroom.record import name_of_case

PASSED = "passed"
NO_FAILURE = ("not run", "grader fault", "needs review")  # they do not say that a student failed


@dataclass
class CaseTally:
    """How one case went. failed: names of the submissions; outcomes: how often each, of those that failed."""

    problem: str
    name: str
    asked: int = 0
    failed: list[str] = field(default_factory=list)
    outcomes: Counter = field(default_factory=Counter)

    @property
    def share(self):
        """The part of the submissions that failed."""
        return len(self.failed) / self.asked if self.asked else 0.0

    @property
    def most_often(self):
        return max(self.outcomes, key=lambda outcome: (self.outcomes[outcome], outcome), default="")


@dataclass
class ProblemTally:
    """One problem over the class. points: what each graded submission earned; most: what it could."""

    id: str
    most: Fraction
    points: list[Fraction] = field(default_factory=list)
    to_review: int = 0
    faults: int = 0

    @property
    def full(self):
        return sum(points == self.most for points in self.points)

    @property
    def mean(self):
        return statistics.mean(self.points) if self.points else None


@dataclass
class CauseTally:
    """One misconception. equals: how often each of its texts was said; ids, problems: where it was seen, as keys."""

    equals: Counter = field(default_factory=Counter)
    ids: dict = field(default_factory=dict)
    problems: dict = field(default_factory=dict)

    @property
    def words(self):
        """What the output equals; of several numbers the most frequent one."""
        return self.equals.most_common(1)[0][0] + ", or with other numbers" * (len(self.equals) > 1)


class Tallies:
    """students: the Standings, in the roster's order. to_review: [(Row, Record, its signs_of)]. faults: [(Row,
    problems, words)]: what the machine could not do, for which nobody lost a point. times: [(Row, seconds,
    core-seconds)].
    """

    def __init__(self, graded):
        self.students: list[Standing] = []
        self.problems = {id: ProblemTally(id, Fraction(most)) for id, most in graded.problems.items()}
        self.cases: dict[tuple[str, str], CaseTally] = {}
        self.to_review, self.faults, self.times = [], [], []
        self.known_causes = defaultdict(CauseTally)
        for row in sorted(graded.submissions, key=lambda row: row.roster is None):
            records = graded.find_records(row) if row.handed_in else {}
            self.students.append(standing(graded, row, records))
            failed = {}
            for record in records.values():
                self.add(row, record)
                if record.points is None:
                    failed.setdefault(reason(record), []).append(record.problem)
            self.faults += [(row, problems, words) for words, problems in failed.items()]
            if records:
                seconds = [(record.seconds, record.core_seconds) for record in records.values()]
                self.times.append((row, *map(sum, zip(*seconds, strict=True))))

    def add(self, row, record):
        of = self.problems[record.problem]
        if record.points is None:
            of.faults += 1
            return
        if record.to_review:
            of.to_review += 1
            self.to_review.append((row, record, signs_of(record)))
        else:
            of.points.append(record.points)
        for result in record.results:
            self.add_result(row, record.problem, result)

    def add_result(self, row, problem, result):
        causes = result.get("causes") or {}
        for cause in causes:
            known = self.known_causes[cause]
            known.equals[causes[cause] if isinstance(causes, dict) else cause.replace("#", "some number")] += 1
            known.ids[row.id] = known.problems[problem] = True
        if result["outcome"] in NO_FAILURE:
            return
        name = name_of_case(result)
        of = self.cases.setdefault((problem, name), CaseTally(problem, name))
        of.asked += 1
        if result["outcome"] != PASSED:
            of.failed.append(row.id)
            of.outcomes[result["outcome"]] += 1

    def failing(self):
        """An CaseTally for each case that some submission failed, the most failed first."""
        failed = [case for case in self.cases.values() if case.failed]
        return sorted(failed, key=lambda case: (-case.share, -len(case.failed), case.problem, case.name))

    def causes(self):
        """What students seem to have in mind: CauseTallies, the most frequent first."""
        return sorted(self.known_causes.values(), key=lambda cause: (-len(cause.ids), cause.words))

    def slowest(self, count=10):
        return sorted((entry for entry in self.times if entry[1] > 0), key=lambda e: (-e[1], e[0].id))[:count]

    def totals(self):
        return [student.total for student in self.students if student.total is not None]


def signs_of(record):
    """{what was seen: names of the cases to review in which it was}: each sign once, however many cases show it."""
    found = {}
    for result in record.to_review:
        for sign in evidence(result.get("evidence")) or [result.get("sentence") or "no more is known"]:
            found.setdefault(sign, []).append(result["case"])
    return found


def evidence(found):
    """Plain data as lines of text: `dots of the kernel: 0`."""
    if isinstance(found, dict):
        return [f"{name}: {value if isinstance(value, str) else json.dumps(value)}" for name, value in found.items()]
    if isinstance(found, list | tuple):
        return [line for entry in found for line in evidence(entry)]
    return [str(found)] if found else []


def reason(record):
    """Why the machine gave no grade."""
    tried = [f"given up after {record.attempts} attempts"] if record.attempts > 1 else []
    return "; ".join([remark.rstrip(".") for remark in record.remarks] + tried) or "no reason is known"
