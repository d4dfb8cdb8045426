"""A Class -> one Standing a student: points, total and status, decided here once for every gradebook."""

import math
from dataclasses import dataclass
from fractions import Fraction

from grader.classroom.record import MACHINE_FAULT, Class, Row

GRADED = "graded"
NOT_HANDED_IN = "not handed in"
NEEDS_REVIEW = "needs review"
NOT_YET = "not graded yet"


@dataclass(frozen=True)
class Standing:
    """Where one student stands.

    points: {problem id: Fraction, or None where it is not known}. total: their sum, None where one of them is unknown:
    a machine's fault and a case that waits for a decision leave a blank, never a 0. remarks: sentences.
    """

    row: Row
    points: dict[str, Fraction | None]
    total: Fraction | None
    status: str
    remarks: tuple[str, ...]

    def from_roster(self, name):
        """A field of the roster's row; "" where there is none."""
        return str((self.row.roster or {}).get(name) or "")

    @property
    def id(self):
        return self.from_roster("id")

    @property
    def name(self):
        """The student's name; a submission without a row in the roster has its own title."""
        return self.from_roster("name") or self.row.title

    @property
    def lms(self):
        """The number by which Canvas or Moodle knows the student: of the roster, or of the files as they came."""
        return self.from_roster("lms") or self.row.lms

    @property
    def submission(self):
        """What pages and journals call the submission; "" where none was handed in."""
        return self.row.id if self.row.handed_in else ""


def standings(graded: Class):
    """The standings of a class: students of the roster in its order, then submissions without a row there."""
    rows = sorted(graded.submissions, key=lambda row: row.roster is None)
    return [standing(graded, row, graded.find_records(row)) for row in rows]


def standing(graded, row, records):
    """The Standing of one row; records: Class.find_records(row), which reads them from the disk."""
    if not row.handed_in:
        return Standing(row, dict.fromkeys(graded.problems), None, NOT_HANDED_IN, tuple(row.remarks))
    points, remarks, states, said = {}, list(row.remarks), [], {}
    for id in graded.problems:
        record = records.get(id)
        states.append(state_of(record))
        points[id] = record.points if states[-1] == GRADED else None
        if states[-1] == NEEDS_REVIEW:
            remarks.append(review_remark(record))
        for remark in record.remarks if record else ():
            said.setdefault(remark, []).append(id)
    remarks += [f"{', '.join(ids)}: {remark}" for remark, ids in said.items()]
    status = next((state for state in (NOT_YET, MACHINE_FAULT, NEEDS_REVIEW) if state in states), GRADED)
    total = None if None in points.values() else sum(points.values(), Fraction(0))
    return Standing(row, points, total, status, tuple(remark.rstrip(".") for remark in remarks))


def state_of(record):
    """What is known of one problem."""
    if record is None:
        return NOT_YET
    if record.points is None:
        return MACHINE_FAULT
    return NEEDS_REVIEW if record.to_review else GRADED


def review_remark(record):
    """`p3: 2 cases need review; 12 points without them, 15 with them`"""
    count = len(record.to_review)
    what = "1 case needs review" if count == 1 else f"{count} cases need review"
    them = "it" if count == 1 else "them"
    low, high = map(decimal, points_with_review(record))
    return f"{record.problem}: {what}; {low} points without {them}, {high} with {them}"


def points_with_review(record):
    """(points without the cases to review, points with all of them)"""
    more = sum((Fraction(result.get("possible") or 0) for result in record.to_review), Fraction(0))
    return record.points, record.points + more


def decimal(value, places=2, mark="."):
    """A Fraction as a decimal of at most `places` places, half up, computed without floats; None is blank."""
    if value is None:
        return ""
    scaled = math.floor(abs(Fraction(value)) * 10**places + Fraction(1, 2))
    whole, rest = divmod(scaled, 10**places)
    text = f"{whole}.{rest:0{places}}".rstrip("0").rstrip(".") if places else str(whole)
    return ("-" if value < 0 and scaled else "") + text.replace(".", mark)


def problem_line(records):
    """`p1 10/10, p2 7.5/15, p3 not known (machine fault)`: one line for a student about all problems."""
    known = {id: f"{decimal(record.points)}/{decimal(record.most)}" for id, record in records.items()}
    states = {id: state_of(record) for id, record in records.items()}
    return ", ".join(f"{id} {known[id] if states[id] == GRADED else f'not known ({states[id]})'}" for id in records)
