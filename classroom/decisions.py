"""decisions.csv: what the instructor decides on any problem of any student, on lateness, excuses and bonus points.

Columns: student (as gradebook.csv calls the row, or a name, login or address), problem (an id; `all`, to excuse or for
0; `late`, with days; `bonus`), points (a number, or `excused`; blank while it waits), reason. What needs review gets a
row by itself, bound to the result that was looked at: another hand-in needs another decision. A lateness that nobody
knows gets one, too.
"""

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from classroom import sheet
from classroom.data import BadClass, Class, Record, Row, digest, find_row
from classroom.names import shortened
from grader import score
from grader.core.sandbox import files
from grader.core.sandbox.texts import quoted

NAME = "decisions.csv"
COLUMNS = ("student", "problem", "points", "reason", "name", "without", "with", "result")
ALL, LATE, BONUS, EXCUSED = "all", "late", "bonus", "excused"
KEY = 12  # characters of a result's key that tell it from others of the same student


@dataclass(frozen=True)
class Decision:
    """points: None where it is excused."""

    points: Fraction | None
    reason: str = ""


Decisions = dict[tuple[str, str], Decision]


def read(out: Path, whole: Class) -> tuple[Decisions, list[str]]:
    """({(row id, problem): Decision}, a sentence on each line that could not be used); raises sheet.BadSheet."""
    path, found = out / NAME, Decisions()
    notes: list[str] = []
    if not path.exists():
        return found, notes
    bound = {row.id: row for row in whole.rows}
    for line, row in enumerate(sheet.read_rows(path), 2):
        said = {name: row.get(name, "") for name in COLUMNS}
        if not said["points"]:
            continue
        name = said["student"], said["problem"].lower()
        try:
            name = find_row(whole, said["student"]).id, name[1]
            why, points = check(said, bound[name[0]], name[1], whole)
        except BadClass as error:
            why, points = str(error), None
        if why:
            notes.append(f"line {line} of {NAME} does not count: {why}")
            continue
        if name in found:
            notes.append(f"line {line} of {NAME} decides again on {' '.join(name)}: it counts, and not the line before")
        found[name] = Decision(points, said["reason"])
    return found, notes


def check(said: dict[str, str], row: Row, problem: str, whole: Class) -> tuple[str, Fraction | None]:
    """(why a line cannot be used, or "", its points)."""
    if problem not in whole.problems and problem not in (ALL, LATE, BONUS):
        return f"{shortened(problem)!r} is no problem: say {', '.join(whole.problems)}, all, late or bonus", None
    if said["result"] and said["result"] not in (row.keys.get(problem, "")[:KEY], bound_to(row, problem)):
        return f"it is of another hand-in of {row.id} {problem} than the one that counts now", None
    if said["reason"].isdecimal() and not said["result"]:
        return f"its reason is a number: write {said['points']}.{said['reason']} if that is one number", None
    if said["points"].lower() == EXCUSED and problem not in (LATE, BONUS):
        return "", None
    try:
        points = Fraction(said["points"].replace(",", "."))
    except (ValueError, ZeroDivisionError):
        return f"points are a number, or `excused`; not {shortened(said['points'])!r}", None
    most = Fraction(whole.problems.get(problem, 10**6))
    if problem == ALL and points:
        return "all is `excused` or 0: decide on each problem", None
    if not (-most if problem == BONUS else 0) <= points <= most:
        return f"{said['points']} is not from 0 to {most}", None
    return "", points


def ask(
    out: Path, whole: Class, records: Mapping[str, Mapping[str, Record]], decided: Decisions, late: Collection[str]
) -> str:
    """Add a row for each problem to review that has none, and for the lateness of the rows `late`; what stands there
    stays. Returns the line to print, or "".
    """
    path = out / NAME
    table = sheet.read(path) if path.exists() else [list(COLUMNS)]
    header = [sheet.plain(name) for name in table[0]]
    if missing := [name for name in COLUMNS if name not in header]:
        table, header = [[*row, *([""] * len(missing))] for row in table], header + missing
        table[0][-len(missing) :] = missing
    known = {tuple(row.get(name, "") for name in ("student", "problem", "result")) for row in as_rows(table, header)}
    changed = bind(table, header, whole)
    wanted = []
    for row in whole.rows:
        if row.id in late:
            known_of = {"student": row.id, "problem": LATE, "name": row.name, "result": bound_to(row, LATE)}
            wanted.append(dict.fromkeys(COLUMNS, "") | known_of)
        for problem, record in records.get(row.id, {}).items():
            if record.to_review and not {(row.id, problem), (row.id, ALL)} & decided.keys():
                key = row.keys[problem][:KEY]
                low, high = points_with_review(record)
                cells = (row.id, problem, "", "", row.name, decimal(low), decimal(high), key)
                wanted.append(dict(zip(COLUMNS, cells, strict=True)))
    new = [row for row in wanted if (row["student"], row["problem"], row["result"]) not in known]
    if new or changed or not path.exists():
        kept = [[sheet.own_text(cell) for cell in row] for row in table[1:]]
        files.write(path, sheet.to_csv([table[0], *kept, *([row.get(name, "") for name in header] for row in new)]))
    return f"to decide: fill in `points` in {path}, and run make class ... OUT={quoted(out)} again" if wanted else ""


def bind(table: list[list[str]], header: list[str], whole: Class) -> bool:
    """Bind each line that counts to the hand-in that it was made for; True where a cell was filled in."""
    changed = False
    for cells, said in zip(table[1:], as_rows(table, header), strict=True):
        problem = said.get("problem", "").lower()
        if not said.get("points") or said.get("result") or problem == BONUS:
            continue
        with suppress(BadClass):
            row = find_row(whole, said.get("student", ""))
            if not check(dict.fromkeys(COLUMNS, "") | said, row, problem, whole)[0]:
                cells += [""] * (len(header) - len(cells))
                cells[header.index("result")], changed = bound_to(row, problem), True
    return changed


def bound_to(row: Row, problem: str) -> str:
    """What tells this hand-in of a student from another: its modules; of lateness, when it came, too."""
    return digest(row.folder, *((row.submitted, *row.entries) if problem == LATE else ()))[:KEY]


def as_rows(table: list[list[str]], header: list[str]) -> list[dict[str, str]]:
    return [dict(zip(header, map(sheet.own_text, row), strict=False)) for row in table[1:]]


def points_with_review(record: Record) -> tuple[Fraction, Fraction]:
    """(points without the cases to review, points with all of them)"""
    pairs = list(zip(record.results, score.max_points(record.results), strict=True))
    low = sum((most * score.kept(result) for result, most in pairs), Fraction(0))
    return low, low + sum((most for result, most in pairs if result in record.to_review), Fraction(0))


def decimal(value: Fraction | None, places: int = 2) -> str:
    """A Fraction as a decimal of at most `places` places, half up, computed without floats; None is blank."""
    if value is None:
        return ""
    scaled = int(abs(value) * 10**places + Fraction(1, 2))
    whole, rest = divmod(scaled, 10**places)
    text = f"{whole}.{rest:0{places}}".rstrip("0").rstrip(".") if places else str(whole)
    return ("-" if value < 0 and scaled else "") + text
