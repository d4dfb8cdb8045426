"""Moodle: Grade, and if asked the feedback, are filled in the grading worksheet that the instructor downloaded.

Source: MoodleDocs, "Offline grading worksheet".
"""

import re
from fractions import Fraction

from grader.classroom.export.matching import Key, cannot_fill, describe, match
from grader.classroom.export.standing import decimal, problem_line, standings
from grader.classroom.sheet import BadSheet, Sheet, plain, turned

WORDS = ("Identifier", "Full name", "Email address", "ID number", "Grade", "Maximum Grade", "Feedback comments")


def fill(graded, path, out, feedback=False):
    """Write the worksheet `path`, filled, to `out`; returns sentences. Raises BadSheet."""
    sheet = Sheet.read(path)
    grade, identifier = sheet.needs("Grade"), sheet.needs("Identifier")
    name, email, number = (sheet.column(title) for title in WORDS[1:4])
    most, locked = sheet.column("Maximum Grade"), sheet.column("Grade can be changed")
    comments = sheet.needs("Feedback comments") if feedback else None
    rows = {
        i: sheet.text(i, name) or sheet.text(i, identifier)
        for i in range(1, len(sheet.rows))
        if sheet.text(i, identifier)
    }
    if not rows:
        raise BadSheet(f"{path.name} has no participants below its header: download the grading worksheet again")
    keys = [
        Key("identifier", lambda i: participant(sheet.text(i, identifier)), lambda s: s.lms),
        Key("ID number", lambda i: plain(sheet.text(i, number)), lambda s: plain(s.id)),
        Key("email address", lambda i: plain(sheet.text(i, email)), lambda s: plain(s.from_roster("email"))),
        Key("name", lambda i: turned(sheet.text(i, name)), lambda s: turned(s.name), sure=False),
    ]
    found = match(rows, standings(graded), keys, path.name)
    said, filled, mark = [], 0, sheet.mark(grade, most)
    for row, known in found.pairs:
        if why := cannot_fill(known) or not_to_be_changed(sheet, row, known, most, locked):
            said.append(why)
            continue
        sheet.fill(row, grade, decimal(known.total, mark=mark), is_number=True)
        if feedback:
            sheet.fill(row, comments, problem_line(graded.find_records(known.row)))
        filled += 1
    out.write_bytes(sheet.to_bytes())
    return [f"moodle: {out}: {filled} of {len(rows)} rows filled", *said, *found.said]


def not_to_be_changed(sheet, row, known, most, locked):
    """Why Moodle would not take the grade in, or ""."""
    if plain(sheet.text(row, locked)) == "no":
        return f"{describe(known)} is left as it was: Moodle says that this grade cannot be changed"
    try:
        limit = Fraction(sheet.text(row, most).replace(",", "."))
    except ValueError:
        return ""
    if known.total > limit:
        return (
            f"{describe(known)} is left as it was: {decimal(known.total)} points are more than "
            f"Moodle's maximum of {decimal(limit)}: set the assignment's maximum grade"
        )
    return ""


def participant(identifier):
    """`Participant 4711` -> `4711`, in any of Moodle's languages."""
    found = re.search(r"(\d+)\s*$", identifier)
    return found[1] if found else ""
