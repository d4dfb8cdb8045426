"""Every known mistake is rejected, by the case that is there for it and for the right reason."""

import re

import pytest

from grader import score
from grader.course.problem import WORK
from grader.engine.cause import CLEAR
from grader.registry import EVERY
from grader.result import Aspect, Outcome
from grader.tests.submissions import quick
from grader.tests.submissions.broken.mistakes import read
from grader.tests.submissions.corpus import ALL_BROKEN, BROKEN, source_of
from grader.tests.support import grade_text, solution, thorough_but

# Small cases of these look like other mistakes: one false cause in any case is a failure of the grader.
MISLEADING = {
    "p3_transposed_scores maximum over the queries": (),
    "p4_backwards NaN from hidden rows": ("NaN for rows whose first tile",),
    "p6_skips_by_if edge tiles skipped": ("leaves out", "meets no key", "the last query of each", "tile's last query"),
    "p7_one_masked_loop sink tiles met twice": ("counts keys twice",),
}

LONGEST = 40  # words of a sentence


def judged(mistake, folder):
    """The result that must tell the mistake: that of its case, or the problem's work where that is judged apart."""
    problem, source = EVERY[mistake.problem], source_of(mistake)
    by_torch = mistake.because.startswith("Outside of kernels")  # each case says that itself
    if by_torch or not (problem.counts_work and mistake.outcome is Outcome.WASTEFUL):
        (result,) = grade_text(folder, mistake.problem, source, names=[mistake.case])
        return result
    case = next(case for case in problem.cases if case.name == mistake.case)
    *cases, result = grade_text(folder, mistake.problem, source, names=[WORK], cases=[case])
    assert {each.outcome for each in cases} == {Outcome.PASSED} and result.aspect is Aspect.WORK
    assert result.sentence.startswith(f'"{mistake.case}": ')
    return result


def too_long(result):
    """Sentences of more than LONGEST words; a line of code is one word."""
    said = re.sub(r"\(\w+\.py:\d+: `.*?`\)|`[^`]*`|\([-\d, ]+\)", "X", f"{result.sentence} {result.facts.question}")
    return [each for each in re.split(r"(?<=[.?:])\s+", said) if len(each.split()) > LONGEST]


@pytest.mark.parametrize("name", thorough_but(quick.BROKEN, BROKEN))
def test_mistake_is_rejected(name, tmp_path):
    mistake = BROKEN[name]
    result = judged(mistake, tmp_path)
    assert result.outcome is mistake.outcome, result.sentence
    causes = result.facts.causes
    several = " ".join(cause.equals for cause in causes) if len(causes) > CLEAR else ""  # the page shows them all
    said = result.sentence + result.facts.question
    assert mistake.because.lower() in (said + several).lower(), said
    assert not too_long(result), too_long(result)
    if not mistake.because:  # nothing in the catalogue is true of it: the facts alone, never a guess
        assert not result.facts.causes, result.sentence
    if result.facts.causes:
        assert result.facts.question.endswith("?") and result.facts.causes[0].section


@pytest.mark.parametrize("name", thorough_but([], MISLEADING))
def test_no_case_of_a_problem_names_another_cause(name, tmp_path):
    mistake = BROKEN[name]
    results = grade_text(tmp_path, mistake.problem, source_of(mistake))
    named = {cause.equals for result in results for cause in result.facts.causes}
    assert all(any(words in equals for words in MISLEADING[name]) for equals in named), named
    assert bool(named) is bool(MISLEADING[name])


def test_a_wasteful_kernel_keeps_the_points_of_its_cases_and_loses_those_of_its_work(tmp_path):
    *cases, result = grade_text(tmp_path, "p4", source_of(BROKEN["p4 no causal skip"]))
    assert {each.outcome for each in cases} == {Outcome.PASSED}
    assert (result.aspect, result.outcome) == (Aspect.WORK, Outcome.WASTEFUL)
    assert result.sentence.startswith('"long row": ') and result.facts.picture["visits"]
    assert score.total([*cases, result]) == (7.5, 15)


@pytest.mark.thorough
def test_rows_that_were_never_written_equal_nothing(tmp_path):
    source = solution("p6").replace("triton.cdiv(N, BLOCK_Q)", "max(1, N // BLOCK_Q)")
    (result,) = grade_text(tmp_path, "p6", source, names=["ragged tail"])
    assert "256 of 33024 elements of the output were never written, all in the last rows: " in result.sentence
    assert not result.facts.causes


def test_names_are_unique():
    assert len(BROKEN) == len(ALL_BROKEN)


def test_the_quick_run_has_every_problem_and_outcome():
    chosen = [BROKEN[name] for name in quick.BROKEN]
    assert {mistake.problem for mistake in chosen} == {mistake.problem for mistake in ALL_BROKEN}
    assert {mistake.outcome for mistake in chosen} == {mistake.outcome for mistake in ALL_BROKEN}


@pytest.mark.parametrize(
    "lines", ["- a\n+ b", "- a\nb\n? whole tiles", "a\n+ b\n? whole tiles: words", "- a\n+ b\n? (wrong): words"]
)
def test_a_mistake_that_cannot_be_read_is_named(lines, tmp_path):
    (tmp_path / "mistakes.txt").write_text(f"# how\n\np1: a name\n{lines}\n", "utf-8")
    with pytest.raises(ValueError, match="'p1: a name' is not followed by"):
        read(tmp_path / "mistakes.txt")


def test_a_mistake_is_read_as_it_is_written(tmp_path):
    text = "p1: a name: with colons\n- one\n+ two\\n  three\n- four\n+\n? q, k and v (timed out): words: more\n"
    text += "\n# a heading\n\np3_natural_exp: b\n- x\n+ y\n? whole tiles\n"
    (tmp_path / "mistakes.txt").write_text(text, "utf-8")
    first, second = read(tmp_path / "mistakes.txt")
    assert (first.problem, first.name, first.base) == ("p1", "a name: with colons", "")
    assert first.was == ("one", "four") and first.now == ("two\n  three", "")
    assert (first.case, first.outcome.value, first.because) == ("q, k and v", "timed out", "words: more")
    assert (second.problem, second.base, second.outcome.value) == ("p3", "p3_natural_exp", "wrong")
    assert not second.because
