"""gradebook.csv: a row for each student, the same bytes for the same class."""

import csv
import io

from grader.classroom.export.standing import decimal, standings
from grader.processes import files

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")  # how a cell begins that a spreadsheet would compute


def text_cell(text):
    """A text that no spreadsheet takes for a formula: an apostrophe stands before what would be one.

    Source: OWASP, "CSV Injection".
    """
    text = str(text)
    return f"'{text}" if text.lstrip(" ").startswith(FORMULA) or text.startswith(FORMULA) else text


def render(graded):
    """The gradebook as text: UTF-8 with a mark of its order, so that spreadsheets read names as they are written."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(["id", "name", "email", "submission", *graded.problems, "total", "status", "remarks"])
    for student in standings(graded):
        who = (student.id, student.name, student.of_roster("email"), student.submission)
        points = (decimal(student.points[id], places=4) for id in graded.problems)
        said = (student.status, "; ".join(student.remarks))
        writer.writerow([*map(text_cell, who), *points, decimal(student.total), *map(text_cell, said)])
    return out.getvalue()


def write(graded, path):
    """Write it; returns the line to print."""
    files.write(path, render(graded).encode("utf-8-sig"))
    return f"gradebook: {path}"
