"""Correct kernels unlike the reference pass with full points, whatever their tiles, order or instructions."""

import pytest

from grader import score
from grader.course.problem import LONG_ROW, SECONDS_PER_CASE, WORK
from grader.registry import EVERY
from grader.result import Outcome
from grader.tests.submissions import corpus, quick
from grader.tests.submissions.broken.mistakes import read
from grader.tests.support import SUBMISSIONS, grade_text, honest, solution, thorough_but, triton_version

FORMS = {f"{id} {form.name}": form for id in ("x3", "x4") for form in read(SUBMISSIONS / "honest" / f"{id}_forms.txt")}
ASKED_OF_FORMS = {
    "x3": (
        "ragged tail", "no mask, ragged tail", "groups of 3", "tiles of 16 x 64", "sinks, tiles of 16 x 64",
        "sinks, groups and batches", "bfloat16", "each tensor with another layout", "scores rising along the keys",
    ),
    "x4": (
        "lengths that differ", "eight new tokens, groups of 4", "more rows than a tile", "new tokens across two pieces",
        "lengths below the new tokens", "pages of 12", "pages of 64", "a window in pages, NaN in all others",
        "many pieces", "sink logits, window and new tokens", "sink logits of minus infinity", "bfloat16", "float16",
        "scores that rise", "a long sum in one piece", "q and the caches each with another layout",
        "the same bits alone, window and sink logits", "the same bits with more room", "long caches",
        "the same bits beside others, in pages", "the same bits in a dense cache", "a short window in long caches",
    ),
}  # fmt: skip
QUICK_FORMS = "x3 dq by atomics", "x4 natural exponentials", "x4 one kernel, the keys in order"

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


@pytest.mark.parametrize("name", thorough_but(QUICK_FORMS, FORMS))
def test_another_form_of_a_solution_passes(name, tmp_path):
    id, form = name[:2], FORMS[name]
    results = grade_text(tmp_path, id, form.apply(solution(id)), names=ASKED_OF_FORMS[id])
    assert not [f"{r.case}: {r.outcome.value}: {r.sentence}" for r in results if r.outcome is not Outcome.PASSED]
    assert len(results) == len(ASKED_OF_FORMS[id])


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
