"""A wrong kernel, and the line that is told."""

import pytest

from grader.diagnosis.repair import questions, search
from grader.diagnosis.repair.edits import Edit
from grader.kinds.attention import lines
from grader.kinds.registry import EVERY, handler_of
from grader.processes.submission import Submission
from grader.tests.support import solution, thorough

RESCALE = ("scores rising along the keys", "heads interleaved", "values with a large offset")
WRONG = [
    ("p3", "row_sum * alpha + tl.sum(p, 1)", "row_sum + tl.sum(p, 1)", "rescale", RESCALE),
    ("p6", "age < window_size", "age <= window_size", "mask", ("window smaller than a tile", "head dim 128")),
    ("p3", "*v.stride()[:3],", "*(k).stride()[:3],", "layout", ("q, k and v each with another layout",)),
]


def searched(folder, problem_id, source, kind, wrong):
    problem = EVERY[problem_id]
    (folder / problem.module).write_text(source)
    cases = {each.name: each for each in problem.cases}
    asked = handler_of(problem, cases["one token"])
    trials = [lines.trial(asked, problem, cases[name], 0, name not in wrong) for name in (*wrong, "one token")]
    submission = Submission(folder / problem.module, problem, "cpu", 60.0)
    told = []
    try:
        suspects = search.find(submission, trials, [kind], 60.0, lambda *progress: told.append(progress))
    finally:
        submission.close()
    assert told and all(tried <= every for tried, every in told)
    return suspects


@pytest.mark.parametrize(
    ("problem", "was", "now", "kind", "wrong"), [WRONG[1], thorough(*WRONG[0]), thorough(*WRONG[2])]
)
def test_the_wrong_line_is_told_and_not_the_change(problem, was, now, kind, wrong, tmp_path, monkeypatch):
    monkeypatch.setattr(search, "MOST", {"mask": 40, "layout": 120, "rescale": 300}[kind])  # one of the first mends it
    source = solution(problem).replace(was, now)
    line = 1 + source[: source.index(now)].count("\n")
    (suspect,) = searched(tmp_path, problem, source, kind, wrong)
    assert 0 <= line - suspect.line <= 3  # the arguments of a launch stand below its first line
    assert f"line {suspect.line}" in suspect.sentence and was not in suspect.sentence


def hit(family, *at, more=False, quantity=None):
    return search.Hit(Edit(family, at, quantity or f"made in {at[0]}"), more)


@pytest.mark.parametrize(
    ("hits", "told"),
    [
        ([], []),
        ([hit("comparison", 7), hit("constant", 7), hit("name", 7)], [7]),
        ([hit("comparison", 7), hit("comparison", 9)], [7, 9]),
        ([hit("comparison", 7), hit("constant", 9), hit("name", 11)], []),
        ([hit("comparison", 7), hit("comparison", 7, 9)], [7]),
        ([hit("comparison", 7), hit("second mask", 9)], [7]),
        ([hit("second mask", 9)], [9]),
        ([hit("comparison", 7, more=True), hit("comparison", 9)], [9]),
        ([hit("dtype", 7)], []),
    ],
)
def test_lines_are_told_where_the_repairs_agree(hits, told):
    assert [suspect.line for suspect in questions.suspects(hits, {}, ["mask"])] == told


def test_a_quantity_is_told_where_many_lines_make_it_right():
    hits = [hit("comparison", line, quantity="first") for line in (7, 9, 11)]
    (suspect,) = questions.suspects(hits, {}, ["mask"])
    assert suspect.sentence.startswith("Look at first: ")
