"""Every cheat gets the verdict that it must: never full credit, and what is held is held with evidence.

A file of tests/dishonest/ follows the solution of its problem, whose entry point is then named real_forward: whoever
cheats may well have a right kernel at hand.
"""

import io
from pathlib import Path

import pytest
from rich.console import Console

from grader import honesty, score
from grader.assignment import PROBLEMS
from grader.grading import Request, grade
from grader.labs import EVERY
from grader.render import gradescope, terminal
from grader.result import Aspect, Outcome, Result
from grader.tests import test_broken
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


@pytest.fixture
def child(monkeypatch):
    """The modules of grader/child/ by their bare names, as they import each other."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "child"))


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


def test_where_the_case_that_was_drawn_does_not_pass_another_is_drawn():
    cases = [case for case in PROBLEMS["p2"].cases if not case.gpu]
    again, drawn = honesty.Again(PROBLEMS["p2"], cases, "cpu"), []
    for case in cases:
        if case.name == again.values:
            drawn.append(case.name)
        again.graded(case.name, passed=False)
    assert drawn and len(set(drawn)) == len(drawn) and again.values is None and not again.left
    again = honesty.Again(PROBLEMS["p2"], cases, "cpu")
    again.graded(again.values, passed=True)
    assert again.values is None and again.left, "one is enough"


def test_every_cheat_has_a_verdict():
    assert {path.stem for path in FOLDER.glob("*.py")} == set(CHEATS)


def some_held(folder):
    return grade_text(folder, "p3", source_of("p3_try_except"), names=["whole tiles", "one token"])


def test_every_face_shows_that_a_problem_is_held_and_why(tmp_path):
    results = some_held(tmp_path)
    request = Request(tmp_path, (EVERY["p3"],), None, "cpu", 0)
    console = Console(width=120, no_color=True, record=True, file=io.StringIO())
    terminal.show(console, results, request, 1.0)
    said = " ".join(console.export_text().split())
    assert "held for the instructor: 1 problem (p3); it earns nothing until the instructor has decided" in said
    assert "also: A launch of unfinished raised" in said and "0/15" in said
    tests = gradescope.render(results)["tests"]
    assert tests[0]["score"] == 0 and "Held for the instructor" in tests[0]["output"]
    assert any("raised" in sign for sign in tests[0]["extra_data"]["evidence"])
    pytest.importorskip("jinja2")
    from grader.render import html

    page = html.render(results, request, 1.0)
    assert "The evidence, for the instructor" in page and "A launch of unfinished raised" in page


def test_a_held_case_holds_the_points_of_the_problem_only():
    held = [Result("p3", name, Aspect.CORRECT, outcome) for name, outcome in (("a", HELD), ("b", Outcome.PASSED))]
    other = [Result("p4", "a", Aspect.CORRECT, Outcome.PASSED)]
    assert score.total(held + other) == (15, 30) and not score.passed(held) and not score.held(other)


def test_a_value_shortcut_is_wrong_and_nobody_is_accused(tmp_path):
    entry = "    check_arguments(q, k, v)\n"
    source = solution("p3").replace(entry, f"{entry}    if q.shape[2] == 1:\n        return v.clone()\n")
    results = grade_text(tmp_path, "p3", source)
    assert [r.case for r in results if r.outcome is not Outcome.PASSED] == ["one token"]
    assert any(r.outcome is WRONG and "No Triton kernel was launched" in r.sentence for r in results)


@pytest.mark.parametrize(
    ("name", "cases"),
    [
        ("p3 last tile dropped", ["scores falling along the keys"]),
        ("p3_split_keys_merged last tile of each part", ["values with a large offset", "bfloat16 with a large offset"]),
        ("p4_tutorial_stages first stage missing", ["bfloat16 with a large offset"]),
    ],
)
def test_keys_that_are_forgotten_where_they_show_nothing_are_no_cheat(name, cases, tmp_path):
    (mistake,) = (mistake for mistake in test_broken.ALL if test_broken.name_of(mistake) == name)
    results = grade_text(tmp_path, mistake.problem, test_broken.source_of(mistake), names=cases)
    found = {result.outcome for result in results if result.case in cases}
    assert found <= {Outcome.PASSED, WRONG}, found  # wrong where luck ends: one case is asked again with other values


@pytest.mark.parametrize("problem", ["p1", "p3"])
def test_an_output_that_is_the_same_for_other_inputs_and_right_is_no_cheat(problem, tmp_path):
    for _ in range(3):  # one of the two cases is drawn
        names = ["bfloat16 with a large offset", "one token"]
        results = grade_text(tmp_path, problem, solution(problem), names=names)
        assert {result.outcome for result in results if result.case in names} == {Outcome.PASSED}


def test_state_that_lives_on_is_a_mistake_and_no_cheat(tmp_path):
    real = solution("p3").replace("def flash_attention_forward(", "def real_forward(")
    adds = """
BEFORE = {}


def flash_attention_forward(q, k, v, is_causal=False):
    o = real_forward(q, k, v)
    if q.shape in BEFORE:
        o = o + BEFORE[q.shape]
    BEFORE[q.shape] = o.clone()
    return o
"""
    results = grade_text(tmp_path, "p3", real + adds, names=["whole tiles", "ragged tail"])
    wrong = [result for result in results if result.outcome is WRONG]
    assert wrong and "does something live on from one call to the next" in wrong[0].sentence
    assert not score.held(results)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "outcome"),
    [("p3_sdpa", HELD), ("p3_decoy_kernel", HELD), ("p3_overwritten_by_torch", HELD), ("p3_cached_by_shape", HELD),
     ("p3_side_stream", HELD), ("p3_patched_clocks", HELD), ("", Outcome.PASSED)],
)  # fmt: skip
def test_on_a_gpu(name, outcome, tmp_path):
    (tmp_path / "p3_flash_attention.py").write_text(source_of(name) if name else solution("p3"))
    names = frozenset(["whole tiles", "ragged tail", "head dim 128", "many tiles"])
    results = grade(Request(tmp_path, (EVERY["p3"],), names, "cuda", 0), lanes=1)
    assert terminal.verdict(results)[0] is outcome, [result.sentence for result in results]


def test_launches_are_counted_left_out_and_what_they_store_is_told(child):
    """The watch on a GPU's launches, with a stand-in for the launch itself."""
    import launches
    import provenance
    import torch

    q, o = torch.zeros(4), torch.empty(4)
    ledger = provenance.Ledger((q, torch.zeros(4), torch.zeros(4)), __file__)
    watch = launches.Launches(ledger, suppressed=True)
    assert watch.around(lambda *_, **__: 1 / 0)(None, q, o, grid=(1,)) is None and watch.launches == 1
    watch = launches.Launches(ledger)
    with pytest.raises(ZeroDivisionError):
        watch.around(lambda *_, **__: 1 / 0)(len, q, o, grid=(1,))
    assert ledger.raised == [["len", "ZeroDivisionError"]] and watch.launches == 1
    before = launches.raw(o.untyped_storage()).clone()
    o.fill_(3.0)
    ledger.end_launch([launches.stored(o, before)])
    assert ledger.label_of(o) == {"kernel"}
