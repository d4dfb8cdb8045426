"""decisions.csv: what the instructor decides on cases that need review, one row for each problem of a submission.

Every export adds a row for what newly needs review; the instructor fills in its points. A row is bound to the record
that it was written for and to whom the submission belongs: another hand-in waits for a decision of its own, and so does
another student's. Rows of before there was a column `owner` are bound to the record alone.
"""

from dataclasses import replace
from fractions import Fraction

from grader.classroom.export.standing import decimal, points_with_review
from grader.classroom.names import list_some
from grader.classroom.record import Lazy, Record
from grader.classroom.sheet import BadSheet, Sheet, plain, to_csv
from grader.core.sandbox import files
from grader.core.sandbox.texts import quoted

NAME = "decisions.csv"
COLUMNS = ("submission", "problem", "points", "reason", "name", "without", "with", "record", "owner")
BINDING = ("submission", "problem", "record", "owner")
KEY = 16  # characters of a record's key that tell it from others of the same submission


class Decided(Record):
    """A record on whose cases to review somebody has decided: `earned` is what they gave."""

    to_review = ()


def decide(record, given):
    """The record, Decided where `given` says so: {(submission, problem, record): (points, reason)}."""
    points, reason = given.get((record.submission, record.problem, record.key[:KEY]), (None, ""))
    if points is None or not record.to_review:
        return record
    said = f"{decimal(points)} points by the instructor's decision{': ' if reason else ''}{reason}"
    return Decided(**vars(record) | {"earned": str(points), "remarks": (*record.remarks, said)})


def applied(graded, out):
    """The Class with the decisions that stand in its folder; raises BadSheet where they cannot be understood."""
    path = out / NAME
    if not path.exists():
        return graded
    sheet, given, idle = Sheet.read(path), {}, []
    waiting = {binding(*pair): pair[0].owner.strip() for pair in to_review(graded)}
    columns = [*(sheet.needs(name) for name in BINDING[:3]), sheet.column("owner")]
    points, reason = sheet.needs("points"), sheet.column("reason")
    for row in range(1, len(sheet.rows)):
        if sheet.text(row, points):
            *bound, owner = (sheet.text(row, column).removeprefix("'") for column in columns)
            most = Fraction(graded.problems.get(bound[1], 0))
            amount = number(sheet.text(row, points), most, f"line {row + 1} of {NAME}")
            if tuple(bound) in waiting and owner in ("", waiting[tuple(bound)]):
                given[tuple(bound)] = amount, sheet.text(row, reason).removeprefix("'")
            else:
                idle.append(f"line {row + 1} ({bound[0]} {bound[1]})")
    records = Lazy({name: name for name in graded.records}, lambda name: decide(graded.records[name], given))
    return replace(graded, records=records, notes=(*graded.notes, *no_effect(idle)))


def to_review(graded):
    """[(row, record)] of all that needs review."""
    records = (
        (row, record) for row in graded.submissions if row.handed_in for record in graded.find_records(row).values()
    )
    return [(row, record) for row, record in records if record.to_review and record.points is not None]


def binding(row, record):
    """What a decision is bound to, beside the owner."""
    return row.id, record.problem, record.key[:KEY]


def no_effect(idle):
    """[a note on the decided rows that match nothing], if there are any."""
    said = f"{NAME} decides on what needs no review now, another hand-in's or another student's: {list_some(idle)}"
    return [f"{said}; this does not count."] if idle else []


def number(text, most, where):
    """The points of a cell; raises BadSheet where it holds no number from 0 to `most`."""
    try:
        points = Fraction(text.replace(",", "."))
    except (ValueError, ZeroDivisionError):
        points = None
    if points is None or not 0 <= points <= most:
        raise BadSheet(
            f"{where}: points must be a number from 0 to {decimal(most)}, or blank while it waits; not {text!r}"
        )
    return points


def ask(graded, out):
    """Add a row for each problem to review that has none; what stands there stays. Returns the line to print, or None.

    graded: the Class as `applied` gives it, so that what is decided needs no more review.
    """
    path, titles, rows = out / NAME, list(COLUMNS), []
    if path.exists():
        sheet = Sheet.read(path)
        titles = sheet.header + [name for name in COLUMNS if sheet.column(name) is None]  # and columns of their own
        rows = [[sheet.text(row, column) for column in range(len(titles))] for row in range(1, len(sheet.rows))]
        rows = [row for row in rows if any(row)]
    places = [[plain(title) for title in titles].index(name) for name in BINDING]
    known = {tuple(row[place].removeprefix("'") for place in places) for row in rows}
    before, waiting = len(rows), to_review(graded)
    for entry, record in waiting:
        bound = binding(entry, record)
        if not known & {(*bound, entry.owner.strip()), (*bound, "")}:
            name = (entry.roster or {}).get("name") or entry.title
            low, high = map(decimal, points_with_review(record))
            cells = (entry.id, record.problem, "", "", name, low, high, record.key[:KEY], entry.owner)
            rows.append([dict(zip(COLUMNS, cells, strict=True)).get(plain(title), "") for title in titles])
    if len(rows) > before:
        files.write(path, to_csv([titles, *rows]))
    many = "1 problem waits" if len(waiting) == 1 else f"{len(waiting)} problems wait"
    again = f"fill in `points` in {path}, and run python -m grader.classroom.export {quoted(out)}"
    return f"{many} for your decision: {again}" if waiting else None
