"""gradebook.csv: a row for each student, the same bytes for the same class."""

import csv
import io
import unicodedata

from grader.classroom.export.standing import decimal, standings
from grader.processes import files

SIGNS = frozenset("=+-@")  # with which a formula begins
SEPARATORS = frozenset(",;|\t\r\n")  # of cells, for one spreadsheet or another


def text_cell(text):
    """A text of which no spreadsheet takes a part for a formula: an apostrophe stands before each that would be one.

    A file with commas is split at semicolons where those are usual, so a cell may begin within a text. Signs count in
    each spelling that NFKC makes plain; quotes and what cannot be seen count as blanks. Source: OWASP, "CSV Injection".
    """
    written, begins = [], True
    for letter in str(text):
        plain = unicodedata.normalize("NFKC", letter)
        written += ["'"] if begins and plain[0] in SIGNS else []
        written.append(letter)
        blank = letter in ' "' or not letter.isprintable()
        begins = (begins and blank) or not SEPARATORS.isdisjoint(plain)
    return "".join(written)


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
