"""Correct kernels unlike the reference pass with full points, whatever their tiles, order or instructions."""

import pytest

from grader import score
from grader.result import Outcome
from grader.tests.submissions import corpus, quick
from grader.tests.support import grade_text, honest, thorough_but


@pytest.mark.parametrize("name", thorough_but(quick.HONEST, corpus.HONEST))
def test_honest_kernel_passes(name, tmp_path):
    results = grade_text(tmp_path, name[:2], honest(name))
    failures = [f"{r.case}: {r.outcome.value}: {r.sentence}" for r in results if r.outcome is not Outcome.PASSED]
    assert not failures
    earned, possible = score.total(results)
    assert earned == possible and (possible > 0 or name[0] == "x")
