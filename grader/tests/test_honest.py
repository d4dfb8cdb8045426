"""Correct kernels unlike the reference pass with full points, whatever their tiles, order or instructions."""

from pathlib import Path

import pytest

from grader import honesty, score
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


@pytest.mark.parametrize("name", ["p4_cached_output", "p4_cached_workspace", "p2_torch_compile"])
def test_honest_kernel_passes_whichever_case_is_asked_again(name, tmp_path, monkeypatch):
    monkeypatch.setattr(honesty, "Again", AskedAgain)
    results = grade_text(tmp_path, name[:2], honest(name))
    assert {result.outcome for result in results} == {Outcome.PASSED}


class AskedAgain:
    """In the place of the draw: every case is asked again."""

    without, seed = None, staticmethod(honesty.Again.seed)

    def __init__(self, *_):
        self.values = type("EveryName", (), {"__eq__": lambda self, other: True})()

    def graded(self, name, passed):
        """None takes another's place."""
