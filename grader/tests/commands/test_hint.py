"""make hint: one hint more each time, kept beside the modules; it begins anew where another thing fails."""

import json
import re

import pytest

from grader import __main__ as command
from grader.commands import hint, hint_record
from grader.engine.request import Request
from grader.kinds.registry import PROBLEMS
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
        monkeypatch.setattr(hint, "grade", lambda request, lanes, on_case: list(results))
        monkeypatch.setattr(hint.show, "write_picture", lambda *given: print("a picture"))
        status = hint.run(Request(tmp_path, (PROBLEMS["p6"],), None, "cpu", 0), tmp_path)
        return status, capsys.readouterr().out

    return giving


def test_each_time_the_next_and_never_two(hinted, tmp_path):
    failing = wrong(measured=["weight to key 0"])
    expected = [
        "hint 1 of 3: measured: weight to key 0",
        "hint 2 of 3: read notebooks/04_masks_and_phases.ipynb: From the mask to a loop",
        "hint 3 of 3: the tiles that a right kernel visits",
    ]
    for words in expected:
        status, said = hinted(failing)
        assert status == 0 and [words in said for words in expected] == [each == words for each in expected]
        assert ("a picture" in said) == (words == expected[-1])
    assert "m visited, masked" in said
    status, said = hinted(failing)
    assert "there are no more hints; all of them again:" in said and all(words in said for words in expected)
    assert "how old may a key be" not in said, "make grade has said it"
    assert hint_record.load(tmp_path)["p6"].total == 4


def test_another_failure_begins_anew_and_other_numbers_do_not(hinted, tmp_path):
    assert "hint 1 of 2" in hinted(wrong())[1]
    assert "hint 2 of 2" in hinted(wrong(Cause("a window of 7", "how old?", WINDOW_33.section)))[1]
    assert "hint 1 of 2" in hinted(wrong(Cause("no window", "which keys?", WINDOW_33.section)))[1]
    other_list = wrong(Cause("no window", "which keys?", WINDOW_33.section), measured=["weight to key 0"])
    assert "hint 1 of 3" in hinted(other_list)[1]
    assert hint_record.load(tmp_path)["p6"] == hint_record.HintRecord(hint_record.load(tmp_path)["p6"].failure, 1, 4)


def test_an_open_gap_is_shown_with_numbers_then_shapes_then_operations(hinted):
    gap = result(case="ragged tail", outcome=Outcome.UNFINISHED, sentence="TODO 4: one step of the online softmax")
    said = [hinted(gap)[1] for _ in range(3)]
    made = r"hint 1 of 4: the first numbers that gap 4 makes in `make try P=6 .*WINDOW=40`.*:\n +scores:\n( +\S+){4}\n"
    assert re.search(made, said[0])
    assert "hint 2 of 4: gap 4 takes q (64, 16), k (32, 16)" in said[1] and "makes scores (64, 32)" in said[1]
    assert re.search(r"hint 3 of 4: gap 4 needs tl.dot, .* tl.sum and \.to\n", said[2])


def test_an_open_gap_of_single_numbers_is_shown_with_what_they_are_made_of(hinted):
    gap = result(case="ragged tail", outcome=Outcome.UNFINISHED, sentence="TODO 2: the first tile and the end")
    said = hinted(gap)[1]
    assert "WINDOW=40`, where q_start = 128, window_size = 40:\n" in said
    assert re.search(r"first = 64\n +k_end = 150", said)
    assert "hint 2 of 3: gap 2 needs tl.maximum and tl.minimum" in hinted(gap)[1]


def test_a_map_without_news_is_no_hint(hinted, monkeypatch):
    monkeypatch.setattr(hint, "map_of", lambda right: ["what each query sees", "key  0", "0-7  o", "o visible"])
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
    assert "hint 1 of 1: put a print before line 70 of p6_sliding_window.py" in (said := hinted(crashed)[1])
    assert "make try P=6" in said and "a picture" not in said


def test_what_does_not_compile_needs_a_hint(tmp_path, monkeypatch, capsys):
    def grade(request, lanes, on_case=None):
        sentence = "acc changes its type (p6_sliding_window.py:70)"
        compiled = result(case="compiles", outcome=Outcome.CRASHED, aspect=Aspect.COMPILE, sentence=sentence)
        return [compiled] if request.names else [result()]

    monkeypatch.setattr(hint, "grade", grade)
    hint.run(Request(tmp_path, (PROBLEMS["p6"],), None, "cpu", 0, targets=("sm_90",)), tmp_path)
    said = capsys.readouterr().out
    assert "crashed" in said and "acc changes its type" in said and "make try" not in said


def test_where_all_is_right_no_hint_is_counted(hinted, tmp_path):
    assert hinted(result()) == (0, "p6: every case passes, no hint is needed\n")
    assert not (tmp_path / hint_record.NAME).exists()
    assert hinted(result(outcome=Outcome.GRADER_FAULT, sentence="ours"))[0] == 2


@pytest.mark.parametrize(
    "text",
    ["", "[1]", "{", "[" * 100_000, '{"p6": 3}', '{"p6": {"step": -1, "total": 1}}',
     '{"p6": {"step": 1e9, "total": 1}}', '{"p6": {"step": true, "total": 1}}', '{"nothing": {"step": 1, "total": 1}}',
     '{"p6": {"step": 1, "total": 20000}}', '{"p6": {"step": 1, "total": 1, "failure": 3}}'],
)  # fmt: skip
def test_a_damaged_file_tells_nothing_and_is_written_anew(text, tmp_path):
    (tmp_path / hint_record.NAME).write_text(text, "utf-8")
    assert hint_record.load(tmp_path) == {} and hint_record.remark(text) is None
    assert hint_record.next_step(tmp_path, "p6", "x") == hint_record.HintRecord("x", 1, 1)
    assert json.loads((tmp_path / hint_record.NAME).read_text(encoding="utf-8")) == {
        "p6": {"failure": "x", "step": 1, "total": 1}
    }


def test_a_link_is_not_followed(tmp_path):
    outside = tmp_path / "outside"
    outside.write_text('{"p6": {"failure": "x", "step": 3, "total": 3}}', "utf-8")
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / hint_record.NAME).symlink_to(outside)
    assert hint_record.load(folder) == {}
    hint_record.next_step(folder, "p3", "y")
    assert "p3" not in outside.read_text(encoding="utf-8") and hint_record.load(folder)["p3"].total == 1


@pytest.mark.parametrize("arguments", [[], ["--problems", "3,6"]])
def test_hints_are_on_one_problem(arguments, capsys):
    assert command.main(["hint", *arguments, "--submission", str(SOLUTIONS)]) == 2
    assert "hints are on one problem: name it, like make hint P=6" in capsys.readouterr().err
