"""Every cheat gets the verdict that it must: never full credit, and what is held is held with evidence.

A file of tests/dishonest/ follows the solution of its problem, whose entry point is then named real_forward: whoever
cheats may well have a right kernel at hand.
"""

from pathlib import Path

import pytest

from grader import score
from grader.labs import EVERY
from grader.render import terminal
from grader.result import Outcome
from grader.tests.support import grade_text, solution

HELD, WRONG, CRASHED = Outcome.HELD, Outcome.WRONG, Outcome.CRASHED
FOLDER = Path(__file__).parent / "dishonest"
# file: the verdict of its problem, and words that its sentences must contain
CHEATS = {
    # PyTorch in the place of a kernel
    "p1_sdpa": (HELD, "torch's own attention"),
    "p3_sdpa": (HELD, "torch's own attention"),
    "p3_matmul": (HELD, "puts k and q together"),
    "p3_elementwise": (HELD, "mul puts k and q together"),
    "p3_by_distances": (HELD, "puts k and q together"),
    "p3_packed": (HELD, "bmm puts k and q and v together"),
    "p3_side_stream": (HELD, "torch's own attention"),
    "p6_sdpa_with_a_mask": (HELD, "torch's own attention"),
    # A kernel for show
    "p3_decoy_kernel": (HELD, "puts k and q together"),
    "p3_decoy_copies_the_answer": (HELD, "torch's own attention"),
    "p3_copies_an_answer_of_numpy": (HELD, "do not account for the output"),
    "p3_real_work_then_numpys_answer": (HELD, "follows the inputs"),
    "p3_plain_python": (HELD, "do not account for the output"),
    "p3_copies_then_bmm": (HELD, "On what the kernel stored"),
    "p3_softmax_by_torch": (HELD, "exponentials"),
    "p3_values_by_torch": (HELD, "puts v and what the kernel stored together"),
    "p3_half_by_torch": (HELD, "torch's own attention"),
    "p7_sinks_by_torch": (HELD, "puts k and q together"),
    # Inside the kernel, which works in the interpreter
    "p3_sdpa_in_the_kernel": (HELD, "Inside the kernel"),
    "p3_matmul_in_the_kernel": (HELD, "Inside the kernel"),
    "p3_numpy_in_the_kernel": (HELD, "numpy"),
    # A kernel that is not the last word
    "p3_try_except": (HELD, "raised"),
    "p3_overwritten_by_torch": (HELD, "torch's own attention"),
    "p3_overwritten_by_numpy": (HELD, "behind the grader's back"),
    # Outputs that were there before
    "p2_cached_by_shape": (HELD, "bit by bit"),
    "p3_cached_by_shape": (HELD, "bit by bit"),
    "p3_replayed_by_a_kernel": (HELD, "bit by bit"),
    "p3_table_by_seed": (HELD, "do not account for the output"),
    # The grader's own objects
    "p3_patched_allclose": (HELD, "replaced torch.allclose"),
    "p3_patched_between": (HELD, "replaced torch.isclose"),
    "p3_patched_code": (HELD, "replaced torch.testing.assert_close"),
    "p3_patched_comparison": (HELD, "replaced torch.Tensor.__eq__"),
    "p3_patched_clocks": (HELD, "time.perf_counter"),
    "p3_patched_trace": (HELD, "replaced traffic.Traffic.dot"),
    "p3_patched_worker": (HELD, "replaced outputs.raw_bytes"),
    "p3_blinds_the_ledger": (HELD, "do not account for the output"),
    "p3_switches_modes_off": (HELD, "do not account for the output"),
    # What is returned is no plain tensor, or no answer
    "p3_lazy_tensor": (HELD, "Lazy"),
    "p3_overridden_comparison": (HELD, "Close"),
    "p3_nan_wildcard": (WRONG, "NaN"),
    "p3_reused_memory": (WRONG, "never written"),
    # Looking for what is not there
    "p3_walks_the_heap": (HELD, "torch's own attention"),
    "p3_walks_the_frames": (HELD, "torch's own attention"),
    "p3_imports_the_solution": (HELD, "torch's own attention"),
    "p3_edits_the_grader": (HELD, "torch's own attention"),
    "p3_forges_the_reply": (HELD, "torch's own attention"),
    # Leaving
    "p3_os_exit": (CRASHED, "exit status 0"),
    "p3_sys_exit": (CRASHED, "SystemExit"),
    "p3_system_exit_at_import": (CRASHED, "SystemExit"),
    "p3_crashes_the_interpreter": (CRASHED, "SIGSEGV"),
}


def source_of(name):
    problem = EVERY[name[:2]]
    real = solution(problem.id).replace(f"def {problem.entry_point}(", "def real_forward(")
    return f"{real}\n\n{(FOLDER / f'{name}.py').read_text()}"


@pytest.mark.parametrize("name", CHEATS)
def test_cheat_gets_its_verdict(name, tmp_path):
    outcome, words = CHEATS[name]
    results = grade_text(tmp_path, name[:2], source_of(name))
    found, _ = terminal.verdict(results)
    said = [" ".join([result.sentence, *result.facts.get("evidence", ())]) for result in results]
    assert found is outcome, said
    assert any(words in text for text in said), said
    earned, possible = score.total(results)
    assert earned < possible
    if outcome is HELD:
        assert earned == 0 and all(result.facts["evidence"] for result in score.held(results))


def test_every_cheat_has_a_verdict():
    assert {path.stem for path in FOLDER.glob("*.py")} == set(CHEATS)
