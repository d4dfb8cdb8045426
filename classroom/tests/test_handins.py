"""Whose is what was handed in: by documented names or submissions.csv, never guessed, and nobody gets another's."""

import os
import zipfile

import pytest

from classroom import handins, roster
from classroom.data import Class, Student, find_row
from grader.registry import PROBLEMS
from grader.tests.support import in_utf8

P1, P2 = PROBLEMS["p1"], PROBLEMS["p2"]
ADA = Student("s1", "Ada Lovelace", "ada@u.example", "ada", "4711")
BOB = Student("s2", "Bob Müller", "bob@u.example", "bob", "4712", line=1)


def put(folder, name, text="x = 1", module=P1.module):
    """An entry of this name: a folder with a module, a zip of it, or the module itself."""
    path = folder / name
    folder.mkdir(parents=True, exist_ok=True)
    if name.endswith(".zip"):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(module, text)
    elif name.endswith(".py"):
        path.write_text(text, "utf-8")
    else:
        path.mkdir()
        (path / module).write_text(text, "utf-8")


def take_in(tmp_path, students=(ADA, BOB), problems=(P1, P2)):
    rows, _ = handins.take_in(tmp_path / "in", tmp_path / "out", problems, list(students) if students else None)
    return {row.id: row for row in rows}


def module_of(tmp_path, row, module=P1.module):
    return (tmp_path / "out" / row.folder / module).read_text("utf-8")


@pytest.mark.parametrize(("name", "stem"), [
    ("Ada Lovelace_4711_assignsubmission_file_", "Ada Lovelace_4711_assignsubmission_file_/"),
    (f"Ada Lovelace_4711_assignsubmission_file_{P1.module}", "Ada Lovelace_4711_assignsubmission_file_"),
    (f"lovelaceada_4711_99_{P1.module}", "lovelaceada_4711_99_"),
    (f"lovelaceada_LATE_4711_99_{P1.module}", "lovelaceada_LATE_4711_99_"),
    ("Ada Lovelace", ""), ("s1", ""), ("4711", ""), ("ada.zip", ""), ("ada@u.example", ""),
])  # fmt: skip
def test_each_documented_name_leads_to_its_student(tmp_path, name, stem):
    put(tmp_path / "in", name)
    rows = take_in(tmp_path)
    assert not rows["s1"].why and module_of(tmp_path, rows["s1"]) == "x = 1"
    assert rows["s1"].stem == stem and rows["s1"].late == ("LATE" in name)
    assert not rows["s2"].entries and list(rows) == ["s1", "s2"]


def test_files_of_one_number_are_one_hand_in(tmp_path):
    put(tmp_path / "in", f"lovelaceada_4711_99_{P1.module}")
    put(tmp_path / "in", f"lovelaceada_4711_98_{P2.module.replace('.py', '-1.py')}", "y = 2")
    row = take_in(tmp_path)["s1"]
    assert row.modules == (P1.module, P2.module) and module_of(tmp_path, row, P2.module) == "y = 2"


def test_gradescope_says_who_is_who(tmp_path):
    put(tmp_path / "in", "submission_1")
    put(tmp_path / "in", "submission_2")
    put(tmp_path / "in", "submission_3")
    (tmp_path / "in" / handins.METADATA).write_bytes(
        b"submission_1:\n  :submitters:\n  - :name: ada\n    :sid: s1\n  - :name: Bob\n    :email: bob@u.example\n"
        b"  :created_at: 2026-11-20 10:00:00.000000000 +01:00\n"
        b"submission_2:\n  :submitters:\n  - :name: |-\n      x\n      :sid: s1\n    :sid: s9\n"
    )
    rows = take_in(tmp_path)
    assert module_of(tmp_path, rows["s1"]) and module_of(tmp_path, rows["s2"])
    assert rows["s1"].submitted.startswith("2026-11-20 ") and not rows["s1"].why and not rows["s2"].why
    others = [row for id, row in rows.items() if id not in ("s1", "s2")]
    assert len(others) == 2 and all("submissions.csv" in row.why for row in others)


def test_a_hand_in_that_kills_who_reads_it_stops_nobody_elses(tmp_path, monkeypatch):
    def take(parts, names, take=handins.modules.take):
        return os._exit(3) if "bob" in str(parts[0][0]) else take(parts, names)

    monkeypatch.setattr(handins.modules, "take", take)
    for name in ("ada", "bob"):
        put(tmp_path / "in", name)
    rows = take_in(tmp_path)
    assert rows["s1"].modules and "could not be looked at" in rows["s2"].why


def test_a_files_name_may_have_numbers(tmp_path):
    put(tmp_path / "in", "lovelaceada_4711_99_lab_1_2_final.zip")
    assert not take_in(tmp_path)["s1"].why, "no other student has them"
    assert "two ways" in next(iter(take_in(tmp_path, None).values())).why, "without a roster nobody knows"


def test_a_list_keeps_when_a_file_came(tmp_path):
    put(tmp_path / "in", f"x_late_1_2_3_{P1.module}")
    put(tmp_path / "in", f"bob_late_4712_98_{P1.module}")
    (tmp_path / "in" / handins.LIST).write_text(
        f"student,path\ns1,x_late_1_2_3_{P1.module}\ns2,bob_late_4712_98_{P1.module}\n", "utf-8"
    )
    rows = take_in(tmp_path)
    assert rows["s1"].late and rows["s2"].late and rows["s2"].stem == "bob_late_4712_98_"


def test_an_id_counts_before_anybodys_name(tmp_path):
    eve = Student("s3", "s2", "eve@u.example", line=2)
    put(tmp_path / "in", "s2")
    rows = take_in(tmp_path, (ADA, BOB, eve))
    assert rows["s2"].modules and not rows["s3"].entries
    whole = Class({"p1": 10}, tuple(rows.values()))
    assert find_row(whole, "s2").name == "Bob Müller" and find_row(whole, "EVE@u.example").id == "s3"


def test_files_of_one_student_make_nobody_elses_odd(tmp_path):
    put(tmp_path / "in", f"lovelaceada_4711_99_{P1.module}")
    for number in range(3):
        put(tmp_path / "in", f"bob_4712_9{number}_Eve_{number}_assignsubmission_file_x.zip")
    assert not take_in(tmp_path)["s1"].why and take_in(tmp_path)["s1"].modules
    (tmp_path / "in" / f"lovelaceada_4711_97_{P1.module}").write_text("x = 1", "utf-8")
    for number in range(3):
        (tmp_path / "in" / f"p1_4712_9{number}_{number}.py").write_text("", "utf-8")
    assert not take_in(tmp_path)["s1"].why, "one student called p1 is no submission"


def test_no_name_of_gradescope_is_anything_but_a_text(tmp_path):
    for number in range(3):
        put(tmp_path / "in", f"submission_{number}")
    (tmp_path / "in" / handins.METADATA).write_text("".join(
        f"submission_{number}:\n  :submitters:\n  - :name: {name}\n    :sid: {sid}\n    :email: {email}\n"
        for number, (name, sid, email) in enumerate((("2026-02-31", "s1", ""), ("!!x y", "", "z@y"), ("s2", "", "a@y")))
    ), "utf-8")  # fmt: skip
    rows = take_in(tmp_path)
    assert not rows["s1"].why and rows["s1"].modules
    assert not rows["s2"].modules, "a display name counts for nothing where the roster has ids"
    alone = take_in(tmp_path, None)
    assert "s1" in alone and not any(row.why for row in alone.values()), "their ids are the platform's"


def test_a_report_beside_the_modules_is_taken_and_lies_elsewhere(tmp_path):
    put(tmp_path / "in", f"lovelaceada_4711_99_{P1.module}")
    (tmp_path / "in" / "lovelaceada_4711_98_report.md").write_text("my report", "utf-8")
    (tmp_path / "in" / "notes.md").write_text("the instructor's", "utf-8")
    rows, notes = handins.take_in(tmp_path / "in", tmp_path / "out", (P1,), [ADA])
    assert (tmp_path / "out" / rows[0].report).read_text("utf-8") == "my report" and "notes.md" in notes[-1]
    assert [path.name for path in (tmp_path / "out" / rows[0].folder).iterdir()] == [P1.module]


def test_a_list_counts_before_what_names_say(tmp_path):
    put(tmp_path / "in", f"lovelaceada_4711_99_{P1.module}", "x = 1")
    put(tmp_path / "in", f"bob_4712_98_{P1.module}", "x = 2")
    put(tmp_path / "in", f"bob_4712_97_{P2.module}", "y = 2")
    put(tmp_path / "in", "late.zip", "x = 3")
    (tmp_path / "in" / handins.LIST).write_text(
        f"student,path\nada,late.zip\nbob@u.example,bob_4712_98_{P1.module}\ns2,nothing\n", "utf-8"
    )
    rows = take_in(tmp_path)
    assert module_of(tmp_path, rows["s1"]) == "x = 3" and "submissions.csv says what counts" in rows["s1"].remarks[0]
    assert "Line 4" in rows["s2"].why and list(rows) == ["s1", "s2"], "a bad line costs no 0"


def test_a_new_id_is_nobodys_name(tmp_path):
    (tmp_path / "in").mkdir()
    names = ["x y_1_9_a.zip", "x-y_1_9_b.zip"]
    for name in names:
        put(tmp_path / "in", name)
    first = take_in(tmp_path, None)
    put(tmp_path / "in", f"{list(first)[-1].replace('_', ' ')}_2_9_c.zip")
    assert len(take_in(tmp_path, None)) == len(first) + 1


def test_a_list_says_who_handed_in_what(tmp_path):
    put(tmp_path / "in", "folder of the first")
    put(tmp_path / "in", "b.zip")
    (tmp_path / "secret").mkdir()
    (tmp_path / "in" / handins.LIST).write_bytes(
        b"student,path,submitted\ns1,folder of the first,2026-11-20T10:00\nbob@u.example,b.zip,\n"
        b"nobody,b.zip,\ns1x,../secret,\n"
    )
    rows = take_in(tmp_path)
    assert rows["s1"].submitted == "2026-11-20T10:00" and not rows["s1"].why and not rows["s2"].why
    whys = [row.why for row in rows.values() if row.why]
    assert (
        len(whys) == 2
        and any("called so" in why for why in whys)
        and any("nothing in this folder" in why for why in whys)
    )


@in_utf8
def test_a_platforms_archive_is_read_as_its_folder(tmp_path):
    (tmp_path / "in").parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr(f"Ada Lovelace_4711_assignsubmission_file_/{P1.module}", "x = 1")
        archive.writestr(f"Bob Müller_4712_assignsubmission_file_/{P1.module}", "x = 2")
        archive.writestr(f"Bob Müller_4712_assignsubmission_file_/{'n' * 300}.py", "no name of a file")
    rows, notes = handins.take_in(tmp_path / "all.zip", tmp_path / "out", (P1,), [ADA, BOB])
    assert [module_of(tmp_path, row) for row in rows] == ["x = 1", "x = 2"]
    assert "could not be unpacked" in notes[0], "one file stops nobody else's"
    (tmp_path / "no.zip").write_text("no archive", "utf-8")
    with pytest.raises(handins.BadFolder, match="no zip that can be read"):
        handins.take_in(tmp_path / "no.zip", tmp_path / "out", (P1,), None)


@pytest.mark.parametrize(("names", "words"), [
    (("Eve_1_assignsubmission_file_x_4711_assignsubmission_file_", "Bob_4712_assignsubmission_file_"), "in two ways"),
    (("hackereve_4711_500_99_x.zip", "bob_4712_98_x.zip"), "in two ways"),
    (("hackereve_4711_500_99_x.zip", f"lovelaceada_4711_9_{P1.module}"), "in two ways"),
    ((f"lovelaceada_4711_99_q_4712_9_{P1.module}", f"bob_4712_98_{P1.module}"), "in two ways"),
    (("Ada Lovelace", "Ada_Lovelace", "bob"), "Handed in several times"),
    (("Ada Lovelace_1_assignsubmission_file_", "Bob_4712_assignsubmission_file_"), "No one student"),
    (("eve", "bob"), "No one student"),
    (("Ada Lovelace_4711_assignsubmission_file_", "bob", "s1"), "not as most are"),
])  # fmt: skip
def test_what_does_not_fit_is_nobodys(tmp_path, names, words):
    for name in names:
        put(tmp_path / "in", name, f"# {name}")
    rows = take_in(tmp_path)
    odd = [row for row in rows.values() if row.why]
    assert odd and all(words in row.why for row in odd), odd
    others = {"s1", f"lovelaceada_4711_9_{P1.module}"}.intersection(names)
    assert not [row for id, row in rows.items() if id == "s1" and row.modules and not others], "another's"


def test_two_of_one_name_are_never_guessed(tmp_path):
    put(tmp_path / "in", "Ada Lovelace")
    rows = take_in(tmp_path, (ADA, Student("s3", "Ada Lovelace")))
    assert [row.why[:14] for row in rows.values() if row.entries] == ["No one student"]


def test_nobody_changes_another_students_id(tmp_path):
    put(tmp_path / "in", "submission_1")
    put(tmp_path / "in", "submission_2")
    (tmp_path / "in" / handins.METADATA).write_bytes(
        b"submission_1:\n  :submitters:\n  - :name: Ada\n    :sid: s1\n"
        b"submission_2:\n  :submitters:\n  - :name: s1\n    :sid: s9\n"
    )
    rows = take_in(tmp_path)
    assert rows["s1"].name == "Ada Lovelace" and not rows["s1"].why and len(rows) == 3


def test_a_name_of_feedback_stays_in_its_archive(tmp_path):
    put(tmp_path / "in", "..\\..\\x_4711_assignsubmission_file_")
    assert take_in(tmp_path)["s1"].stem == ".._.._x_4711_assignsubmission_file_/"


@in_utf8
def test_without_a_roster_every_entry_stands_by_itself(tmp_path):
    for name in ("Ann Lee", "ann-lee", "x\N{FULLWIDTH SOLIDUS}y", "\u202eevil\n<b>"):
        put(tmp_path / "in", name)
    rows = take_in(tmp_path, None)
    assert len(rows) == 3 and sum("several times" in row.why for row in rows.values()) == 1
    assert all(id.isascii() and id.isprintable() and "/" not in id for id in rows)
    assert all(row.name.isprintable() for row in rows.values())


def test_a_file_alone_is_the_module_where_one_is_asked(tmp_path):
    put(tmp_path / "in", "ada.py", "x = 3")
    assert module_of(tmp_path, take_in(tmp_path, problems=(P1,))["s1"]) == "x = 3"
    assert "no name of a module" in take_in(tmp_path)["s1"].why


def test_one_submission_is_not_taken_for_a_class(tmp_path):
    for module in (P1.module, P2.module):
        put(tmp_path / "in", module)
    with pytest.raises(handins.BadFolder, match="looks like one submission"):
        take_in(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(handins.BadFolder, match="holds no submissions"):
        handins.take_in(tmp_path / "empty", tmp_path / "out", (P1,), None)


# The roster -----------------------------------------------------------------------------------------------------------

CANVAS = (
    '"Student","ID","SIS User ID","SIS Login ID","Section","Flash (77)"\n'
    ',,,,,Manual Posting\n"    Points Possible",,,,,"100"\n"Lovelace, Ada","4711","s1","ada","A","1"\n'
    '"Müller, Bob","4712","s2","bob","A",""\n"Student, Test","1","","","A",""\n'
)
MOODLE = (
    "Identifier,Full name,Email address,Status,Grade,Maximum Grade,Grade can be changed,Feedback comments\n"
    'Participant 4711,Ada Lovelace,ada@u.example,x,,"100,00",Yes,\n'
    'Participant 4712,=Bob,bob@u.example,x,,"20,00",Yes,\n'
)


def written(tmp_path, text, points, column=""):
    path = tmp_path / "roster.csv"
    path.write_text(text, encoding="utf-8")
    students, platform, _ = roster.read(path)
    of = {student.line: roster.Back(points[student.lms][0], False, points[student.lms][1]) for student in students}
    column = roster.find_column(path, column, tmp_path) if column else ""
    said = roster.write_back(path, platform, column, tmp_path, of, 100)
    return students, (tmp_path / f"{platform}.csv").read_text(encoding="utf-8-sig").splitlines(), said


def test_canvas_gets_its_own_columns_back(tmp_path):
    points = {"4711": ("71.5", ""), "4712": ("", "")}
    students, lines, said = written(tmp_path, CANVAS, points, "flash")
    assert [(s.id, s.lms, s.login) for s in students] == [("s1", "4711", "ada"), ("s2", "4712", "bob")]
    assert lines == ["Student,ID,SIS User ID,SIS Login ID,Section,Flash (77)", '"Lovelace, Ada",4711,s1,ada,A,71.5']
    assert "1 of 2 students" in said[0]
    with pytest.raises(Exception, match="its assignments are Flash"):
        roster.find_column(tmp_path / "roster.csv", "other", tmp_path)
    assert not said[1:], "the same points there and here"
    assert "set it to 40" in roster.write_back(tmp_path / "roster.csv", "canvas", lines[0][-10:], tmp_path, {}, 40)[1]


def test_moodle_gets_its_worksheet_back(tmp_path):
    points = {"4711": ("71.5", "p1 10/10"), "4712": ("25", "p1 10/10")}
    students, lines, said = written(tmp_path, MOODLE, points)
    assert [s.lms for s in students] == ["4711", "4712"]
    assert lines[1] == 'Participant 4711,Ada Lovelace,ada@u.example,x,"71,5","100,00",Yes,p1 10/10'
    assert lines[2].startswith("Participant 4712,'=Bob,") and "more than Moodle's maximum of 20.00" in said[2]
    assert "20.00 points there, and 100 here" in said[1]


def test_a_roster_is_a_csv_with_known_columns(tmp_path):
    for text, key in (("id;name\ns1;Ada\ns1;Ada\n", "s1"), ("First Name,Last Name,SID\nAda,Lovelace,s1\n", "s1")):
        (tmp_path / "roster.csv").write_text(text, "utf-8")
        (student,), platform, notes = roster.read(tmp_path / "roster.csv")
        assert student.key == key and student.name.startswith("Ada") and not platform and len(notes) == (";" in text)
    (tmp_path / "roster.csv").write_text("id;name\ns1;Ada\ns1;Bob\n", "utf-8")
    with pytest.raises(roster.BadRoster, match="two lines that differ"):
        roster.read(tmp_path / "roster.csv")
    (tmp_path / "roster.csv").write_text("colour\nred\n", "utf-8")
    with pytest.raises(roster.BadRoster, match="no column id, name, email or login"):
        roster.read(tmp_path / "roster.csv")
