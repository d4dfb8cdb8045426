"""What an instructor does next: decisions, lateness and excuses, and every form that follows from them at once."""

import csv
import datetime
import json
import time
import zipfile
from fractions import Fraction
from xml.etree import ElementTree

import pytest
from msgspec import structs

from classroom import decisions, sheet, standing
from classroom.data import Class, Record, Row
from classroom.tests.quick_one import MODULES
from classroom.tests.test_run import gradebook, make_class, quick
from grader.course.course import Late
from grader.result import Aspect, Outcome, Result

DUE = Late(datetime.datetime(2026, 11, 20, 12, 0), 10, grace_hours=1, most=25)


@pytest.fixture
def graded(tmp_path):
    """A class of five: ada is right or wrong, bob needs review, eve hangs, cy handed in nothing, dan a notebook."""
    folder, out = (
        make_class(tmp_path / "in", {"ada": "", "bob": ("", "review", ""), "eve": ("", "", "hang")}),
        tmp_path / "out",
    )
    (folder / "dan").mkdir()
    (folder / "dan" / "work.ipynb").write_text("{}", "utf-8")
    (tmp_path / "roster.csv").write_text("id,name\nada,=Ada\nbob,Bob\neve,Eve\ncy,Cy\ndan,Dan\n", "utf-8")

    def again(*more):
        assert quick(folder, out, "--roster", str(tmp_path / "roster.csv"), *more) == 0
        return gradebook(out)

    again()
    return out, again


def decide(out, *lines):
    (out / decisions.NAME).write_text("\n".join(["student,problem,points,reason", *lines]) + "\n", "utf-8")


def test_what_is_not_known_is_blank_and_never_0(graded):
    out, _ = graded
    rows = gradebook(out)
    assert {id: row["status"] for id, row in rows.items()} == {
        "ada": "graded", "bob": "needs review", "eve": "graded", "cy": "not handed in", "dan": "not understood",
    }  # fmt: skip
    for id in ("bob", "cy", "dan"):
        assert rows[id]["total"] == ""
    assert rows["bob"]["p2"] == "" != rows["bob"]["p1"] and {rows["dan"][p] for p in ("p1", "p2", "p3")} == {""}
    assert rows["ada"]["name"] == "'=Ada", "a formula"


def test_a_decision_reaches_every_form_at_once(graded, capsys):
    out, again = graded
    text = (out / "pages" / "bob.html").read_text("utf-8")
    assert "points not known yet: needs review" in text and "not known (needs review)" in text
    (row,) = sheet.read_rows(out / decisions.NAME)
    assert (row["student"], row["problem"], row["points"]) == ("bob", "p2", "") and row["result"]
    table = list(csv.reader((out / decisions.NAME).read_text(encoding="utf-8-sig").splitlines()))
    table[1][2:4] = ["7,5", "copied two lines"]
    (out / decisions.NAME).write_text(sheet.to_csv(table), "utf-8")
    rows = again()
    bob, total = rows["bob"], rows["bob"]["total"]
    assert bob["p2"] == "7.5" and bob["status"] == "graded" and "copied two lines" in bob["remarks"]
    text = (out / "pages" / "bob.html").read_text("utf-8")
    assert f"{total} of 40 points" in text and "7.5/15" in text
    document = json.loads((out / "gradescope" / "bob.json").read_text("utf-8"))
    assert sum(test.get("score", 0) for test in document["tests"]) == float(total)
    assert "needs review</strong>" not in (out / "class.html").read_text("utf-8")
    assert "to decide" not in capsys.readouterr().out.splitlines()[-1]


def test_a_decision_holds_for_any_problem_and_says_what_it_cannot_use(graded, capsys):
    out, again = graded
    decide(out, "ada,p1,3,a talk", "ada,bonus,2.5,", "dan,all,excused,ill", "cy,p9,3,", "evv,p1,3,", "eve,p1,99,",
           "eve,p2,x,", "bob,p2,1,", "eve,all,3,")  # fmt: skip
    capsys.readouterr()
    rows = again()
    said = capsys.readouterr().out
    assert rows["ada"]["p1"] == "3" and rows["ada"]["bonus"] == "2.5" and "a talk" in rows["ada"]["remarks"]
    assert float(rows["ada"]["total"]) == sum(float(rows["ada"][p]) for p in ("p1", "p2", "p3")) + 2.5
    assert rows["dan"]["status"] == "excused" and rows["dan"]["total"] == "" and rows["bob"]["p2"] == "1"
    for line, words in (
        (5, "no problem"),
        (6, "did you mean eve?"),
        (7, "not from 0 to 10"),
        (8, "not 'x'"),
        (10, "excused"),
    ):
        assert any(f"line {line} of decisions.csv" in each and words in each for each in said.splitlines()), said


def test_a_decision_on_another_hand_in_does_not_count(graded, tmp_path, capsys):
    out, again = graded
    table = list(csv.reader((out / decisions.NAME).read_text(encoding="utf-8-sig").splitlines()))
    table[1][2] = "7"
    (out / decisions.NAME).write_text(sheet.to_csv(table), "utf-8")
    make_class(tmp_path / "in", {"bob": ("", "review\nanother", "")})
    capsys.readouterr()
    assert again()["bob"]["p2"] == "" and "another hand-in of bob p2" in capsys.readouterr().out
    assert len(sheet.read_rows(out / decisions.NAME)) == 2, "it is asked anew"


def test_an_excused_problem_counts_like_the_rest(graded):
    out, again = graded
    decide(out, "bob,p2,excused,", "Cy,all,0,")
    rows = again()
    row, text = rows["bob"], (out / "pages" / "bob.html").read_text("utf-8")
    earned = float(row["p1"]) + float(row["p3"])
    assert row["status"] == "graded" and row["p2"] == "" and float(row["total"]) == round(earned * 40 / 25, 3)
    assert "of 40 points" in text and "of the 25 points that count" in text
    assert rows["cy"]["total"] == "0" and rows["cy"]["status"] == "graded", "decided by a name"


def test_class_html_begins_with_what_to_look_at(graded):
    out, _ = graded
    text = (out / "class.html").read_text("utf-8")
    look = text[text.index('id="look"') : text.index('id="problems"')]
    for what, who in (("not understood", "Dan"), ("needs review", "Bob"), ("timed out", "Eve")):
        assert what in look and who in look
    assert look.index("not understood") < look.index("needs review") < look.index("timed out")


def test_gradescope_has_a_test_for_each_aspect_and_hides_no_other_points(graded):
    out, _ = graded
    document = json.loads((out / "gradescope" / "bob.json").read_text("utf-8"))
    assert "score" not in document and [test["name"][:2] for test in document["tests"]] == ["p1", "p2", "p3"]
    scores = ["score" in test for test in document["tests"]]
    assert scores == [True, False, True] and "before the instructor decides" in document["tests"][1]["output"]
    assert ElementTree.parse(out / "junit.xml").getroot().find("testsuite").get("tests") == "5"


def test_feedback_goes_back_to_those_whose_points_are_known(graded):
    out, _ = graded
    with zipfile.ZipFile(out / "feedback.zip") as archive:
        assert sorted(archive.namelist()) == ["ada/feedback.html", "eve/feedback.html"]


def test_forms_are_written_again_without_the_submissions(graded):
    from classroom.tests import quick_class

    out, _ = graded
    before = (out / "gradebook.csv").read_bytes()
    decide(out, "ada,bonus,1,")
    assert quick_class.main(["--out", str(out)]) == 0
    assert (out / "gradebook.csv").read_bytes() != before and gradebook(out)["ada"]["bonus"] == "1"


# Lateness -------------------------------------------------------------------------------------------------------------


def standing_of(submitted="", by_platform=False, rule=DUE, **decided):
    """The Standing of one with 30 points of 40."""
    row = Row("ada", "Ada", entries=("ada",), keys={"p1": "k"}, submitted=submitted, late=by_platform)
    cases = [Result("p1", str(n), Aspect.CORRECT, Outcome.PASSED if n else Outcome.WRONG) for n in range(4)]
    given = {("ada", name): decisions.Decision(points, "why") for name, points in decided.items()}
    return standing.standing(Class({"p1": 10}, (row,)), row, {"p1": Record("p1", cases)}, given, rule)


@pytest.mark.parametrize(("submitted", "off"), [
    ("2026-11-20T12:59:00", 0), ("2026-11-20T13:01:00", 10), ("2026-11-21T13:01:00", 20), ("2026-11-30T00:00:00", 25),
    ("Friday, 20 November 2026, 2:00 PM", 10), ("", 0),
])  # fmt: skip
def test_a_late_hand_in_loses_points_by_the_courses_rule(submitted, off):
    known = standing_of(submitted)
    assert known.late == min(off, Fraction("7.5")) and known.total == Fraction("7.5") - known.late
    assert standing_of(submitted, rule=None).total == Fraction("7.5")


def test_lateness_is_decided_where_nobody_knows_how_late():
    assert standing_of(by_platform=True).status == standing.LATENESS
    assert standing_of(by_platform=True).total is None
    assert standing_of(by_platform=True, rule=None).total == Fraction("7.5")
    assert standing_of("who knows").status == standing.LATENESS
    assert standing_of("2026-11-30T00:00:00", late=Fraction(0)).total == Fraction("7.5")
    assert standing_of("who knows", late=Fraction(1)).late == Fraction("7.5"), "no more than was earned"


def test_times_with_offsets_are_compared_as_moments(monkeypatch):
    monkeypatch.setenv("TZ", "CET-1")  # a rule that needs no file of time zones
    time.tzset()
    try:
        for said, days in (
            ("2026-11-20 11:59:00 +0000", 0),
            ("2026-11-20 12:01:00+00:00", 1),
            ("2026-11-20T11:59:00Z", 0),
            ("2026-11-20T12:59", 0),
        ):
            known = standing_of(said)  # due at 12:00 here, with an hour of grace
            assert known.status != standing.LATENESS and bool(known.late) == bool(days), said
    finally:
        monkeypatch.undo()
        time.tzset()
    rule = structs.replace(DUE, due=DUE.due.replace(tzinfo=datetime.timezone.utc))
    assert not standing_of("2026-11-20T12:59", rule=rule).late and standing_of("2026-11-20T13:01", rule=rule).late


def test_what_changes_a_total_is_said_as_it_was():
    known = standing_of("2026-11-20T13:01:00", bonus=Fraction(2))
    assert known.total == 2 and known.changes == [
        "1 day late: 7.5 points less", "2 points more by the instructor's decision: why",
    ]  # fmt: skip
    assert standing_of(bonus=Fraction(-9)).total == 0


def test_a_decision_is_of_the_hand_in_that_it_was_made_for(graded, tmp_path, capsys):
    out, again = graded
    decide(out, "Dan,p1,7.5,read by hand", "cy,all,0,absent", "ada,all,excused,", "ada,p1,5,a talk", "eve,p1,7,5")
    capsys.readouterr()
    rows = again()
    assert rows["dan"]["p1"] == "7.5" and rows["cy"]["total"] == "0" and "write 7.5" in capsys.readouterr().out
    assert (rows["ada"]["p1"], rows["ada"]["p2"], rows["ada"]["total"]) == ("5", "", "20"), "one problem before all"
    document = json.loads((out / "gradescope" / "dan.json").read_text("utf-8"))
    assert [test.get("score") for test in document["tests"]] == [7.5, None, None]
    make_class(tmp_path / "in", {"dan": ("", "", ""), "cy": ("", "", "")})
    rows = again()
    said = capsys.readouterr().out
    assert "another hand-in of dan p1" in said and "another hand-in of cy all" in said
    assert float(rows["cy"]["total"]) > 0 and rows["dan"]["p1"] != "7.5"


def test_the_roster_and_the_column_are_those_of_last_time(graded, tmp_path):
    out, _ = graded
    assert quick(tmp_path / "in", out) == 0 and gradebook(out)["cy"]["status"] == "not handed in"
    assert "The roster is last time" in (out / "class.html").read_text("utf-8")
    (tmp_path / "roster.csv").rename(tmp_path / "another.csv")
    assert quick(tmp_path / "in", out) == 2 and "cy" in gradebook(out), "nothing is graded without it"
    assert quick(tmp_path / "in", out, "--roster", "-") == 0 and "cy" not in gradebook(out)


def test_a_late_row_that_was_asked_for_is_of_one_hand_in(tmp_path):
    row = Row("ada", "Ada", entries=("a_late_1_2_x",), late=True)
    whole = Class({"p1": 10}, (row,))
    decisions.ask(tmp_path, whole, {}, {}, ["ada"])
    path = tmp_path / decisions.NAME
    path.write_text(path.read_text("utf-8-sig").replace("ada,late,,", "ada,late,0,"), "utf-8")
    assert decisions.read(tmp_path, whole)[0]["ada", "late"].points == 0
    another = Class({"p1": 10}, (structs.replace(row, entries=("a_late_1_3_x",)),))
    found, notes = decisions.read(tmp_path, another)
    assert not found and "another hand-in" in notes[0]


# No contradiction between any two outputs ---------------------------------------------------------------------------

PEOPLE = {"4711": "Ada Lovelace", "4712": "Bob Berg", "4713": "Eve Kaya", "4714": "Cy Lee"}
TEXTS = {"4711": "right", "4712": "review", "4713": "", "4714": None}


def canvas(folder, roster):
    lines = ["Student,ID,SIS User ID,SIS Login ID,Section,Flash (77)", "    Points Possible,,,,,40"]
    for number, name in PEOPLE.items():
        lines.append(f'"{name}",{number},s{number},login,A,')
        late = "_late" if number == "4713" else ""
        for module in MODULES.values() if TEXTS[number] is not None else ():
            path = folder / f"{name.replace(' ', '').lower()}{late}_{number}_{number}9_{module}"
            path.write_text(f"# {name} {module}\n{TEXTS[number]}\n", "utf-8")
    roster.write_text("\n".join(lines) + "\n", "utf-8")
    return ["--column", "Flash"], "canvas.csv", "ID", "Flash (77)"


def moodle(folder, roster):
    lines = ["Identifier,Full name,Email address,Grade,Maximum Grade,Feedback comments"]
    for number, name in PEOPLE.items():
        lines.append(f"Participant {number},{name},x{number}@y,,40,")
        if TEXTS[number] is not None:
            make_class(folder, {f"{name}_{number}_assignsubmission_file_": TEXTS[number]})
    roster.write_text("\n".join(lines) + "\n", "utf-8")
    return [], "moodle.csv", "Identifier", "Grade"


def gradescope(folder, roster):
    lines, metadata = ["First Name,Last Name,SID,Email"], []
    for number, name in PEOPLE.items():
        lines.append(f"{name.replace(' ', ',')},s{number},x@y")
        if TEXTS[number] is not None:
            make_class(folder, {f"submission_{number}": TEXTS[number]})
            metadata.append(f"submission_{number}:\n  :submitters:\n  - :name: {name}\n    :sid: s{number}\n")
    (folder / "submission_metadata.yml").write_text("".join(metadata), "utf-8")
    roster.write_text("\n".join(lines) + "\n", "utf-8")
    return [], None, None, None


@pytest.mark.parametrize("platform", [canvas, moodle, gradescope])
def test_no_two_outputs_contradict_each_other(platform, tmp_path):
    folder, roster, out = tmp_path / "in", tmp_path / "roster.csv", tmp_path / "out"
    folder.mkdir()
    more, back, id_of, column = platform(folder, roster)
    for lines in ((), ("{}4712,p2,7.5,", "{}4714,all,excused,ill", "{}4711,bonus,2,", "{}4713,late,0,")):
        prefix = "s" if platform is not moodle else ""
        names = {row["student"] for row in gradebook(out).values()} if lines else set()
        decide(out, *(line.format(prefix) if prefix else moodle_line(line, names) for line in lines)) if lines else None
        assert quick(folder, out, "--roster", str(roster), *more) == 0
        rows = {row["name"]: row for row in gradebook(out).values()}
        assert rows.keys() == set(PEOPLE.values())
        returned = {}
        if back:
            table = list(csv.DictReader((out / back).read_text(encoding="utf-8-sig").splitlines()))
            returned = {PEOPLE[row[id_of].removeprefix("Participant ")]: row[column] for row in table}
        with zipfile.ZipFile(out / "feedback.zip") as archive:
            fed = archive.namelist()
        for name, row in rows.items():
            total, page = row["total"], out / "pages" / f"{row['student']}.html"
            excused = "EX" if back == "canvas.csv" and row["status"] == "excused" else ""
            assert not back or returned.get(name, "") == (total or excused), name
            if not page.exists():
                assert total == ""
                continue
            document = json.loads((out / "gradescope" / f"{row['student']}.json").read_text("utf-8"))
            text = page.read_text("utf-8")
            assert (f"<strong>{total} of " in text) == bool(total) and ("not known yet" in text) == (not total)
            assert document.get("score") == (float(total) if total else None)
            assert bool(total) == any(
                row["student"] in place or name.split()[0].lower() in place.lower() for place in fed
            )
    assert (
        rows["Bob Berg"]["p2"] == "7.5"
        and rows["Cy Lee"]["status"] == "excused"
        and rows["Ada Lovelace"]["bonus"] == "2"
    )


def moodle_line(line, names):
    """The same with the name that the class gives: a worksheet of Moodle's has no ids but addresses."""
    number = line.format("").split(",", 1)[0]
    wanted = next(name for name in names if PEOPLE[number].split()[0].lower() in name or number in name)
    return line.format("").replace(number, wanted, 1)
