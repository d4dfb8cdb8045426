"""Correct kernels unlike the reference pass with full points, whatever their tiles, order or instructions."""

import pytest

from grader import score
from grader.result import Outcome
from grader.tests.submissions.corpus import HONEST
from grader.tests.support import grade_text, honest


@pytest.mark.parametrize("path", HONEST, ids=[path.stem for path in HONEST])
def test_honest_kernel_passes(path, tmp_path):
    results = grade_text(tmp_path, path.stem[:2], honest(path.stem))
    failures = [f"{r.case}: {r.outcome.value}: {r.sentence}" for r in results if r.outcome is not Outcome.PASSED]
    assert not failures
    earned, possible = score.total(results)
    assert earned == possible and (possible > 0 or path.stem.startswith("x"))
