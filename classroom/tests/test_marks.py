"""The written half: the rubric as data, the sheet of levels, what it says, the page to mark from, and the command."""

import os
import re
from fractions import Fraction

import pytest

from classroom import marks, sheet
from classroom.data import Class, Row, write_class
from grader.commands.arguments import BadArguments
from grader.course import course
from grader.tests.support import ROOT

RUBRIC = """| question | section | what it shows | weight | points |
|---|---|---|---|---|
| Q1 | 2 Pattern | derives | 2 | 6 |
| Q2 | 2 Pattern | knows | 1 | 3 |
### Q1. One more tile (6 points)
Look for: <alpha>.
### Q2. Base two (3 points)
## Wrong statements
"""
QUESTIONS = marks.read_rubric(RUBRIC)
REPORT = "# Report\n### Q1. One more tile\n\nAlpha <b>and</b>\x1b[31m so\u00a0on.\n# Q9 is no question\n## q2\n\nln 2\n"


def make_class(out, **reports):
    """A class of the students in `reports`, {id: the bytes of a PDF, text of a report, or None}."""
    rows = []
    for id, text in reports.items():
        name = "" if text is None else "report.md" if isinstance(text, str) else "report.pdf"
        folder = f"work/{id}-{len(text or '')}"
        (out / folder).mkdir(parents=True, exist_ok=True)
        if name:
            (out / folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
        rows.append(Row(id, f"={id.title()}", report=f"{folder}/{name}" if name else ""))
    return Class({"p1": 10}, tuple(rows))


def test_the_rubric_of_this_course_is_read_whole():
    questions = marks.read_rubric((ROOT / "report" / "rubric.md").read_text(encoding="utf-8"))
    assert [question.id for question in questions] == [f"Q{number}" for number in range(1, 15)]
    assert sum(question.most for question in questions) == 60 and questions[2].title == "Count before you run"
    assert all(question.body.startswith("Look for") and "- **3**" in question.body for question in questions)
    assert "Wrong statements" not in questions[-1].body


BROKEN = {"### Q2.": "## Two", "| Q2": "| x", "2 | 6": "2 | 5", "(6 points": "(4 points", "| 1 | 3": "| 0 | 0"}


@pytest.mark.parametrize("old", BROKEN)
def test_a_table_and_sections_that_do_not_agree_are_one_sentence_with_the_question(old):
    with pytest.raises(BadArguments, match=rf"^rubric: .*{'Q1' if '6' in old else 'Q2'}\b"):
        marks.read_rubric(RUBRIC.replace(old, BROKEN[old]))


def test_the_sheet_is_completed_and_what_stands_there_stays(tmp_path):
    whole, path = make_class(tmp_path, ann=REPORT, ben=None), tmp_path / "marks.csv"
    marks.write_sheet(whole, tmp_path, QUESTIONS)
    header, ann, ben = sheet.read(path)
    assert header == ["student", "name", "report", "Q1", "Q2", "remark"] and ben[2] == "not handed in"
    assert ann == ["ann", "'=Ann", whole.rows[0].report, "", "", ""]
    path.write_text("M;student;name;report;Q1;remark\nx;ann;A;mine;3;'-ok\n;ben;;\n;gone;;;1;;beyond\n", "utf-8")
    later = make_class(tmp_path, ann=REPORT, ben="late", cy=None)
    marks.write_sheet(later, tmp_path, QUESTIONS)
    os.utime(path, (1, 1))
    marks.write_sheet(later, tmp_path, QUESTIONS)
    header, ann, ben, gone, cy = sheet.read(path)
    assert header == ["M", "student", "name", "report", "Q1", "remark", "", "Q2"] and path.stat().st_mtime == 1
    assert ann == ["x", "ann", "A", "mine", "3", "'-ok", "", ""] and gone == ["", "gone", "", "", "1", "", "beyond", ""]
    assert ben[1:4] == ["ben", "", "work/ben-4/report.md"] and cy[1:4] == ["cy", "'=Cy", "not handed in"]
    for header in ("name,Q1,Q2", "student,Q1,q1"):
        path.write_text(f"{header}\na,b,c\n", "utf-8")
        with pytest.raises(BadArguments, match=r"needs one column '(student|Q1)'"):
            marks.write_sheet(whole, tmp_path, QUESTIONS)


def test_levels_are_taken_and_nothing_else_is_guessed(tmp_path):
    whole = make_class(tmp_path, ann=REPORT, ben="b", cy="c", di=None, eve="e")
    lines = ["ann,work/old/report.md, 2 ,3?", "ben,,1,x", "cy,,2.5,-1", "zed,,1,1", "eve,,1,1", "eve,,1,1"]
    (tmp_path / "marks.csv").write_text("\n".join(["student,report,Q1,Q2", *lines]), "utf-8")
    read = marks.read_marks(whole, tmp_path, QUESTIONS)
    assert read.most == 9 and read.points == {"ann": 7, "ben": None, "cy": None, "di": None, "eve": None}
    assert read.levels["ann"] == {"Q1": 2, "Q2": 3} and read.doubts["ann"] == ["Q2"] and read.levels["ben"] == {"Q1": 1}
    assert read.missing == {"ann": [], "ben": ["Q2"], **{id: ["Q1", "Q2"] for id in ("cy", "di", "eve")}}
    said = "\n".join(read.notes)
    assert "line 3, Q2: a level is 0, 1, 2 or 3; not 'x'" in said and "line 4, Q2: a level" in said
    assert "line 2: Q2 in doubt (ann)" in said and "line 2: work/old/report.md was marked" in said
    assert "line 5: the class has no student 'zed'" in said and "lines 6, 7 are all eve's" in said
    assert said.count("\n") == 6


def test_both_halves_make_a_percent_without_floats(tmp_path):
    read = marks.Marks(Fraction(60), {"ann": Fraction(40), "ben": None})
    assert read.combined("ann", Fraction(75), Fraction(100), 0.4) == Fraction(215, 3)
    assert read.combined("ben", Fraction(75), Fraction(100), 0.4) is None
    assert read.combined("ann", None, Fraction(100), 0.4) is read.combined("zed", Fraction(1), Fraction(1), 0.4) is None


def test_the_page_has_all_answers_to_a_question_in_a_row(tmp_path):
    whole = make_class(tmp_path, ann=REPORT, ben="no <i>headings", cy=b"%PDF", di=None, eve="### Q1\n" + "y" * 30_000)
    (tmp_path / "marks.csv").write_text("student,Q1,Q2\nann,2,1?\n", "utf-8")
    marks.write_page(whole, tmp_path, QUESTIONS, marks.read_marks(whole, tmp_path, QUESTIONS))
    page = (tmp_path / "marks.html").read_text(encoding="utf-8")
    head, _, first, second, rest = re.split('<h2 id="(?:head|Q1|Q2|undivided)">', page)
    assert "1 of 4 reports marked" in head and "=Ben" in head and "No report was handed in" in head and "=Di" in head
    assert "Alpha &lt;b&gt;and&lt;/b&gt;\ufffd[31m so on.\n# Q9 is no question" in first and "ln 2" not in first
    assert "&lt;alpha&gt;" in first and "level 2" in first and "=Di" not in first and "=Cy" in first
    assert "y" * 19_000 in first and "y" * 20_001 not in page and "10,007 characters more" in first
    assert "ln 2" in second and "level 1, in doubt" in second and "No heading begins with Q2" in second
    assert "no &lt;i&gt;headings" in rest and "report.pdf" in second and "%PDF" not in page and "<b>" not in page


def test_the_command_writes_both_and_says_what_is_missing(tmp_path, capsys, monkeypatch):
    template = (ROOT / "report" / "template.md").read_text(encoding="utf-8")
    whole = make_class(tmp_path, **{f"s{i}": template for i in range(7)}, absent=None)
    assert marks.main([str(tmp_path)]) == 2 and "no class" in capsys.readouterr().err
    write_class(tmp_path, whole)
    assert marks.read_course_marks(tmp_path, whole) == (None, []) and marks.main([str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "marks.csv" in said and "marks.html" in said and "marked: 0 of 7" in said and "and 2 more" in said
    assert (tmp_path / "marks.html").read_text(encoding="utf-8").count("Who counts key 4? (6 points)") == 7
    read, notes = marks.read_course_marks(tmp_path, whole)
    assert read.most == 60 and len(read.missing["s0"]) == 14 and notes == []
    monkeypatch.setattr(course, "current", lambda: course.Course(tmp_path, course.Said("Mine", (), ())))
    assert marks.main([str(tmp_path)]) == 2 and "no written half" in capsys.readouterr().err
    assert marks.read_course_marks(tmp_path, whole) == (None, [])
