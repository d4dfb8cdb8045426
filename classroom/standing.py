"""Where each student stands: points, total and status, decided here once for every page, gradebook and export."""

import datetime
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from classroom.data import Class, Record, Row
from classroom.decisions import ALL, BONUS, EXCUSED, LATE, Decision, Decisions, decimal
from grader.course.course import Late

GRADED, NOT_HANDED_IN, REVIEW, FAULT, NOT_YET = (
    "graded", "not handed in", "needs review", "machine fault", "not graded yet",
)  # fmt: skip
UNREAD, LATENESS = "not understood", "lateness to decide"
OPEN = (UNREAD, NOT_YET, FAULT, REVIEW, LATENESS)  # states that leave points blank, the first that counts first
ISO_OFFSETS = "%Y-%m-%d %H:%M:%S %z", "%Y-%m-%dT%H:%M:%S%z"  # what fromisoformat of Python 3.10 does not read
MOODLE_DATES = ("%A, %d %B %Y, %I:%M %p", "%A, %B %d, %Y, %I:%M %p")


@dataclass
class Standing:
    """Where one student stands.

    points: {problem: points, None where they are not known}; states: {problem: how}; words: {problem: a reason, beside
    the points}. late: points taken off; bonus: added. total: of all points of the class, what is excused counted like
    the rest; None where any part is unknown: that is blank, never 0. remarks: sentences; changes: those of them that
    say why the total is not the sum of the points.
    """

    row: Row
    points: dict[str, Fraction | None]
    states: dict[str, str]
    words: dict[str, str] = field(default_factory=dict)
    late: Fraction = Fraction(0)
    bonus: Fraction = Fraction(0)
    total: Fraction | None = None
    status: str = ""
    remarks: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)

    @property
    def id(self) -> str:
        return (self.row.student.id if self.row.student else "") or self.row.id


def standings(
    whole: Class, records: Mapping[str, Mapping[str, Record]], decided: Decisions, rule: Late | None
) -> list[Standing]:
    """records: {row id: {problem: Record}}. rule: course.toml's, of late hand-ins."""
    return [standing(whole, row, records.get(row.id, {}), decided, rule) for row in whole.rows]


def standing(whole: Class, row: Row, records: Mapping[str, Record], decided: Decisions, rule: Late | None) -> Standing:
    known = Standing(row, {}, {}, remarks=[row.why, *row.remarks] if row.why else list(row.remarks))
    for problem in whole.problems:
        decision = decided.get((row.id, problem)) or decided.get((row.id, ALL))
        if decision:
            state, points = (EXCUSED if decision.points is None else GRADED), decision.points
            known.words[problem] = decision.reason
            said = "excused" if points is None else f"{decimal(points)} points by the instructor's decision"
            known.remarks.append(f"{problem}: {said}{': ' if decision.reason else ''}{decision.reason}")
        else:
            state = state_of(whole, row, problem, records.get(problem))
            points = records[problem].points if state == GRADED else None
        known.states[problem], known.points[problem] = state, points
        if state == FAULT:
            known.remarks.append(f"{problem}: {whole.faults[row.id][problem]}")
        if state == REVIEW:
            count = len(records[problem].to_review)
            known.remarks.append(f"{problem}: {count} {'case needs' if count == 1 else 'cases need'} review")
    known.remarks += dict.fromkeys(f"{id}: {said}" for id, record in records.items() for said in record.remarks)
    add_up(whole, known, days_late(row, decided, rule, known), decided.get((row.id, BONUS)), rule)
    known.remarks += known.changes
    return known


def add_up(whole: Class, known: Standing, days: Fraction | None, bonus: Decision | None, rule: Late | None) -> None:
    """Fill in status and, where all is known, the total: of what is not excused, in parts of all; late; bonus."""
    counted = {problem: points for problem, points in known.points.items() if known.states[problem] != EXCUSED}
    if known.states and not counted:
        known.status = EXCUSED
        known.changes += ["The bonus adds to nothing: all is excused."] if bonus else []
        return
    states = [*known.states.values(), *([LATENESS] if days is None else [])]
    known.status = next((state for state in (*OPEN, NOT_HANDED_IN) if state in states), GRADED)
    if known.status != GRADED:
        return
    total = earned = sum((points for points in counted.values() if points is not None), Fraction(0))
    most, of = sum(whole.problems[problem] for problem in counted), sum(whole.problems.values())
    if most != of and most:
        total = earned * of / most
        known.changes.append(f"{decimal(earned)} of the {most} points that count are {decimal(total)} of {of}")
    if rule and days:
        cost = days * Fraction(str(rule.points_a_day))
        known.late = min(total, cost if rule.most is None else min(cost, Fraction(str(rule.most))))
        less = f"{decimal(known.late)} {'point' if known.late == 1 else 'points'} less"
        known.changes.append(f"{decimal(days)} {'day' if days == 1 else 'days'} late: {less}")
    if bonus and bonus.points:
        known.bonus = max(bonus.points, known.late - total)
        more = "more" if known.bonus > 0 else "less"
        known.changes.append(
            f"{decimal(abs(known.bonus))} {'point' if abs(known.bonus) == 1 else 'points'} {more} by the instructor's "
            f"decision{': ' if bonus.reason else ''}{bonus.reason}"
        )
    known.total = total - known.late + known.bonus


def state_of(whole: Class, row: Row, problem: str, record: Record | None) -> str:
    """What is known of one problem, before any decision."""
    if not row.entries:
        return NOT_HANDED_IN
    if row.why or problem in row.unread:
        return UNREAD
    if record is None:
        return FAULT if problem in whole.faults.get(row.id, {}) else NOT_YET
    return REVIEW if record.to_review else GRADED


def days_late(row: Row, decided: Decisions, rule: Late | None, known: Standing) -> Fraction | None:
    """Days begun after the due time and its grace; None where it was late and nobody knows how much."""
    if decision := decided.get((row.id, LATE)):
        known.remarks.append(f"lateness by the instructor's decision{': ' if decision.reason else ''}{decision.reason}")
        return decision.points
    submitted = moment(row.submitted)
    if row.entries and rule and submitted:
        # Without an offset, `due` is in this machine's time zone, and a time of a student in that of `due`.
        due = rule.due.astimezone() if submitted.tzinfo and not rule.due.tzinfo else rule.due
        submitted = submitted if submitted.tzinfo or not due.tzinfo else submitted.replace(tzinfo=due.tzinfo)
        over = submitted - due - datetime.timedelta(hours=rule.grace_hours)
        return Fraction(max(0, math.ceil(over / datetime.timedelta(days=1))))
    if row.late:
        known.remarks.append(f"Handed in late, says the platform{', not how late: decide on `late`' if rule else ''}.")
    elif row.submitted and rule and not submitted:
        known.remarks.append(f"The time {row.submitted!r} cannot be read: decide on `late`.")
        return None
    return None if row.late and rule else Fraction(0)


def moment(text: str) -> datetime.datetime | None:
    """A time as ISO 8601 or Moodle's English worksheets have it, or None."""
    try:
        return datetime.datetime.fromisoformat(text)
    except ValueError:
        pass
    for form in (*ISO_OFFSETS, *MOODLE_DATES):
        try:
            return datetime.datetime.strptime(text, form)
        except ValueError:
            pass
    return None
