"""A Class -> what an instructor asks of it, counted: points, problems, cases, misconceptions, time."""

import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from fractions import Fraction

PASSED, UNKNOWN = "passed", ("not run", "grader fault", "held")  # neither says that a student failed


@dataclass
class Tally:
    """How one problem or case went. failed: ids of the submissions; outcomes: how often each."""

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
        """The outcome that failing submissions had most often."""
        return max(self.outcomes, key=lambda o: (self.outcomes[o], o)) if self.outcomes else ""


@dataclass
class OfProblem:
    """One problem over the class. points: what each graded submission earned, most: what it could."""

    id: str
    most: Fraction
    points: list[Fraction] = field(default_factory=list)
    held: int = 0
    faults: int = 0

    @property
    def full(self):
        return sum(points == self.most for points in self.points)

    @property
    def mean(self):
        return statistics.mean(self.points) if self.points else None


def handed_in(graded):
    return [row for row in graded.submissions if row.handed_in]


def of_problems(graded):
    """An OfProblem for each problem, in the order of the columns; what is held or unknown has no points."""
    tallies = {id: OfProblem(id, Fraction(most)) for id, most in graded.problems.items()}
    for row in handed_in(graded):
        for id, record in graded.of(row).items():
            if record.points is None:
                tallies[id].faults += 1
            elif record.held:
                tallies[id].held += 1
            else:
                tallies[id].points.append(record.points)
    return list(tallies.values())


def of_cases(graded):
    """A Tally for each case that some submission failed, the most failed first; a module that is missing asks nothing."""
    tallies = {}
    for row in handed_in(graded):
        for id, record in graded.of(row).items():
            for result in record.results:
                if result["outcome"] in UNKNOWN:
                    continue
                name = result["case"] if result["aspect"] == "correct" else f"{result['aspect']}: {result['case']}"
                tally = tallies.setdefault((id, name), Tally(id, name))
                tally.asked += 1
                if result["outcome"] != PASSED:
                    tally.failed.append(row.id)
                    tally.outcomes[result["outcome"]] += 1
    failing = [tally for tally in tallies.values() if tally.failed]
    return sorted(failing, key=lambda tally: (-tally.share, -len(tally.failed), tally.problem, tally.name))


def of_causes(graded):
    """[(cause, problems, ids of submissions)]: what students seem to have in mind, the most frequent first."""
    who, where = defaultdict(dict), defaultdict(dict)
    for row in handed_in(graded):
        for id, record in graded.of(row).items():
            for cause in (cause for result in record.results for cause in result.get("causes") or ()):
                who[cause][row.id] = where[cause][id] = True
    found = [(cause, sorted(where[cause]), list(ids)) for cause, ids in who.items()]
    return sorted(found, key=lambda entry: (-len(entry[2]), entry[0]))


def slowest(graded, count=10):
    """[(row, seconds, core-seconds)] of the submissions that took longest."""
    times = []
    for row in handed_in(graded):
        records = graded.of(row).values()
        times.append((row, sum(r.seconds for r in records), sum(r.core_seconds for r in records)))
    return sorted((t for t in times if t[1] > 0), key=lambda t: (-t[1], t[0].id))[:count]


def held(graded):
    """[(row, problem, result)] that wait for a decision."""
    return [
        (row, id, result)
        for row in handed_in(graded)
        for id, record in graded.of(row).items()
        for result in record.held
    ]


def faults(graded):
    """[(row, problem, words)] of what the machine, or the grader, could not do; no student lost a point by it."""
    found = []
    for row in handed_in(graded):
        for id, record in graded.of(row).items():
            if record.points is None:
                tried = f"given up after {record.attempts} attempts" if record.attempts > 1 else ""
                found.append((row, id, "; ".join([*record.remarks, *([tried] if tried else [])]) or "no reason is known"))
            ours = [result for result in record.results if result["outcome"] == "grader fault"]
            if ours:
                found.append((row, id, f"{len(ours)} cases, points given: {ours[0].get('sentence') or ''}"))
    return found


def spread(totals):
    """(mean, median, lowest, highest) of Fractions, or None where there are none."""
    return (statistics.mean(totals), statistics.median(totals), min(totals), max(totals)) if totals else None
