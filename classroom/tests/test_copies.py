"""Suspected copies: copies are found, with their lines; what the task makes alike is not."""

import ast
import importlib.util
import re
import sys

import pytest

from classroom import copies
from classroom.data import Class, Record, Row
from grader.course import gaps
from grader.registry import PROBLEMS
from grader.result import Aspect, Cause, Facts, Mismatch, Outcome, Result
from grader.tests.support import SUBMISSIONS

P3 = PROBLEMS["p3"].module
SKELETON, SOLUTION = copies.given(P3)
HONEST = {path.stem: path.read_text("utf-8", "replace") for path in sorted((SUBMISSIONS / "honest").glob("p3_*.py"))}
SHORT = """def halves(row):
    energies = row.cumsum(3)  # a peculiar way to say it
    return energies.sum() - row[::2].sum()
"""
NEEDS = pytest.mark.skipif(not importlib.util.find_spec("copydetect"), reason="copydetect is not installed")
DEEP = "x = " + "-" * 90_000 + "1"


def make(out, texts):
    """A class of those who handed in P3, {row id: text}, and of one who did not."""
    for id, text in texts.items():
        (out / "work" / id).mkdir(parents=True)
        (out / "work" / id / P3).write_text(text, encoding="utf-8")
    return Class({"p3": 15}, (*(Row(id, id.upper(), folder=f"work/{id}") for id in texts), Row("absent", "Absent")))


def renamed(text):
    """The text with other names, other remarks and another formatting."""
    for name in set(re.findall(r"^ +(\w{5,}) = ", text, re.M)):
        text = re.sub(rf"(?<![.\w]){name}\b", f"other_{name[::-1]}", text)
    return ast.unparse(ast.parse(text)).replace("\ndef ", "\n# Mine.\n\ndef ")


def test_the_reference_solution_is_found_under_other_names(tmp_path):
    other = SOLUTION.replace("tl.maximum(row_max", "tl.minimum(row_max")
    assert other != SOLUTION and "other_xam_wor" in renamed(SOLUTION)
    texts = {"same": SOLUTION, "renamed": renamed(SOLUTION), "empty": "", "skeleton": SKELETON, "other": other}
    whole = make(tmp_path, texts | {"deep": DEEP, "broken": SOLUTION + "(", "bom": "\ufeff" + SOLUTION} | HONEST)
    found = copies.equals_reference(whole, tmp_path)
    assert [(row.id, problem) for row, problem in found] == [("same", "p3"), ("renamed", "p3"), ("bom", "p3")]


def test_a_solution_without_gaps_is_nobody_s(tmp_path, monkeypatch):
    monkeypatch.setattr(gaps, "skeleton", lambda solution, _: solution.replace("# gap", "# TODO"))
    assert copies.equals_reference(make(tmp_path, {"same": SOLUTION}), tmp_path) == []


def wrong(case, got=0.5, causes=(), **changed):
    numbers = dict(wrong=9, total=64, nan=0, inf=0, zero=1, unwritten=0) | changed
    place = dict(first=(0, 1), first_got=got, first_expected=1.0, first_allowed=0.1, worst=(0, 2), worst_excess=7.0)
    size = dict(heads=[(0, 0)], num_batches=1, num_heads=1, row_ranges=[(0, 0)], num_rows=8, columns=[], num_columns=8)
    facts = Facts(mismatch=Mismatch(**numbers, **place, **size), causes=tuple(Cause(each, "?", "3") for each in causes))
    return Result("p3", case, Aspect.CORRECT, Outcome.WRONG, f"{case} is off", facts)


TWO = [wrong("a"), wrong("b", 0.25)]
PAIRS = {
    "the same": (TWO, TWO, 1),
    "the same, and a known mistake that differs": ([*TWO, wrong("c", 1, "x")], [*TWO, wrong("c", 2, "y")], 1),
    "another number": (TWO, [TWO[0], wrong("b", 0.26)], 0),
    "another case fails too": (TWO, [*TWO, wrong("c", causes="x")], 0),
    "one case": (TWO[:1], TWO[:1], 0),
    "known mistakes": ([wrong("a", causes="x"), TWO[1]],) * 2 + (0,),
    "zeros and NaN": ([wrong("a", zero=60, nan=4), TWO[1]],) * 2 + (0,),
    "not written": ([wrong("a", unwritten=1), TWO[1]],) * 2 + (0,),
    "NaN": ([wrong("a", float("nan")), TWO[1]],) * 2 + (0,),
}


@pytest.mark.parametrize("name", PAIRS)
def test_equal_wrong_answers(name):
    one, other, groups = PAIRS[name]
    whole = Class({"p3": 15}, (Row("a", "Ann", keys={"p3": "k"}), Row("b", "Bob", keys={"p3": "l"})))
    found = copies.equal_wrong_answers(whole, {"a": {"p3": Record("p3", one)}, "b": {"p3": Record("p3", other)}})
    assert len(found) == groups
    for group in found:
        assert (group.problem, [row.name for row in group.rows], group.cases) == ("p3", ["Ann", "Bob"], ["a", "b"])
        assert group.sentence == "2 cases, as a: a is off"


@pytest.mark.parametrize("many, groups", [(2, 1), (copies.COMMON, 1), (copies.COMMON + 1, 0)])
def test_one_file_of_some_is_named_and_of_many_is_not(many, groups):
    rows = tuple(Row(f"s{i}", "S", keys={"p3": "k"}) for i in range(many))
    found = copies.equal_wrong_answers(Class({"p3": 15}, rows), {row.id: {"p3": Record("p3", TWO)} for row in rows})
    assert [group.sentence for group in found] == ["the same file"] * groups


@NEEDS
def test_copies_are_found_and_honest_kernels_are_none(tmp_path):
    own = {"short": SHORT, "short2": SHORT.replace("    ", "  "), "not": SHORT.replace("energies", "e"), "odd": DEEP}
    dead = "".join(f"def unused_{i}(x):\n    y = x * {i}\n    return y - {i}\n" for i in range(50))
    given = {"skeleton": SKELETON, "skeleton2": SKELETON, "solution": SOLUTION, "solution2": SOLUTION}
    hidden = {"renamed": renamed(HONEST["p3_running_lse"]), "padded": HONEST["p3_static_range"] + dead}
    texts = HONEST | own | given | hidden | {"large": "x = 1\n" * 50_000}
    pairs, notes = copies.alike(make(tmp_path, texts), tmp_path)
    named = {(pair.one.id, pair.other.id) for pair in pairs}
    assert named == {("short", "short2"), ("p3_running_lse", "renamed"), ("p3_static_range", "padded")}
    assert notes == [f"{P3} of LARGE was not compared: it is too large or too deep."]


@NEEDS
def test_what_many_have_is_nobody_s(tmp_path):
    few = {f"s{i}": SHORT for i in range(copies.COMMON)}
    assert (
        len(copies.alike(make(tmp_path / "few", few), tmp_path / "few")[0]) == copies.COMMON * (copies.COMMON - 1) / 2
    )
    assert copies.alike(make(tmp_path / "many", few | {"one more": SHORT}), tmp_path / "many") == ([], [])


@NEEDS
def test_pages_show_the_lines_that_are_alike_and_nothing_that_hides(tmp_path):
    whole = make(tmp_path, {"ann": SKELETON + SHORT + "<b>\u202e\x1b", "bob": SKELETON + SHORT})
    copies.write(make(tmp_path, {"dan": SHORT, "eve": SHORT}), tmp_path, {})
    found, line = copies.write(whole, tmp_path, {})
    (path,) = (tmp_path / "copies").iterdir()
    page = path.read_text(encoding="utf-8")
    assert tmp_path / found.pairs[0].page == path and line.endswith("pairs of modules 1")
    assert page.count('class="line alike"') == 2 * SHORT.count("\n")
    assert "&lt;b&gt;\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}" in page and "\u202e" not in page


def test_without_copydetect_the_others_are_looked_for(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "copydetect", None)
    found, _ = copies.write(make(tmp_path, {"ann": SOLUTION}), tmp_path, {})
    assert (found.pairs, found.notes, len(found.reference)) == ([], [copies.NOT_HERE], 1)
