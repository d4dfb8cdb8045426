"""decisions.csv: what needs review gets the points that the instructor gives, and nothing else is touched by it."""

import csv
import io
from dataclasses import replace
from fractions import Fraction

import pytest

from grader.classroom.export import decisions, everything, gradebook, gradescope
from grader.classroom.export.__main__ import main
from grader.classroom.export.standing import NEEDS_REVIEW
from grader.classroom.sheet import BadSheet
from grader.tests.classroom.class_sample import make, write_class

REVIEW_ROW, REVIEW_PROBLEM = "sub-0005", "p3"


def rows_of(folder):
    text = (folder / decisions.NAME).read_text(encoding="utf-8-sig")
    return list(csv.DictReader(io.StringIO(text)))


def decide(folder, points, reason="", **other):
    """Fill in the one row, as an instructor would."""
    (row,) = rows_of(folder)
    out = io.StringIO()
    writer = csv.DictWriter(out, row)
    writer.writeheader()
    writer.writerow(row | {"points": points, "reason": reason} | other)
    (folder / decisions.NAME).write_text(out.getvalue())


def standing_of(graded):
    table = csv.DictReader(io.StringIO(gradebook.render(graded)[1:]))
    return next(row for row in table if row["submission"] == REVIEW_ROW)


@pytest.fixture
def asked(tmp_path):
    graded = make()
    assert "1 problem waits for your decision" in decisions.ask(graded, tmp_path)
    return graded


def test_a_row_for_each_held_problem_says_what_hangs_on_it(asked, tmp_path):
    (row,) = rows_of(tmp_path)
    assert (row["submission"], row["problem"], row["points"]) == (REVIEW_ROW, REVIEW_PROBLEM, "")
    assert (row["without"], row["with"]) == ("12.5", "15") and row["name"]


def test_what_is_not_decided_stays_blank(asked, tmp_path):
    before = (tmp_path / decisions.NAME).read_bytes()
    graded = decisions.applied(asked, tmp_path)
    assert gradebook.render(graded) == gradebook.render(asked)
    decisions.ask(graded, tmp_path)
    assert (tmp_path / decisions.NAME).read_bytes() == before


@pytest.mark.parametrize(
    ("points", "shown"), [("0", "0"), ("12.5", "12.5"), ("12,5", "12.5"), ("15", "15"), ("25/2", "12.5")]
)
def test_a_decision_gives_points_and_a_total(points, shown, asked, tmp_path):
    decide(tmp_path, points, "agreed in office hours")
    graded = decisions.applied(asked, tmp_path)
    row = standing_of(graded)
    assert row["p3"] == shown and row["status"] == "graded"
    assert Fraction(row["total"]) == sum(Fraction(row[id]) for id in graded.problems)
    assert f"p3: {shown} points by the instructor's decision: agreed in office hours" in row["remarks"]
    entry = next(each for each in graded.submissions if each.id == REVIEW_ROW)
    assert gradescope.render(graded, entry)["score"] == float(row["total"])
    assert decisions.ask(graded, tmp_path) is None


def test_it_changes_no_other_student(asked, tmp_path):
    decide(tmp_path, "0")
    before, after = (gradebook.render(graded).splitlines() for graded in (asked, decisions.applied(asked, tmp_path)))
    assert sum(one != other for one, other in zip(before, after, strict=True)) == 1


def test_another_hand_in_waits_for_a_decision_of_its_own(asked, tmp_path):
    decide(tmp_path, "0", "SDPA")
    name = REVIEW_ROW, REVIEW_PROBLEM
    path = tmp_path / decisions.NAME
    path.write_text(path.read_text().replace("\n", ",by\n", 1).rstrip() + ",the dean\n")
    newer = replace(asked, records={**asked.records, name: replace(asked.records[name], key="another")})
    graded = decisions.applied(newer, tmp_path)
    assert standing_of(graded)["status"] == NEEDS_REVIEW
    decisions.ask(graded, tmp_path)
    assert [(row["points"], row["reason"]) for row in rows_of(tmp_path)] == [("0", "SDPA"), ("", "")]
    assert [row["by"] for row in rows_of(tmp_path)] == ["the dean", ""], "a column of their own is lost"


def test_a_decision_on_what_is_not_held_does_nothing(asked, tmp_path):
    graded = make(review=False)
    record = graded.records[REVIEW_ROW, REVIEW_PROBLEM].key[: decisions.KEY]
    decide(tmp_path, "0", record=record)
    assert gradebook.render(decisions.applied(graded, tmp_path)) == gradebook.render(graded)


@pytest.mark.parametrize("points", ["-1", "15.01", "all", "1e", "1/0", "nan"])
def test_points_that_are_none_are_a_sentence(points, asked, tmp_path):
    decide(tmp_path, points)
    with pytest.raises(BadSheet, match=r"line 2 of decisions.csv: points must be a number from 0 to 15, or blank"):
        decisions.applied(asked, tmp_path)


def test_a_spreadsheet_may_have_saved_it_in_its_own_way(asked, tmp_path):
    decide(tmp_path, "7,5", "half")
    path = tmp_path / decisions.NAME
    (row,) = rows_of(tmp_path)
    path.write_bytes((";".join(row) + "\r\n" + ";".join(row.values()) + "\r\n").encode("utf-16"))
    assert standing_of(decisions.applied(asked, tmp_path))["p3"] == "7.5"


def test_a_broken_file_costs_no_export(asked, tmp_path):
    out = write_class(tmp_path / "class", asked)
    (out / decisions.NAME).write_text("points\n3\n")
    said = list(everything.write(out))
    why = "decisions.csv has no column 'submission'; its columns are: points"
    assert said[0] == f"no decision counts before this is mended: {why}"
    assert (out / "gradebook.csv").exists() and (out / decisions.NAME).read_text() == "points\n3\n"
    assert main([str(out), "--moodle", "none.csv"]) == 2


def test_a_missing_column_is_named(asked, tmp_path):
    (tmp_path / decisions.NAME).write_text("submission,problem\nx,p3\n")
    with pytest.raises(BadSheet, match=r"decisions.csv has no column 'record'"):
        decisions.applied(asked, tmp_path)
