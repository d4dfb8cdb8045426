"""make compare: a module that passes beside the reference solution, and nothing of the reference before."""

import pytest

from grader.__main__ import main
from grader.commands import compare
from grader.course import course
from grader.result import Aspect, Outcome, Result
from grader.tests.support import solution


def run(tmp_path, text, capsys):
    (tmp_path / "p3_flash_attention.py").write_text(text, "utf-8")
    status = main(["compare", "--problems", "3", "--submission", str(tmp_path), "--out", str(tmp_path)])
    return status, capsys.readouterr().out


def test_the_reference_is_shown_once_every_case_passes(tmp_path, capsys):
    text = solution("p3").replace("tl.float32)", "tl.float32)  # a comment")
    status, said = run(
        tmp_path, text.replace("q_pos = q_start", "rows = q_start\n    q_pos = rows - q_start + q_start"), capsys
    )
    assert status == 0 and "rows = q_start" in said and "a comment" not in said
    assert "multiplied and added in dots" in said and "1.00" in said


def test_nothing_of_the_reference_is_shown_before(tmp_path, capsys):
    text = solution("p3").replace("math.sqrt(D)", "D")
    status, said = run(tmp_path, text, capsys)
    assert status == 1 and "once every case passes" in said and "tl." not in said


def test_a_case_that_did_not_run_has_not_passed(tmp_path, capsys, monkeypatch):
    left = Result("p3", "whole tiles", Aspect.CORRECT, Outcome.NOT_RUN, sentence="Triton is not installed.")
    monkeypatch.setattr(compare, "grade_visibly", lambda *_: [left])
    status, said = run(tmp_path, solution("p3"), capsys)
    assert status == 1 and "once every case passes" in said


def test_a_handout_has_no_reference_to_show(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(type(course.current()), "solutions", property(lambda self: tmp_path / "none"))
    (tmp_path / "p3_flash_attention.py").write_text("", "utf-8")
    assert main(["compare", "--problems", "3", "--submission", str(tmp_path)]) == 2
    assert "a handout has none" in capsys.readouterr().err


@pytest.mark.parametrize(("one", "other", "same"), [
    ("def f(x):\n    '''words'''\n    return x  # why\n", "def f(x):\n    # how\n    return x\n", True),
    ("def f(x):\n    return x\n", "def f(x):\n    return -x\n", False),
    ("def f(x):\n\n    return x\n", "def f(x):\n    return x\n", True),
])  # fmt: skip
def test_comments_docstrings_and_blank_lines_are_not_compared(one, other, same):
    assert (compare.functions(one) == compare.functions(other)) is same
