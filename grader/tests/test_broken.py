"""Every known mistake is rejected, by the case that is there for it and for the right reason."""

import pytest

from grader.tests.broken.memory import MEMORY
from grader.tests.broken.mistakes import MISTAKES
from grader.tests.broken.on_honest import ON_HONEST
from grader.tests.broken.wasteful import WASTEFUL
from grader.tests.support import grade_text, honest, solution

ALL = (*MISTAKES, *MEMORY, *WASTEFUL, *ON_HONEST)


# Small cases of these look like other mistakes: one false cause in any case is a failure of the grader.
MISLEADING = {
    "p3_transposed_scores maximum over the queries": (),
    "p4_backwards NaN from hidden rows": ("NaN for rows whose first tile",),
    "p6_skips_by_if edge tiles skipped": ("never meets", "meets no key"),
    "p7_one_masked_loop sink tiles met twice": ("counts keys twice",),
}


def name_of(mistake):
    return f"{mistake.base or mistake.problem} {mistake.name}"


def source_of(mistake):
    return mistake.apply(honest(mistake.base) if mistake.base else solution(mistake.problem))


@pytest.mark.parametrize("mistake", ALL, ids=name_of)
def test_mistake_is_rejected(mistake, tmp_path):
    (result,) = grade_text(tmp_path, mistake.problem, source_of(mistake), names=[mistake.case])
    assert result.outcome is mistake.outcome, result.sentence
    assert mistake.because in result.sentence
    if not mistake.because:  # nothing in the catalogue is true of it: the facts alone, never a guess
        assert not result.facts.get("causes"), result.sentence
    if result.facts.get("causes"):
        assert result.facts["question"].endswith("?") and result.facts["causes"][0].section


@pytest.mark.parametrize("name", MISLEADING)
def test_no_case_of_a_problem_names_another_cause(name, tmp_path):
    (mistake,) = (mistake for mistake in ALL if name_of(mistake) == name)
    results = grade_text(tmp_path, mistake.problem, source_of(mistake))
    named = {cause.equals for result in results for cause in result.facts.get("causes", ())}
    assert all(any(words in equals for words in MISLEADING[name]) for equals in named), named
    assert bool(named) is bool(MISLEADING[name])


def test_rows_that_were_never_written_equal_nothing(tmp_path):
    source = solution("p6").replace("triton.cdiv(N, BLOCK_Q)", "max(1, N // BLOCK_Q)")
    (result,) = grade_text(tmp_path, "p6", source, names=["ragged tail"])
    assert result.sentence.startswith("256 of 33024 elements of the output were never written, all in the last rows: ")
    assert not result.facts["causes"]


def test_names_are_unique():
    names = [name_of(mistake) for mistake in ALL]
    assert len(set(names)) == len(names)
