"""Rosters as people and platforms write them, and whose submission is whose."""

import os

import pytest

from grader.classroom import claims, intake, roster
from grader.classroom.roster import BadRoster, Student
from grader.kinds.registry import PROBLEMS

P1 = PROBLEMS["p1"].module
ANN, BOB = Student("s1001", "Ann Lee", "ann.lee@uni.edu", "alee"), Student("s1002", "Bob Müller", "bob@uni.edu", "bmu")


def read(tmp_path, text, encoding="utf-8"):
    path = tmp_path / "roster.csv"
    path.write_bytes(text.encode(encoding))
    return roster.read(path)


def test_columns_are_found_by_name(tmp_path):
    students, notes = read(tmp_path, "Section,E-mail,Student Number,Name\nA,a@x.y,17,Ann Lee\n\nB,b@x.y,18,Bob\n")
    assert students == [Student("17", "Ann Lee", "a@x.y"), Student("18", "Bob", "b@x.y")] and notes == []


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_encodings_and_semicolons(tmp_path, encoding, mark):
    students, _ = read(tmp_path, f'id{mark}name\r\n1{mark}"Müller, Zoë"\r\n', encoding)
    assert students == [Student("1", "Müller, Zoë")]


def test_the_export_of_canvas(tmp_path):
    students, _ = read(tmp_path, "Student,ID,SIS User ID,SIS Login ID,Section,HW (1)\n    Points Possible,,,,,100\n"
                                 '"Lee, Ann",111,s1001,alee,A,\n"Student, Test",5,,,A,\n')  # fmt: skip
    assert students == [Student("s1001", "Lee, Ann", "", "alee", "111")]


def test_the_export_of_moodle(tmp_path):
    students, _ = read(tmp_path, "Identifier,Full name,Email address,Status,Grade\nParticipant 123,Ann Lee,a@x.y,,-\n")
    assert students == [Student("", "Ann Lee", "a@x.y", "", "123")]


def test_first_and_last_names(tmp_path):
    students, _ = read(tmp_path, "First name,Last name,ID number\nAnn,Lee,7\n")
    assert students == [Student("7", "Ann Lee")]


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "is empty"),
        ('id,name\n1,"Ann\n' + "x,y\n" * 50_000, "is no CSV .*a quote that is not closed"),
        ("a,b\n1,2\n", "no column that names students; it has a, b"),
        ("id,name\n", "but no students"),
    ],
)
def test_rosters_that_cannot_be_used(tmp_path, text, words):
    with pytest.raises(BadRoster, match=words):
        read(tmp_path, text)
    with pytest.raises(BadRoster, match="cannot be read: No such file"):
        roster.read(tmp_path / "missing.csv")


def test_a_student_twice(tmp_path):
    students, notes = read(tmp_path, "id,name\n1,Ann\n1,Bob\n")
    assert students == [Student("1", "Ann")] and "has 1 twice" in notes[0]


# Joining --------------------------------------------------------------------------------------------------------------


def join(tmp_path, folders, students):
    for number, name in enumerate(folders):
        path = tmp_path / "in" / name / P1
        path.parent.mkdir(parents=True)
        path.write_text(f"x = {number}\n")
        os.utime(path.parent, (1e9 + number, 1e9 + number))
    submissions, _ = intake.take_in(tmp_path / "in", tmp_path / "out", (PROBLEMS["p1"],))
    return claims.join(submissions, students)[:2]


@pytest.mark.parametrize(
    "folder",
    ["s1001", "S1001", "Ann Lee", "lee, ann", "leeann", "ann_lee", "hw3-s1001-final", "alee", "ann.lee@uni.edu",
     "leeann_77_88_file.zip", "Ann Lee_123_assignsubmission_file_"],
)  # fmt: skip
def test_who_a_folder_belongs_to(tmp_path, folder):
    rows, graded = join(tmp_path, [folder], [ANN, BOB])
    assert rows[0].roster["id"] == "s1001" and rows[0].handed_in and [s.id for s in graded] == [rows[0].id]
    assert rows[1].roster["id"] == "s1002" and not rows[1].handed_in and rows[1].remarks == ("Not handed in.",)
    assert rows[0].remarks == () and len(rows) == 2


def test_accents_and_a_platforms_number(tmp_path):
    rows, _ = join(tmp_path, ["bob muller", "nobody_77_88_file"], [BOB, Student("9", "Cy", lms="77")])
    assert [row.roster["name"] for row in rows] == ["Bob Müller", "Cy"] and all(row.handed_in for row in rows)


def test_a_submission_of_nobody_stands_by_itself(tmp_path):
    rows, graded = join(tmp_path, ["eve", "Ann Lee"], [ANN])
    assert [row.roster and row.roster["id"] for row in rows] == ["s1001", None] and len(graded) == 2
    assert "No student of the roster is called so" in rows[1].remarks[0]


def test_names_that_several_students_share(tmp_path):
    rows, _ = join(tmp_path, ["Ann Lee"], [ANN, Student("s1003", "Ann Lee")])
    assert [row.handed_in for row in rows] == [False, False, True]
    assert "Several students of the roster could be meant" in rows[2].remarks[0]
    assert len({row.id for row in rows}) == 3


def test_of_two_submissions_the_latest_is_graded(tmp_path):
    rows, graded = join(tmp_path, ["lee, ann", "Ann Lee"], [ANN])
    assert len(graded) == 1 and graded[0].title == "Ann Lee"
    assert rows[0].remarks[0] == "Handed in twice; the latest, Ann Lee, was graded, not lee, ann."


def test_without_a_roster_everybody_has_a_row(tmp_path):
    rows, graded = join(tmp_path, ["a", "b"], None)
    assert [row.id for row in rows] == ["a", "b"] and all(row.roster is None for row in rows) and len(graded) == 2
