"""Every known mistake is rejected, by the case that is there for it and for the right reason."""

import pytest

from grader.tests.broken.memory import MEMORY
from grader.tests.broken.mistakes import MISTAKES
from grader.tests.broken.on_honest import ON_HONEST
from grader.tests.broken.wasteful import WASTEFUL
from grader.tests.support import grade_text, honest, solution

ALL = (*MISTAKES, *MEMORY, *WASTEFUL, *ON_HONEST)


@pytest.mark.parametrize("mistake", ALL, ids=[f"{m.base or m.problem} {m.name}" for m in ALL])
def test_mistake_is_rejected(mistake, tmp_path):
    source = mistake.apply(honest(mistake.base) if mistake.base else solution(mistake.problem))
    (result,) = grade_text(tmp_path, mistake.problem, source, names=[mistake.case])
    assert result.outcome is mistake.outcome, result.sentence
    assert mistake.because in result.sentence
    if not mistake.because:  # nothing in the catalogue is true of it: the facts alone, never a guess
        assert not result.facts.get("causes"), result.sentence
    if result.facts.get("causes"):
        assert result.facts["question"].endswith("?") and result.facts["section"]


def test_names_are_unique():
    names = [(m.base or m.problem, m.name) for m in ALL]
    assert len(set(names)) == len(names)
