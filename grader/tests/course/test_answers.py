"""A filled gap is found in any text, under other names too, and in nothing that only looks like it."""

import json

import pytest

from grader.course import gap_leaks
from grader.registry import PROBLEMS
from grader.tests.support import ROOT, SOLUTIONS, solution

P3 = gap_leaks.read_answers(SOLUTIONS / PROBLEMS["p3"].module)
RENAMED = (
    ("row_sum", "total"), ("row_max", "m"), ("new_max", "m_new"), ("alpha", "c"), ("scores", "s"), ("acc", "out"),
    ("k_pos", "cols"), ("qk_scale", "sc"),
)  # fmt: skip


def found(text):
    return {(answer.module, answer.number) for answer, _ in gap_leaks.find_answers(text, P3)}


def test_a_solution_holds_its_answers_and_its_skeleton_none():
    assert found(solution("p3")) == {(PROBLEMS["p3"].module, number) for number in (1, 2, 3)}
    assert not found((ROOT / "problems" / PROBLEMS["p3"].module).read_text("utf-8"))


def test_other_names_lines_and_comments_hide_nothing():
    text = solution("p3")
    for old, new in RENAMED:
        text = text.replace(old, new)
    assert len(found(text)) == 3
    assert len(found(text.replace("tl.dot(q, tl.trans(k))", "tl.dot(\n    q,  # why\n    tl.trans(k))"))) == 3


@pytest.mark.parametrize("other", [("tl.exp2", "tl.exp"), ("alpha", "row_max"), ("row_sum * alpha", "row_sum + alpha")])
def test_other_code_is_no_answer(other):
    assert len(found(solution("p3").replace(*other))) < 3


def test_a_short_gap_is_known_by_its_own_names():
    gap = gap_leaks.read_answers(SOLUTIONS / PROBLEMS["p2"].module)[0]
    assert len(gap.tokens.words) < gap_leaks.FEW
    assert list(gap_leaks.find_answers("last_key = q_end if is_causal else Nk", [gap]))
    assert not list(gap_leaks.find_answers("a = b if c else d", [gap]))


def test_a_notebook_is_read_in_its_cells_and_in_what_they_printed():
    cells = [{"source": ["x = 1"], "outputs": [{"text": solution("p3").splitlines(keepends=True)}]}]
    shown = gap_leaks.shown("a.ipynb", json.dumps({"cells": cells}).encode())
    assert len(found(shown)) == 3 and not found(gap_leaks.shown("a.png", b"\xff\xfe"))
