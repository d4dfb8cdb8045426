"""Skeletons: generated, unfinished by the name of the first gap, and never written over a student's work."""

import re
import subprocess
import sys

import pytest

from grader import score
from grader.commands import skeletons
from grader.course import gaps
from grader.registry import EVERY
from grader.result import Outcome
from grader.tests.support import ROOT, grade_text, solution


def test_problems_are_what_solutions_give():
    done = subprocess.run([sys.executable, "-m", "grader", "skeletons", "--check"], cwd=ROOT, capture_output=True)
    assert not done.returncode, (done.stdout + done.stderr).decode()


def test_every_gap_has_hints_and_most_have_numbers_or_shapes():
    hints = skeletons.load_hints()
    assert set(hints) == {problem.module for problem in EVERY.values()}
    assert hints["p6_sliding_window.py"]["2"][0][1:] == ["first = 64", "k_end = 150"]
    assert "scores (64, 32)" in hints["p3_flash_attention.py"]["1"][1][0]
    short = [(module, number) for module, gaps in hints.items() for number, each in gaps.items() if len(each) == 1]
    assert len(short) < 9


@pytest.mark.parametrize("id", list(EVERY))
def test_the_untouched_skeleton_is_unfinished_by_its_first_gap(id, tmp_path):
    text = gaps.skeleton(solution(id), id)
    first = re.search(r"TODO 1: [^\n\"(]+[^\n\"( ]", text).group(0)
    results = grade_text(tmp_path, id, text)
    cases = [r for r in results if r.aspect.concerns_case]
    assert {(r.outcome, r.sentence) for r in cases} == {(Outcome.UNFINISHED, first)}
    assert score.earned(results) == [0] * len(results)
    assert {r.outcome for r in results if r not in cases} <= {Outcome.NOT_RUN}


@pytest.mark.parametrize("id", list(EVERY))
def test_a_skeleton_leaves_a_few_gaps_each_with_its_size(id):
    text = gaps.skeleton(solution(id), id)
    comments = re.findall(r"# TODO (\d+): (.+) \(about \d+ lines?; then delete the failing line\)\n", text)
    failures = re.findall(r'(?:static_assert\(False, |NotImplementedError\()"TODO (\d+): (.+)"\)\n', text)
    assert 2 <= len(comments) <= {"x3": 9, "x4": 6}.get(id, 5) and comments == failures
    assert all(len(line) <= 120 for line in text.splitlines())
    assert "gap" not in text.replace("gaps, marked TODO", "")


SOURCE = """\
@triton.jit
def kernel(x):
    # gap 1: the loads
    #   `q` (BLOCK_Q, D)
    q = load(x)

    # a comment
    k = load(x)
    # end gap


def wrapper():
    # gap 2: it's the grid
    grid = 1
    # end gap
    return grid
"""


def test_a_gap_becomes_a_failure_of_the_same_name():
    assert (
        gaps.skeleton(SOURCE, "x.py")
        == """\
@triton.jit
def kernel(x):
    # TODO 1: the loads (about 2 lines; then delete the failing line)
    #   `q` (BLOCK_Q, D)
    tl.static_assert(False, "TODO 1: the loads")


def wrapper():
    # TODO 2: it's the grid (about 1 line; then delete the failing line)
    raise NotImplementedError("TODO 2: it's the grid")
    return grid
"""
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("    # end gap\n    return grid\n", ""), "gap 2 has no `# end gap`"),
        (("    return grid\n", "    # end gap\n"), "x.py:16: `# end gap` without a gap"),
        (("gap 2", "gap 3"), "gaps are numbered [1, 3]"),
        (("    grid = 1\n", "    # gap 3: inner\n"), "gap 2 has no `# end gap`"),
    ],
)
def test_gaps_that_are_not_well_formed(change, words):
    with pytest.raises(gaps.BadGap) as error:
        gaps.skeleton(SOURCE.replace(*change), "x.py")
    assert words in str(error.value)


def test_an_edited_file_is_kept_and_an_untouched_one_renewed(tmp_path):
    assert skeletons.write({"a.py": "1\n", "b.py": "1\n"}, tmp_path) == []
    (tmp_path / "a.py").write_text("my own work\n", "utf-8")
    assert skeletons.write({"a.py": "2\n", "b.py": "2\n"}, tmp_path) == ["a.py"]
    assert (tmp_path / "a.py").read_text("utf-8") == "my own work\n" and (tmp_path / "b.py").read_text("utf-8") == "2\n"
    assert skeletons.check({"a.py": "2\n", "b.py": "2\n"}, tmp_path) == ["a.py"]
    (tmp_path / "a.py").unlink()
    assert skeletons.write({"a.py": "2\n", "b.py": "2\n"}, tmp_path) == []
    assert skeletons.check({"a.py": "2\n", "b.py": "2\n"}, tmp_path) == []
    hints = {skeletons.HINTS: "o = [0.5000 -1.2345]\n"}
    skeletons.write(hints, tmp_path)
    for there, drifted in (("0.5001", []), ("0.5002", [*hints]), ("0.5000 0.5000", [*hints])):  # the last digit is free
        assert (
            skeletons.check({name: text.replace("0.5000", there) for name, text in hints.items()}, tmp_path) == drifted
        )


def test_a_file_without_a_manifest_is_somebodys_work(tmp_path):
    (tmp_path / "a.py").write_text("copied from elsewhere\n", "utf-8")
    assert skeletons.write({"a.py": "1\n"}, tmp_path) == ["a.py"]


@pytest.mark.parametrize("id", list(EVERY))
@pytest.mark.parametrize("place", ["above", "below"])
def test_a_gap_that_was_filled_but_still_fails_is_known_with_its_line(id, place):
    text = gaps.skeleton(solution(id), id)
    assert gaps.filled_but_failing(EVERY[id].module, text) == []
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if '"TODO 2: ' in line)
    indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
    lines.insert(at + (place == "below"), f"{indent}something = of_mine(1)")
    line = at + 1 + (place == "above")
    assert gaps.filled_but_failing(EVERY[id].module, "\n".join(lines)) == [(2, line)]


def test_without_a_solution_nothing_is_known_of_filled_gaps():
    assert gaps.filled_but_failing("of_another_course.py", 'x = 1\nraise NotImplementedError("TODO 1: all")\n') == []


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (1, "TODO 1 looks filled: delete the failing line {}"),
        (3, "TODO 1: the scaled scores; TODO 3 looks filled: delete the failing line {}"),
    ],
)
def test_a_filled_gap_that_still_fails_says_so(number, words, tmp_path):
    lines = gaps.skeleton(solution("p1"), "p1").splitlines()
    at = next(i for i, line in enumerate(lines) if f'"TODO {number}: ' in line)
    lines.insert(at, "    scores = q")
    results = grade_text(tmp_path, "p1", "\n".join(lines), names=["ragged tail"])
    assert {(r.outcome, r.sentence) for r in results} == {(Outcome.UNFINISHED, words.format(at + 2))}
