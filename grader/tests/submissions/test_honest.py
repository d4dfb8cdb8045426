"""Correct kernels unlike the reference pass with full points, whatever their tiles, order or instructions."""

import pytest

from grader import score
from grader.course.problem import LONG_ROW, SECONDS_PER_CASE, WORK
from grader.kinds.registry import EVERY
from grader.result import Outcome
from grader.tests.submissions import corpus, quick
from grader.tests.support import SUBMISSIONS, grade_text, honest, thorough_but, triton_version

NAMED, PAIRS = 2, 3  # of the cases with an idea, and of those with none but their pairs, a kernel meets one in so many


def names_of(kernel):
    """The cases for a kernel: its long row, and the share of the others that the kernels before it left."""
    problem, kernels = EVERY[kernel[:2]], [name for name in corpus.HONEST if name[:2] == kernel[:2]]
    number, names = kernels.index(kernel), [case.name for case in (*problem.cases, *problem.memory_cases)]
    pairs = [name for name in names if name.startswith("pairs ")]
    named = [name for name in names if name not in pairs]
    return {*named[number % NAMED :: NAMED], *pairs[number % PAIRS :: PAIRS], LONG_ROW, WORK}


@pytest.mark.parametrize("name", thorough_but(quick.HONEST, corpus.HONEST))
def test_honest_kernel_passes(name, tmp_path, monkeypatch):
    monkeypatch.setitem(SECONDS_PER_CASE, "cpu", 120.0)  # other tests share the cores
    results = grade_text(tmp_path, name[:2], honest(name), names_of(name))
    failures = [f"{r.case}: {r.outcome.value}: {r.sentence}" for r in results if r.outcome is not Outcome.PASSED]
    assert not failures
    earned, possible = score.total(results)
    assert earned == possible and (possible > 0 or name[0] == "x")


@pytest.mark.parametrize("id", sorted({name[:2] for name in corpus.HONEST}))
def test_every_case_meets_a_kernel(id):
    met = {case for name in corpus.HONEST if name.startswith(id) for case in names_of(name)}
    assert met >= {case.name for case in EVERY[id].cases if not case.gpu}


def test_block_pointers_run_or_are_told_to_be_gone(tmp_path):
    source = (SUBMISSIONS / "honest" / "p3_block_pointers.py").read_text(encoding="utf-8")
    (result,) = grade_text(tmp_path, "p3", source, names=["ragged tail"])
    if triton_version() < (3, 9):
        assert result.outcome is Outcome.PASSED, result.sentence
    else:
        assert result.outcome is Outcome.CRASHED
        assert "Triton has none since 3.9: use tl.make_tensor_descriptor" in result.sentence
        assert "p3_flash_attention.py:" in result.sentence
