"""Canvas: one column of the gradebook that the instructor exported is filled; nothing else in the file changes.

Source: Canvas Instructor Guide, "How do I import grades in the Gradebook?".
"""

import re
from fractions import Fraction

from grader.classroom.export.matching import Key, cannot_fill, match
from grader.classroom.export.standing import decimal, standings
from grader.classroom.sheet import BadSheet, Sheet, plain, turned


def fill(graded, path, column, out):
    """Write the instructor's export `path` with `column` filled to `out`; returns sentences. Raises BadSheet."""
    sheet = Sheet.read(path)
    student, target = sheet.needs("Student"), find_column(sheet, column)
    sis, login, user = (sheet.column(name) for name in ("SIS User ID", "SIS Login ID", "ID"))
    rows = {i: sheet.text(i, student) for i in range(1, len(sheet.rows)) if is_student(sheet, i, student)}
    if not rows:
        raise BadSheet(f"{path.name} has no students below its header: export the whole gradebook, as CSV")
    names = {i: turned(name) for i, name in rows.items()}
    keys = [
        Key("SIS User ID", lambda i: plain(sheet.text(i, sis)), lambda s: plain(s.id)),
        Key("SIS Login ID", lambda i: plain(sheet.text(i, login)), lambda s: plain(s.from_roster("login"))),
        Key("SIS Login ID", lambda i: plain(sheet.text(i, login)), lambda s: plain(s.from_roster("email"))),
        Key("ID", lambda i: sheet.text(i, user), lambda s: s.lms),
        Key("name", names.get, lambda s: turned(s.name), sure=False),
    ]
    found = match(rows, standings(graded), keys, path.name)
    said, filled = out_of(sheet, target, graded), 0
    mark = sheet.mark(target)
    for row, known in found.pairs:
        if why := cannot_fill(known):
            said.append(why)
            continue
        sheet.fill(row, target, decimal(known.total, mark=mark), is_number=True)
        filled += 1
    out.write_bytes(sheet.to_bytes())
    return [f"canvas: {out}: {filled} of {len(rows)} rows filled in {sheet.header[target]!r}", *said, *found.said]


def find_column(sheet, asked):
    """The column with this name, or with this beginning and Canvas' number behind it: `P3 (12345)`."""
    wanted = plain(asked)
    titles = [plain(title) for title in sheet.header]
    exact = [i for i, title in enumerate(titles) if title == wanted]
    numbered = [i for i, title in enumerate(titles) if re.fullmatch(re.escape(wanted) + r" \(\d+\)", title)]
    begins = [i for i, title in enumerate(titles) if wanted and title.startswith(wanted)]
    for found in (exact, numbered, begins):
        if len(found) == 1:
            return check_column(sheet, found[0])
        if found:
            several = ", ".join(repr(sheet.header[i]) for i in found)
            raise BadSheet(f"the column {asked!r} could be any of {several}: give the whole name, its number included")
    columns = ", ".join(repr(title) for title in sheet.header if re.search(r"\(\d+\)$", title)) or "none"
    raise BadSheet(f"{sheet.name} has no column {asked!r}; its assignments are: {columns}")


def check_column(sheet, column):
    """`column` itself; raises BadSheet where it says who a student is, or where Canvas takes nothing in."""
    title = sheet.header[column]
    if plain(title) in ("student", "id", "sis user id", "sis login id", "integration id", "root account", "section"):
        raise BadSheet(f"the column {title!r} says who a student is: name the assignment's column")
    if any(sheet.text(i, column) == "(read only)" for i in points_possible(sheet)):
        raise BadSheet(f"Canvas computes the column {title!r} itself (read only): name the assignment's column")
    return column


def points_possible(sheet):
    """The rows above the students in which Canvas says how many points there are."""
    student = sheet.needs("Student")
    return [i for i in range(1, len(sheet.rows)) if plain(sheet.text(i, student)) == "points possible"]


def is_student(sheet, row, student):
    """False for rows about columns (how grades are posted, the points) and for Canvas' own test student."""
    name = plain(sheet.text(row, student))
    return name not in ("", "points possible", "student, test", "test student")


def out_of(sheet, column, graded):
    """A sentence where the column's points are not those of what was graded; points are written as they are."""
    most = sum(map(Fraction, graded.problems.values()), Fraction(0))
    for row in points_possible(sheet):
        try:
            says = Fraction(sheet.text(row, column).replace(",", "."))
        except ValueError:
            continue
        if says != most:
            return [
                f"the column is out of {decimal(says)} points, what was graded out of {decimal(most)}: "
                "points are written as they were earned"
            ]
    return []
