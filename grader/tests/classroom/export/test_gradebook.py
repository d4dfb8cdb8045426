"""gradebook.csv: every student in order, exact points, blanks where nothing is known, and nothing that computes."""

import csv
import io
import unicodedata
from dataclasses import replace
from fractions import Fraction

import pytest

from grader.classroom.export import gradebook
from grader.classroom.export.standing import NEEDS_REVIEW, NOT_HANDED_IN, NOT_YET, decimal, standings
from grader.classroom.record import MACHINE_FAULT
from grader.classroom.sheet import text_cell
from grader.tests.classroom.class_sample import make


def table(graded):
    return list(csv.DictReader(io.StringIO(gradebook.render(graded)[1:])))


def test_roster_order_then_submissions_without_a_row():
    names = [row["name"] for row in table(make())]
    assert names[0] == "Ada Lovelace" and names[-1] == "Smith, John" and len(names) == 40
    assert [row["id"] for row in table(make())][:3] == ["s0000", "s0001", "s0002"]


def test_points_add_up_and_are_those_of_the_records():
    graded = make()
    for row, student in zip(table(graded), standings(graded), strict=True):
        if row["status"] == "graded":
            assert sum(record.points for record in graded.find_records(student.row).values()) == student.total
            assert row["total"] == decimal(student.total)


def test_a_machine_fault_is_blank_and_never_0():
    (row,) = [row for row in table(make()) if row["status"] == MACHINE_FAULT]
    assert row["p4"] == row["total"] == "" and row["p3"] and "the node was lost" in row["remarks"]


def test_what_is_held_is_blank_and_says_what_hangs_on_it():
    (row,) = [row for row in table(make()) if row["status"] == NEEDS_REVIEW]
    assert row["p3"] == row["total"] == ""
    assert row["remarks"] == "p3: 1 case needs review; 12.5 points without it, 15 with it"


def test_not_handed_in_and_not_yet_graded_are_told_apart():
    graded = make()
    records = {name: record for name, record in graded.records.items() if name != ("sub-0001", "p7")}
    rows = {row["id"]: row for row in table(replace(graded, records=records))}
    assert rows["s0001"]["status"] == NOT_YET and rows["s0001"]["total"] == ""
    assert rows["s0039"]["status"] == NOT_HANDED_IN and rows["s0039"]["submission"] == rows["s0039"]["total"] == ""


BEGINS = ("=1+1", "+1", "-1", "@x", "\t=1", "\r=1", " =1", "\uff1d1\uff0b1", "\uff20x", "\ufe63 1", '"=1', "\u200b=1")
WITHIN = [f"Mal{mark}{text}" for mark in ("; ", ";", "\t", "|", ",", "\n", "; \xa0", "\uff1b") for text in BEGINS[::3]]


@pytest.mark.parametrize("text", [*BEGINS, *WITHIN, "Mal;=cmd|' !C calc'!A0", "a;;=1", '";""=1;"'])
def test_no_cell_is_a_formula_wherever_a_spreadsheet_splits(text):
    graded = make(4)
    rows = tuple(
        replace(row, title=text, remarks=("odd", text), roster={"name": text, "email": text} if i else None)
        for i, row in enumerate(graded.submissions)
    )
    written = gradebook.render(replace(graded, submissions=rows))
    for separator in ",;|\t":
        for cells in csv.reader(io.StringIO(written, newline=""), delimiter=separator):
            for cell in cells:
                parts = unicodedata.normalize("NFKC", cell).splitlines() if separator == ";" else [cell]
                assert not any(part.strip(' "\t\r\n\u200b').startswith(("=", "+", "-", "@")) for part in parts), cell
    assert text_cell(text_cell(text)) == text_cell(text)


def test_what_begins_no_formula_stays_as_it_is():
    for text in ("Lovelace, Ada", "a-b; c = d", "p3: 1 case needs review; 12", "o'Neill", "x@uni.example", "1 - 2"):
        assert text_cell(text) == text


def test_the_same_class_gives_the_same_bytes_which_a_spreadsheet_reads(tmp_path):
    first, second = tmp_path / "a.csv", tmp_path / "b.csv"
    gradebook.write(make(), first), gradebook.write(make(), second)
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes().startswith(b"\xef\xbb\xbf") and "Søren Åström" in first.read_text("utf-8-sig")
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".part"] == []


@pytest.mark.parametrize(
    ("value", "places", "text"),
    [("15/4", 2, "3.75"), ("15", 2, "15"), ("20/3", 2, "6.67"), ("20/3", 4, "6.6667"), ("1/200", 2, "0.01"),
     ("1/8", 2, "0.13"), ("0", 2, "0"), ("-1/8", 2, "-0.13"), ("999999999999999999/2", 2, "499999999999999999.5")],
)  # fmt: skip
def test_decimals_are_exact(value, places, text):
    assert decimal(Fraction(value), places) == text
