"""The roster: a CSV of our own, or a platform's own file, which then goes back to it with the points filled in.

Sources: Canvas Instructor Guide, "How do I import grades in the Gradebook?"; MoodleDocs, "Offline grading worksheet".
"""

import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

from msgspec import Struct, structs

from classroom import sheet
from classroom.data import BadClass, Student, read_class
from classroom.names import list_some, shortened
from classroom.sheet import plain
from grader.commands.arguments import BadArguments
from grader.core.sandbox import files

PLATFORMS = CANVAS, MOODLE = "canvas", "moodle"
CANVAS_COLUMNS = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")
NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")
STUDENTS = ("student", "learner", "")  # in a column `role`
NO_STUDENTS = ("points possible", "student, test", "test student")
# Of each field the columns that are read; docs/instructors.md has the same table.
COLUMNS = {
    "id": ("id", "sid", "student id", "id number", "sis user id"),
    "name": ("name", "student", "full name"),
    "email": ("email", "email address"),
    "login": ("login", "username", "sis login id"),
    "lms": ("lms", "identifier"),
    "submitted": ("submitted", "last modified (submission)"),
}


class BadRoster(BadArguments):
    """The roster cannot be used; the text is one sentence."""


def read(path: Path) -> tuple[list[Student], str, list[str]]:
    """(students, the platform whose file it is or "", notes) of a roster; raises BadRoster and BadSheet."""
    header, *rows = sheet.read(path)
    columns, platform = [plain(name) for name in header], platform_of(header)
    wanted = dict(COLUMNS)
    if platform == CANVAS:
        wanted |= {"id": ("sis user id",), "lms": ("id",)}
    places = {what: columns.index(name) for what, known in wanted.items() for name in known[::-1] if name in columns}
    first, last = (next((columns.index(n) for n in known if n in columns), None) for known in FIRST_LAST)
    if not places.keys() & {"id", "name", "email", "login"} and last is None:
        has = ", ".join(header[:8])
        raise BadRoster(f"the roster {path} has no column id, name, email or login; it has {has}")
    role = columns.index("role") if "role" in columns else None
    students: dict[str, Student] = {}
    notes = []
    for line, row in enumerate(rows):
        known = {what: row[place] for what, place in places.items() if place < len(row)}
        if last is not None and "name" not in known:
            known["name"] = " ".join(row[place] for place in (first, last) if place is not None and place < len(row))
        if platform == MOODLE:
            known["lms"] = participant(known.get("lms", ""))
        student = Student(**known, line=line)
        if role is not None and role < len(row) and plain(row[role]) not in STUDENTS:
            notes.append(f"The roster's line of {shortened(student.key)} was left out: {shortened(row[role])}.")
            continue
        if not student.key or (plain(student.name) in NO_STUDENTS and not student.id):
            continue  # a second header line of Canvas, and its test student
        same = students.setdefault(student.key, student)
        if structs.replace(same, line=line) != student:
            raise BadRoster(f"the roster {path} has {shortened(student.key)} in two lines that differ: give each an id")
        notes += [f"The roster has {shortened(student.key)} twice."] if same is not student else []
    if not students:
        raise BadRoster(f"the roster {path} has columns but no students")
    return list(students.values()), platform, notes


FIRST_LAST = (("first name", "firstname"), ("last name", "surname", "lastname"))


def platform_of(header: list[str]) -> str:
    """Whose file has these columns."""
    columns = {plain(name) for name in header}
    if {"identifier", "grade"} <= columns:
        return MOODLE
    return CANVAS if {"student", "id", "section"} <= columns else ""


def participant(identifier: str) -> str:
    """`Participant 4711` -> `4711`, in any of Moodle's languages."""
    found = re.search(r"(\d+)\s*$", identifier)
    return found[1] if found else ""


# Back to the platform -------------------------------------------------------------------------------------------------


class Back(Struct, frozen=True):
    """What goes back to the platform of one student: points, "" where none are known; a line on each problem."""

    points: str
    excused: bool = False
    words: str = ""


def write_back(
    path: Path, platform: str, column: str, out: Path, back: Mapping[int, Back], most: Fraction
) -> list[str]:
    """Write `out`/canvas.csv or `out`/moodle.csv; returns the lines to print. Raises BadSheet and BadArguments.

    path: the roster. column: the assignment's, in Canvas. back: {line of the roster: Back}. most: points of the class.
    """
    header, *rows = sheet.read(path)
    if platform == CANVAS:
        return write_canvas(header, rows, column, out / "canvas.csv", back, most)
    return write_moodle(header, rows, out / "moodle.csv", back, most)


def find_column(path: Path, column: str, out: Path) -> str:
    """The assignment's column of Canvas' file: that of last time, or "", where none is asked for.

    Raises BadRoster and BadSheet.
    """
    assignments = [name for name in sheet.read(path)[0] if re.search(r"\(\d+\)$", name)]
    found = [name for name in assignments if plain(column) in (plain(name), plain(re.sub(r" \(\d+\)$", "", name)))]
    if column and len(found) != 1:
        raise BadRoster(f"the roster has no one column {column!r}; its assignments are {list_some(assignments, 20)}")
    if column:
        return found[0]
    with suppress(BadClass):
        return next((name for name in assignments if name == read_class(out).column), "")
    return ""


def write_canvas(header, rows, column, path, back, most) -> list[str]:
    columns = [plain(name) for name in header]
    if not column:
        return ["canvas: no column was named: say COLUMN='the name of the assignment'"]
    kept = [columns.index(plain(name)) for name in CANVAS_COLUMNS if plain(name) in columns]
    given = {line: "EX" if one.excused else one.points for line, one in back.items()}
    lines = [[rows[line][place] for place in kept] + [points] for line, points in given.items() if points]
    files.write(path, sheet.to_csv([[*(header[place] for place in kept), column], *lines]))
    place = header.index(column)
    own = {line for line in back}
    limits = [row[place] for line, row in enumerate(rows) if line not in own and plain(row[0]) == NO_STUDENTS[0]]
    said = [f"canvas: {path}: {len(lines)} of {len(back)} students have points in {column!r}"]
    return said + unlike("canvas", {limit for limit in limits if limit}, most)


def unlike(platform: str, limits: Collection[str], most: Fraction) -> list[str]:
    """A sentence where the platform's points of the assignment are not the class's."""
    other = [limit for limit in limits if not NUMBER.fullmatch(limit) or Fraction(limit) != most]
    return (
        [f"{platform}: the assignment has {other[0]} points there, and {most} here: set it to {most}"] if other else []
    )


def write_moodle(header, rows, path, back, most_points) -> list[str]:
    columns = [plain(name) for name in header]
    grade, most, locked, comments = (
        columns.index(name) if name in columns else None
        for name in ("grade", "maximum grade", "grade can be changed", "feedback comments")
    )
    said, filled, limits = list[str](), 0, dict[str, None]()
    for line, one in back.items():
        given = one.points
        row = rows[line] = rows[line] + [""] * (len(header) - len(rows[line]))
        limit = row[most].replace(",", ".") if most is not None else ""
        limits |= {limit: None} if limit else {}
        if given and locked is not None and plain(row[locked]) == "no":
            said.append(f"moodle: line {line + 2} is as it was: Moodle says that its grade cannot be changed")
        elif given and NUMBER.fullmatch(limit) and Fraction(given) > Fraction(limit):
            said.append(
                f"moodle: line {line + 2} is as it was: {given} points are more than Moodle's maximum of {limit}"
            )
        elif given:
            row[grade] = given.replace(".", ",") if most is not None and "," in row[most] else given
            if comments is not None:
                row[comments] = one.words
            filled += 1
    files.write(path, sheet.to_csv([header, *rows]))
    head = f"moodle: {path}: {filled} of {len(back)} students have points"
    return [head, *unlike("moodle", limits, most_points), *said]
