"""The roster: a CSV whose columns are found by their names."""

import re
from dataclasses import dataclass
from pathlib import Path

from grader.classroom import names
from grader.classroom.sheet import BadSheet, Sheet
from grader.commands.arguments import BadArguments

# Column names as people and platforms write them, small letters and no punctuation.
COLUMNS = {
    "id": ("sis user id", "student number", "student id", "id number", "sid", "matriculation number", "matrikelnummer",
           "student no", "studentid", "sis id", "number", "id"),
    "name": ("name", "student", "full name", "student name", "fullname"),
    "first": ("first name", "given name", "firstname", "vorname"),
    "last": ("last name", "surname", "family name", "lastname", "nachname"),
    "email": ("email", "email address", "e mail", "mail", "e mail address"),
    "login": ("sis login id", "login", "login id", "username", "user name", "account"),
    "lms": ("identifier", "canvas id", "canvas user id", "id"),
}  # fmt: skip


class BadRoster(BadArguments):
    """The roster cannot be used; the text is one sentence."""


@dataclass(frozen=True)
class Student:
    """A line of the roster; what it does not have is empty. lms: the number by which a platform's files are named."""

    id: str = ""
    name: str = ""
    email: str = ""
    login: str = ""
    lms: str = ""

    @property
    def title(self):
        return self.name or self.email or self.login or self.id

    @property
    def key(self):
        return self.id or self.email or self.login or self.lms or self.name


def read(path):
    """([Student], notes) of a roster; raises BadRoster."""
    try:
        sheet = Sheet.read(Path(path))
    except BadSheet as error:
        raise BadRoster(f"the roster {error}") from None
    if any(cell.is_open for row in sheet.rows for cell in row):
        raise BadRoster(f"the roster {path} is no CSV that can be read: look for a quote that is not closed")
    table = [[cell.text for cell in row] for row in sheet.rows if any(cell.text for cell in row)]
    places = find_columns(table[0])
    if not places.keys() & {"id", "name", "last", "email", "login"}:
        raise BadRoster(
            f"the roster {path} has no column that names students; it has {', '.join(table[0][:8])}, and one of "
            "id, name, email or login is needed"
        )
    students, notes = {}, []
    for line in table[1:]:
        student = student_of(line, places)
        if not student.key or student.name.lower() in ("points possible", "student, test", "test student"):
            continue  # a second header line of Canvas, and its test student
        if student.key in students:
            notes.append(f"The roster has {names.shortened(student.key)} twice; the first line counts.")
        students.setdefault(student.key, student)
    if not students:
        raise BadRoster(f"the roster {path} has columns but no students")
    return list(students.values()), notes


def find_columns(head):
    """{what: place} of the columns that are known; each of a roster's columns means one thing."""
    said = [re.sub(r"[^a-z0-9]+", " ", name.lower()).strip() for name in head]
    places = {}
    for what, known in COLUMNS.items():
        for name in known:
            if what not in places and name in said and said.index(name) not in places.values():
                places[what] = said.index(name)
    return places


def student_of(line, places):
    known = {what: line[place] for what, place in places.items() if place < len(line)}
    name = known.get("name") or " ".join(filter(None, (known.get("first"), known.get("last"))))
    lms = known.get("lms", "")
    return Student(
        known.get("id", ""), name, known.get("email", ""), known.get("login", ""), lms.removeprefix("Participant ")
    )
