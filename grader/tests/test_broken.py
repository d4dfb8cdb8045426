"""Every known mistake is rejected, by the case that is there for it and for the right reason."""

import pytest

from grader.tests.broken.mistakes import MISTAKES
from grader.tests.support import grade_text, solution


@pytest.mark.parametrize("mistake", MISTAKES, ids=[f"{m.problem} {m.name}" for m in MISTAKES])
def test_mistake_is_rejected(mistake, tmp_path):
    source = mistake.apply(solution(mistake.problem))
    (result,) = grade_text(tmp_path, mistake.problem, source, names=[mistake.case])
    assert result.outcome is mistake.outcome, result.sentence
    assert mistake.because in result.sentence


def test_names_are_unique():
    names = [(m.problem, m.name) for m in MISTAKES]
    assert len(set(names)) == len(names)
