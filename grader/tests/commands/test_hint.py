"""make hint: one hint more each time, kept beside the modules; it begins anew where another thing fails."""

import json
import re

import pytest

from grader import __main__ as command
from grader.commands import hint, hint_record
from grader.course.problem import COMPILES
from grader.engine.request import Request
from grader.registry import PROBLEMS
from grader.result import Aspect, Cause, Facts, Outcome
from grader.tests.render.test_html import drawn, result
from grader.tests.support import ROOT, SOLUTIONS

WINDOW_33 = Cause(
    "a window of 33", "how old may a key be?", "notebooks/04_masks_and_phases.ipynb: From the mask to a loop"
)


def wrong(cause=WINDOW_33, **rest):
    known = {"where": "First wrong row 32.", "causes": (cause,), "question": cause.question, "section": cause.section}
    given = {"outcome": Outcome.WRONG, "sentence": f"Your output equals {cause.equals}. First wrong row 32."}
    return result(case="ragged tail", facts=Facts(**known | {"picture": drawn()} | rest), **given)


@pytest.fixture
def hinted(tmp_path, monkeypatch, capsys):
    """Gives a hint on given Results as if they had just been graded: (exit status, what was printed)."""

    def giving(*results):
        def grade(console, request):  # kernels are compiled once all cases pass, and by themselves
            compiles = request.names == {COMPILES}
            assert bool(request.targets) == compiles <= all(each.outcome is Outcome.PASSED for each in results)
            return [] if compiles else list(results)

        monkeypatch.setattr(hint, "grade_visibly", grade)
        status = hint.run(Request(tmp_path, (PROBLEMS["p6"],), None, "cpu", 0, targets=("sm_90",)), tmp_path)
        return status, capsys.readouterr().out

    return giving


def given_in(folder):
    """The hints on P6 that were counted in a folder."""
    return sum(hint_record.read((folder / hint_record.NAME).read_text("utf-8"))["p6"].values())


def test_each_time_one_more(hinted, tmp_path):
    failing = wrong(measured=["weight to key 0"])
    expected = [
        "hint 1 of 3: measured: weight to key 0",
        "hint 2 of 3: read notebooks/04_masks_and_phases.ipynb: From the mask to a loop",
        "hint 3 of 3: the tiles that a right kernel visits",
    ]
    for number in (1, 2, 3, 4):
        status, said = hinted(failing)
        assert status == 0 and [words in said for words in expected] == [at < number for at in range(3)]
        assert ("m visited, masked" in said) == ("there are no more hints" in said) == (number > 2)
    assert "how old may a key be" not in said, "make grade has said it"
    assert given_in(tmp_path) == 4


def test_another_failure_begins_anew_and_other_numbers_do_not(hinted, tmp_path):
    assert "hint 2" not in hinted(wrong())[1]
    assert "hint 2 of 2" in hinted(wrong(Cause("a window of 7", "how old?", WINDOW_33.section)))[1]
    assert "hint 2" not in hinted(wrong(Cause("no window", "which keys?", WINDOW_33.section)))[1]
    assert given_in(tmp_path) == 3


@pytest.mark.parametrize(
    ("sentence", "number", "words"),
    [
        ("TODO 4: one step of the online softmax", 1,
         r"hint 1 of 4: the first numbers that gap 4 makes in `make try P=6 .*WINDOW=40`.*:\n +scores = \[\["),
        ("TODO 4: one step of the online softmax", 2, r"hint 2 of 4: shapes in gap 4: scores \(64, 32\), q \(64"),
        ("TODO 4: one step of the online softmax", 3, r"hint 3 of 4: gap 4 needs tl.dot, .* tl.sum and \.to\n"),
        ("TODO 2: the first tile and the end", 1,
         r"WINDOW=40`, where q_start = 128, window_size = 40:\n +first = 64\n +k_end = 150\n"),
        ("TODO 2: the first tile and the end", 2, "hint 2 of 3: gap 2 needs tl.maximum and tl.minimum"),
    ],
)  # fmt: skip
def test_an_open_gap_is_shown_with_numbers_then_shapes_then_operations(sentence, number, words, hinted):
    gap = result(case="ragged tail", outcome=Outcome.UNFINISHED, sentence=sentence)
    *before, said = [hinted(gap)[1] for _ in range(number)]
    assert re.search(words, said) and not any(re.search(words, each) for each in before)


def test_a_map_without_news_is_no_hint(hinted, monkeypatch):
    monkeypatch.setattr(hint.text_map, "draw_visits", lambda right: ["key  0", "0-7  o", "o visited"])
    assert "hint 1 of 1: read" in hinted(wrong())[1]


def test_what_to_read_is_a_heading_that_exists():
    named = set()
    for path in (ROOT / "grader" / "kinds").rglob("*.py"):
        named |= set(re.findall(r'"notebooks/(\w+)\.ipynb: ([^"]+)"', path.read_text(encoding="utf-8")))
    assert len(named) > 8
    for notebook, heading in named:
        source = (ROOT / "notebooks" / f"{notebook}.py").read_text(encoding="utf-8")
        assert re.search(rf"^# ##+ {re.escape(heading)}$", source, re.M), (notebook, heading)


def test_a_crash_leads_to_make_try_and_has_no_picture(hinted):
    crashed = result(case="ragged tail", outcome=Outcome.CRASHED, sentence="KeyError at p6_sliding_window.py:70")
    assert "hint 1 of 1: put a print before that line" in (said := hinted(crashed)[1])
    assert "make try P=6" in said and "visited" not in said


def test_what_does_not_compile_needs_a_hint(hinted):
    sentence = "acc changes its type (p6_sliding_window.py:70)"
    compiled = result(case="compiles", outcome=Outcome.CRASHED, aspect=Aspect.COMPILE, sentence=sentence)
    said = hinted(result(), compiled)[1]
    assert "crashed" in said and "acc changes its type" in said and "make try" not in said


def test_where_all_is_right_no_hint_is_counted(hinted, tmp_path):
    assert hinted(result()) == (0, "p6: every case passes, no hint is needed\n")
    assert not (tmp_path / hint_record.NAME).exists()
    assert hinted(result(outcome=Outcome.GRADER_FAULT, sentence="ours"))[0] == 2


@pytest.mark.parametrize(
    "text",
    ["", "[1]", "{", "[" * 100_000, '{"p6": 3}', '{"p6": {"x": -1}}', '{"p6": {"x": 1.5}}', '{"p6": {"x": true}}',
     '{"p6": {"x": 20000}}', '{"nothing": {"x": 1}}'],
)  # fmt: skip
def test_a_damaged_file_tells_nothing_and_is_written_anew(text, tmp_path):
    (tmp_path / hint_record.NAME).write_text(text, "utf-8")
    assert hint_record.read(text) == {} and hint_record.remark(text) is None
    assert hint_record.count_one(tmp_path, "p6", "x") == 1 and hint_record.count_one(tmp_path, "p6", "x") == 2
    written = (tmp_path / hint_record.NAME).read_text(encoding="utf-8")
    assert json.loads(written) == {"p6": {"x": 2}}
    assert hint_record.remark(written) == "Hints asked for, as its hints.json says: p6 2."


def test_a_link_is_not_followed(tmp_path):
    outside = tmp_path / "outside"
    outside.write_text('{"p6": {"x": 3}}', "utf-8")
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / hint_record.NAME).symlink_to(outside)
    assert hint_record.count_one(folder, "p6", "x") == 1
    assert outside.read_text(encoding="utf-8") == '{"p6": {"x": 3}}'


@pytest.mark.parametrize("arguments", [[], ["--problems", "3,6"]])
def test_hints_are_on_one_problem(arguments, capsys):
    assert command.main(["hint", *arguments, "--submission", str(SOLUTIONS)]) == 2
    said = capsys.readouterr().err
    assert "this takes one problem: " in said and "like make hint P=6" in said
