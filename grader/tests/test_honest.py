"""Correct kernels unlike the reference pass with full points, whatever their tiles, order or instructions."""

from pathlib import Path

import pytest

from grader import score
from grader.result import Outcome
from grader.tests.support import grade_text, honest

KERNELS = sorted((Path(__file__).parent / "honest").glob("[px]*.py"))


@pytest.mark.parametrize("path", KERNELS, ids=[path.stem for path in KERNELS])
def test_honest_kernel_passes(path, tmp_path):
    results = grade_text(tmp_path, path.stem[:2], honest(path.stem))
    failures = [f"{r.case}: {r.outcome.value}: {r.sentence}" for r in results if r.outcome is not Outcome.PASSED]
    assert not failures
    earned, possible = score.total(results)
    assert earned == possible and (possible > 0 or path.stem.startswith("x"))
