"""gradebook.csv: a row for each student, the same bytes for the same class."""

from grader.classroom.export.standing import decimal, standings
from grader.classroom.sheet import to_csv
from grader.core.sandbox import files


def render(graded):
    """The gradebook as text."""
    rows = [["id", "name", "email", "submission", *graded.problems, "total", "status", "remarks"]]
    for student in standings(graded):
        who = (student.id, student.name, student.from_roster("email"), student.submission)
        points = (decimal(student.points[id], places=4) for id in graded.problems)
        rows.append([*who, *points, decimal(student.total), student.status, "; ".join(student.remarks)])
    return to_csv(rows)


def write(graded, path):
    """Write it; returns the line to print."""
    files.write(path, render(graded))
    return f"gradebook: {path}"
