"""The roster: a CSV whose columns are found by their names, and which student each submission belongs to."""

import csv
import io
import re
import unicodedata
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from grader.classroom import names
from grader.classroom.record import Row

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
HANDED_IN_TWICE = "Handed in twice; the latest, {}, was graded, not {}."


class BadRoster(Exception):
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
        data = Path(path).read_bytes()
    except OSError as error:
        raise BadRoster(f"the roster {path} cannot be read: {error.strerror}") from None
    table = list(csv.reader(io.StringIO(text_of(data), newline=""), delimiter=delimiter(data)))
    table = [[cell.strip() for cell in line] for line in table if any(cell.strip() for cell in line)]
    if not table:
        raise BadRoster(f"the roster {path} is empty")
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


def text_of(data):
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace")


def delimiter(data):
    first = next((line for line in text_of(data).splitlines() if line.strip()), "")
    return max((",", ";", "\t"), key=first.count)


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


# Who is who ----------------------------------------------------------------------------------------------------------


def join(submissions, students):
    """([Row], [Submission] to grade): each student's latest submission, and those whose student is not known.

    students: None where there is no roster. Students without a submission have a row too.
    """
    if students is None:
        return [row_of(submission, None) for submission in submissions], list(submissions)
    of, unknown = {}, []
    for submission in submissions:
        student, remark = find(submission, students)
        if student is None:
            unknown.append(replace(submission, remarks=(*submission.remarks, remark)))
        else:
            of.setdefault(student.key, []).append(submission)
    rows, graded = [], []
    taken = {submission.id for submission in submissions}
    absent = names.slugs(student.title for student in students)
    for student in students:
        if student.key in of:
            submission = latest(of[student.key])
            graded.append(submission)
            rows.append(row_of(submission, student))
        else:
            rows.append(row_of_absent(student, absent[student.title], taken))
    return rows + [row_of(submission, None) for submission in unknown], graded + unknown


def row_of(submission, student):
    roster = None if student is None else vars(student).copy()
    folder, lms = f"work/{submission.folder.name}", submission.owner.lms if submission.owner else ""
    return Row(
        submission.id, submission.title, submission.remarks, submission.modules, roster, folder=folder, lms=lms
    )  # fmt: skip


def row_of_absent(student, slug, taken):
    id = slug if slug not in taken else f"{slug}-{names.hashed(student.key)}"
    taken.add(id)
    return Row(id, student.title, ("Not handed in.",), (), vars(student).copy(), handed_in=False)


def latest(submissions):
    """The latest of one student's submissions, with a remark where there are others."""
    ordered = sorted(submissions, key=lambda s: (s.time, natural(s.owner.file if s.owner else s.id)))
    last, others = ordered[-1], [names.shortened(s.owner.words if s.owner else s.id) for s in ordered[:-1]]
    if not others:
        return last
    said = HANDED_IN_TWICE.format(names.shortened(last.owner.words if last.owner else last.id), " nor ".join(others))
    return replace(last, remarks=(said, *last.remarks))


def natural(name):
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def find(submission, students):
    """(the Student of a submission, None) or (None, why there is none)."""
    owner = submission.owner
    sure = {owner.lms: "lms", owner.sid: "id", owner.email: "email"}
    for value, what in sure.items():
        known = {s: {getattr(s, what).lower(), s.id.lower()} for s in students}
        if value and (found := [s for s in students if value.lower() in known[s]]):
            return found[0], None
    said = plain(owner.title)
    words = set(re.split(r"[^0-9a-z@.]+", names.readable(owner.base).lower())) - {""}
    exact = [s for s in students if said and said in ways_to_say(s)]
    worded = [s for s in students if words & {v.lower() for v in (s.id, s.login, s.email) if len(v) > 2}]
    for found in (exact, worded):
        if len(found) == 1:
            return found[0], None
        if found:
            who = ", ".join(f"{s.title} ({s.key})" for s in found[:3])
            return None, f"Several students of the roster could be meant ({who}): it stands by itself."
    return None, "No student of the roster is called so: it stands by itself."


def plain(name):
    """A name without case, accents and spaces, as Canvas writes it."""
    text = unicodedata.normalize("NFKD", names.readable(name)).lower()
    return "".join(c for c in text if c.isalnum())


def ways_to_say(student):
    """What a submission of this student may be called."""
    parts = student.name.replace(",", " ").split()
    swapped = {"".join(parts[-n:] + parts[:-n]) for n in range(len(parts))}
    ways = {plain(way) for way in (*swapped, student.name, student.id, student.login, student.email)}
    return ways | {plain(student.email.partition("@")[0])} - {""}


def repeated(rows):
    """Row ids that stand twice: a fault of ours, found before anything is graded."""
    return [id for id, count in Counter(row.id.lower() for row in rows).items() if count > 1]
