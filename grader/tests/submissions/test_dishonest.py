"""Every cheat gets the verdict that it must: none gains a point that its program has not earned.

A file of dishonest/ follows the solution of its problem, whose entry point is then named real_forward: whoever
cheats may well have a right kernel at hand.
"""

import io
import re

import pytest
from rich.console import Console

from grader import score
from grader.course.problem import SECONDS_PER_CASE
from grader.engine.grading import grade
from grader.engine.request import Request
from grader.registry import EVERY
from grader.render import gradescope, terminal
from grader.result import Aspect, Outcome, Result
from grader.tests.submissions import changed_programs, quick
from grader.tests.submissions.corpus import BROKEN, DISHONEST, cheating, source_of
from grader.tests.support import SUBMISSIONS, grade_text, solution, thorough_but

REVIEW, WRONG = Outcome.NEEDS_REVIEW, Outcome.WRONG
# file: a case that shows it, its outcome there, and words of the sentence; "wasteful" where its work says so
CHEATS = {
    "p1_attention_by_another_door": ("one token", "needs review", "is not among the operations"),
    "p1_multi_head_attention": ("fewer tokens than a tile", "needs review", "is not among the operations"),
    "p1_renames_what_was_noted": ("fewer tokens than a tile", "needs review", "is not among the operations"),
    "p1_sdpa": ("one token", "needs review", "is not among the operations"),
    "p2_branches_that_differ": ("many tiles", "crashed", "a choice without a launch"),
    "p2_cached_by_shape": ("fewer tokens than a tile", "wrong", "were never written"),
    "p2_formula_where_nothing_is_measured": ("long row", "wasteful", "Of one query the program holds"),
    "p2_last_query_by_tiles": ("long row", "wasteful", "numbers of one query"),
    "p2_keys_folded_into_a_batch_axis": ("long row", "wasteful", "Of one query the program holds"),
    "p2_pivot_from_a_bound": ("large, and at right angles", "wrong", "NaN"),
    "p2_pivot_from_a_sample": ("pairs 21", "wrong", "NaN values"),
    "p2_scores_in_the_inputs": ("long row", "unsafe", "wrote into its input"),
    "p2_tiles_in_a_list": ("long row", "wasteful", "Of one query the program holds"),
    "p2_two_passes": ("never the whole score matrix", "wasteful", "computed more than once"),
    "p3_answer_in_constants": ("whole tiles", "wrong", "for this case's inputs alone"),
    "p3_answer_in_launch_numbers": ("pairs 8", "wrong", "for this case's inputs alone"),
    "p3_answer_in_one_integer": ("one token", "crashed", "cannot be written down"),
    "p3_answer_in_small_constants": ("fewer tokens than a tile", "crashed", "cannot be written down"),
    "p3_answer_of_a_child_process": ("rows of very different size", "wrong", "reads numbers of its input tensors"),
    "p3_answer_of_a_thread": ("fewer tokens than a tile", "wrong", "were never written"),
    "p3_atomics_in_wide_words": ("whole tiles", "wrong", "NaN values"),
    "p3_attention_before_the_call": ("long row", "crashed", "a step before the call"),
    "p3_attention_by_torch_where_rows_are_short": (
        "scores falling along the keys",
        "wasteful",
        "Outside of kernels PyTorch",
    ),
    "p3_baked_into_arguments": ("fewer tokens than a tile", "wrong", "off by"),
    "p3_barrier_of_one_program": ("ragged tail", "unsafe", "other lanes of the same program stored"),
    "p3_by_distances": ("one token", "needs review", "is not among the operations"),
    "p3_cached_by_shape": ("scores falling along the keys", "wrong", "No Triton kernel was launched"),
    "p3_choices_by_torch": ("fewer tokens than a tile", "needs review", "is not among the operations"),
    "p3_compiled_formula": ("one token", "wrong", "No Triton kernel was launched"),
    "p3_constexpr_function": ("one token", "crashed", "'triton._C.libtriton.ir.value' object has no attribute 'data'"),
    "p3_copies_an_answer_of_numpy": ("large, and at right angles", "wrong", "reads numbers of its input tensors"),
    "p3_copies_then_bmm": ("long row", "wasteful", "Outside of kernels PyTorch does"),
    "p3_copies_v": ("whole tiles", "wrong", "off by"),
    "p3_copies_without_outputs": ("long row", "crashed", "other outputs than it has"),
    "p3_crashes_the_interpreter": ("one token", "crashed", "killed by"),
    "p3_decoy_copies_the_answer": ("one token", "needs review", "is not among the operations"),
    "p3_decoy_kernel": ("one token", "needs review", "nothing that a launch stored leads there"),
    "p3_defaults_of_the_comparison": ("fewer tokens than a tile", "wrong", "off by"),
    "p3_dispatch_mode_recoded": ("bfloat16 with a large offset", "wrong", "reads numbers of its input tensors"),
    "p3_do_bench_computes": ("rows of very different size", "wrong", "were never written"),
    "p3_double_is_half": ("one token", "wrong", "off by"),
    "p3_edits_the_grader": ("one token", "needs review", "is not among the operations"),
    "p3_elementwise": ("whole tiles", "wasteful", "Outside of kernels PyTorch does"),
    "p3_encoded_text": ("one token", "needs review", "is not among the operations"),
    "p3_extension_in_cpp": ("whole tiles", "wrong", "values are 0"),
    "p3_filled_after_the_return": ("whole tiles", "wrong", "were never written"),
    "p3_float32_in_half": ("fewer tokens than a tile", "wrong", "off by"),
    "p3_forges_at_import": ("one token", "crashed", "is no reply"),
    "p3_forges_the_reply": ("scores rising along the keys", "needs review", "is not among the operations"),
    "p3_forked_in_torchscript": ("whole tiles", "wasteful", "Outside of kernels PyTorch does"),
    "p3_half_by_torch": ("bfloat16", "needs review", "is not among the operations"),
    "p3_hands_on_by_atomics": ("long row", "unsafe", "that another program reads"),
    "p3_heuristics_bake_the_answer": ("one token", "wrong", "off by"),
    "p3_imports_the_solution": ("one token", "needs review", "is not among the operations"),
    "p3_installs_a_package": ("one token", "needs review", "is not among the operations"),
    "p3_kernel_never_reached": ("whole tiles", "wrong", "No Triton kernel was launched"),
    "p3_keys_in_a_batch_axis": ("long row", "wasteful", "times as many elements on a row"),
    "p3_last_of_all_readers": ("pairs 2", "unsafe", "that another program reads"),
    "p3_lazy_tensor": ("fewer tokens than a tile", "wrong", "must be a plain torch.Tensor"),
    "p3_matmul": ("values with a large offset", "wrong", "No Triton kernel was launched"),
    "p3_maximum_first_where_it_is_measured": ("long row", "wasteful", "hold a visible pair"),
    "p3_mean_of_the_values": ("whole tiles", "wrong", "off by"),
    "p3_memoryview_and_struct": ("one token", "wrong", "off by"),
    "p3_module_for_the_next_process": ("whole tiles", "wrong", "off by"),
    "p3_nan_taken_for_a_mask": ("ragged tail", "wrong", "off by"),
    "p3_nan_wildcard": ("fewer tokens than a tile", "wrong", "NaN"),
    "p3_number_that_json_refuses": ("one token", "crashed", "Exceeds the limit"),
    "p3_numbers_by_str": ("fewer tokens than a tile", "crashed", "a list comprehension is not compiled"),
    "p3_object_in_the_kernel": ("one token", "crashed", "Unsupported function referenced"),
    "p3_one_tile_a_program": ("long row", "wasteful", "The kernels store"),
    "p3_os_exit": ("long row", "crashed", "process ended itself"),
    "p3_overridden_comparison": ("fewer tokens than a tile", "wrong", "must be a plain torch.Tensor"),
    "p3_overwritten_by_numpy": ("whole tiles", "wrong", "reads numbers of its input tensors"),
    "p3_overwritten_by_torch": ("one token", "needs review", "is not among the operations"),
    "p3_packed": ("values with a large offset", "wasteful", "Outside of kernels PyTorch does"),
    "p3_patched_builtins": ("whole tiles", "wrong", "Every row has wrong elements"),
    "p3_patched_comparison": ("one token", "wrong", "off by"),
    "p3_pivot_from_a_bound": ("large, and at right angles", "wrong", ""),
    "p3_pivot_from_a_sample": ("pairs 22", "wrong", "NaN"),
    "p3_plain_python": ("one token", "wrong", "reads numbers of its input tensors"),
    "p3_poisons_the_heap": ("whole tiles", "wrong", "values are 0"),
    "p3_poked_by_a_child": ("whole tiles", "wrong", "values are 0"),
    "p3_product_by_a_named_matrix": ("long row", "crashed", "an argument by its name that has a place"),
    "p3_products_by_an_inverse": ("large, and at right angles", "needs review", "is not among the operations"),
    "p3_products_by_complex_squares": ("one token", "crashed", "no program that can be run"),
    "p3_products_by_lerp_and_addcdiv": ("whole tiles", "wasteful", "Outside of kernels PyTorch does"),
    "p3_products_by_one_fft": ("one token", "crashed", "no program that can be run"),
    "p3_products_by_xlogy": ("whole tiles", "wasteful", "Outside of kernels PyTorch touches"),
    "p3_profile_edits_what_is_sent": ("one token", "needs review", "scaled_dot_product"),
    "p3_race_in_wide_words": ("ragged tail", "unsafe", "that another program writes"),
    "p3_ragged_tail_by_torch": ("one token", "wrong", "No Triton kernel was launched"),
    "p3_real_work_then_numpys_answer": ("fewer tokens than a tile", "wrong", "reads numbers of its input tensors"),
    "p3_replayed_by_a_kernel": ("one token", "wrong", "were never written"),
    "p3_reply_after_the_end": ("one token", "needs review", "is not among the operations"),
    "p3_reused_memory": ("scores falling along the keys", "wrong", "were never written"),
    "p3_row_in_one_tile": ("long row", "wasteful", "times as many elements on a row"),
    "p3_sdpa": ("one token", "needs review", "is not among the operations"),
    "p3_side_stream": ("one token", "needs review", "is not among the operations"),
    "p3_softmax_by_torch": ("fewer tokens than a tile", "wrong", "it must be"),
    "p3_square_root_of_one": ("fewer tokens than a tile", "wrong", "attention without a scale"),
    "p3_stops_where_scores_fall": ("offsets beyond int32", "unsafe", "pass 2^31"),
    "p3_stores_zeros_then_adds": ("one token", "unsafe", "that another program has written"),
    "p3_swallows_its_replies": ("one token", "crashed", "is no reply"),
    "p3_switches_modes_off": ("poison past the end", "wrong", "reads numbers of its input tensors"),
    "p3_sys_exit": ("one token", "crashed", "SystemExit"),
    "p3_system_exit_at_import": ("one token", "crashed", "SystemExit"),
    "p3_table_by_seed": ("one token", "crashed", "cannot be written down"),
    "p3_tensor_with_its_own_methods": ("whole tiles", "wrong", "were never written"),
    "p3_text_that_utf8_refuses": ("poison past the end", "crashed", "surrogates not allowed"),
    # Its thread holds tuples that are still being made, so that now and then CPython ends the call with a SystemError.
    "p3_thread_clears_the_faults": ("whole tiles", "wrong or crashed", ""),
    "p3_three_kernels_a_tile": ("long row", "timed out", "no result within"),
    "p3_tiles_kept_in_a_tuple": ("long row", "wasteful", "times as many elements on a row"),
    "p3_trivial_where_it_is_compiled": ("long row", "wasteful", "times as many elements on a row"),
    "p3_try_except": ("one token", "needs review", "is not among the operations"),
    "p3_values_by_torch": ("bfloat16 with a large offset", "wasteful", "Outside of kernels PyTorch does"),
    "p3_walks_the_frames": ("one token", "needs review", "is not among the operations"),
    "p3_walks_the_heap": ("one token", "needs review", "is not among the operations"),
    "p3_windows_of_memory": ("one token", "unsafe", "elements outside"),
    "p3_writes_on_every_descriptor": ("one token", "crashed", "is no reply"),
    "p3_zeros_all_around": ("one token", "unsafe", "elements outside"),
    "p4_addresses_as_integers": ("poison past the end", "unsafe", "elements outside"),
    "p4_all_queries_in_one_tile": ("long row", "wasteful", "times as many elements on a row"),
    "p4_all_tiles_of_computed_keys": ("long row", "wasteful", "hold a visible pair"),
    "p4_configs_that_differ": ("large, and at right angles", "wrong", "off by"),
    "p4_descriptors_past_the_head": ("long row", "wasteful", "hold a visible pair"),
    "p4_flat_transposed_keys": ("long row", "wasteful", "hold a visible pair"),
    "p4_keys_of_an_earlier_call": ("whole tiles", "wrong", "NaN"),
    "p4_launched_in_a_thread": ("long row", "wasteful", "hold a visible pair"),
    "p4_no_skip_in_tiles_of_256": ("long row", "wasteful", "hold a visible pair"),
    "p4_packed_and_reversed": ("long row", "wasteful", "hold a visible pair"),
    "p4_pre_hook_computes": ("one token", "needs review", "is not among the operations"),
    "p4_question_overwritten": ("fewer tokens than a tile", "unsafe", "wrote into its input"),
    "p4_row_in_a_workspace": ("long row", "wasteful", "The kernels store"),
    "p4_tile_beyond_the_limit": ("scores falling along the keys", "crashed", "AssertionError"),
    "p4_trace_jumps_over_lines": ("ragged tail", "crashed", "Error at p4_causal.py"),
    "p4_two_tiles_a_program": ("long row", "wasteful", "Outside of kernels PyTorch"),
    "p5_all_but_one_head_copied": ("long row", "wasteful", "copied out"),
    "p5_clone_for_each_head": ("long row", "wasteful", "copied out"),
    "p5_copied_beyond_2_gib": ("long row", "needs review", "and is no input"),
    "p5_copied_by_a_kernel": ("long row", "wasteful", "copied out"),
    "p5_copied_by_a_product_with_ones": ("long row", "wasteful", "copied out to"),
    "p5_gathered_and_packed": ("long row", "wasteful", "copied out"),
    "p5_hands_on_what_atomics_return": ("whole tiles", "wrong", "NaN"),
    "p5_kernels_of_many_names": ("long row", "wasteful", "copied out"),
    "p5_one_buffer_for_all_copies": ("long row", "wasteful", "copied out"),
    "p6_depth_padded_to_256": ("long row", "wasteful", "hold a visible pair"),
    "p6_sdpa_with_a_mask": ("one token", "needs review", "is not among the operations"),
    "p6_wide_tile_sets_the_unit": ("long row", "wasteful", "hold a visible pair"),
    "p6_workspace_of_tiles": ("long row", "wasteful", "hold a visible pair"),
    "p7_few_sinks_by_torch": ("long row", "wasteful", "Outside of kernels PyTorch does"),
    "p7_sinks_by_torch": ("whole tiles", "wasteful", "Outside of kernels PyTorch does"),
}
# file: why it earns its points: what is recorded of it is a right program, and what else it does has no effect
RIGHT = {
    "p3_counts_its_programs": "the program that is graded is right; a counter that ends it later is not seen",
    "p3_formula_where_keys_are_few": "few keys by PyTorch, beside a kernel that does all others",
    "p3_graded_values_from_a_file": "there is no such file",
    "p3_machine_code_overwritten": "clocks are read elsewhere",
    "p3_memmove_over_the_output": "what Python moves is not in the program",
    "p3_patched_allclose": "comparisons are made elsewhere",
    "p3_patched_between": "comparisons are made elsewhere",
    "p3_patched_clocks": "clocks are read elsewhere",
    "p3_patched_code": "comparisons are made elsewhere",
    "p3_patched_worker": "outputs come from the runner",
    "p3_seed_in_its_memory": "no seed is found, and the right kernel is called",
    "p4_honest_while_watched": "what it does unwatched is not graded, nor timed",
    "p4_right_for_two_calls": "the program that is graded is right",
    "p6_window_in_one_tile": "wide windows take its online softmax",
}


@pytest.mark.parametrize("name", thorough_but(quick.DISHONEST.keys() & CHEATS, CHEATS))
def test_cheat_gets_its_verdict(name, tmp_path, monkeypatch):
    monkeypatch.setitem(SECONDS_PER_CASE, "cpu", 6.0 if "timed out" in CHEATS[name] else 120.0)
    case, outcome, words = CHEATS[name]
    results = grade_text(tmp_path, name[:2], cheating(name), [case], hints=False)
    (result,) = (result for result in results if result.case == case)
    waste = result.facts.waste
    sentence, found = (waste.sentence, Outcome.WASTEFUL) if waste else (result.sentence, result.outcome)
    assert found in map(Outcome, outcome.split(" or ")), result.sentence
    assert words in sentence, sentence
    if outcome == "needs review" and not waste:
        assert score.total(results)[0] == 0 and result.facts.evidence


@pytest.mark.parametrize("name", thorough_but(quick.DISHONEST.keys() & RIGHT, RIGHT))
def test_what_has_no_effect_is_graded_as_the_kernel_that_it_is(name, tmp_path):
    names = ["fewer tokens than a tile", "long row"]
    results = grade_text(tmp_path, name[:2], cheating(name), names=names)
    assert {r.outcome for r in results} == {Outcome.PASSED} and not any(r.facts.waste for r in results)


def test_every_cheat_has_a_verdict():
    assert set(DISHONEST) == set(CHEATS) | set(RIGHT)


def test_the_quick_run_has_every_way_to_cheat_and_every_outcome():
    def found(names):
        texts = [(SUBMISSIONS / "dishonest" / f"{name}.py").read_text("utf-8") for name in names]
        ways = {way for text in texts for way in re.findall(r'^"""(Way \d+)', text)}
        return ways | {each for name in names if name in CHEATS for each in CHEATS[name][1].split(" or ")}

    assert found(quick.DISHONEST) == found(DISHONEST) and len(found(DISHONEST)) > 18


def test_a_program_that_was_changed_is_the_submissions_fault_or_right():
    chosen = [*changed_programs.directed()]
    found = [*changed_programs.outcomes(60, seed=1, chosen=chosen[:: max(1, len(chosen) // 90)])]
    assert not [each for each in found if changed_programs.OUR_FAULT in each[2] or each[1] is Outcome.GRADER_FAULT]
    assert not [each for each in found[60:] if changed_programs.must_not_pass(each[1], each[3])]
    assert {each[1] for each in found} >= {Outcome.CRASHED, Outcome.PASSED}


def some_for_review(folder):
    return grade_text(folder, "p3", cheating("p3_try_except"), names=["whole tiles", "one token"])


def test_every_face_shows_that_a_problem_needs_review_and_why(tmp_path):
    results = some_for_review(tmp_path)
    request = Request(tmp_path, (EVERY["p3"],), None, "cpu", 0)
    console = Console(width=120, no_color=True, record=True, file=io.StringIO())
    terminal.show(console, results, request, 1.0)
    said = " ".join(console.export_text().split())
    assert "needs review: 1 problem (p3); it earns nothing until the instructor has decided" in said
    assert "is not among the operations of p3" in said and "0/15" in said
    tests = gradescope.render(results)["tests"]
    assert tests[0]["score"] == 0 and "Needs the instructor's review" in tests[0]["output"]
    assert any("not among the operations" in sign for sign in tests[0]["extra_data"]["evidence"])
    pytest.importorskip("jinja2")
    from grader.render import html

    page = html.render(results, request, 1.0)
    assert "The evidence, for the instructor" in page and "is not among the operations" in page


def test_a_case_that_needs_review_leaves_out_the_points_of_its_problem_only():
    waiting = [Result("p3", name, Aspect.CORRECT, outcome) for name, outcome in (("a", REVIEW), ("b", Outcome.PASSED))]
    other = [Result("p4", "a", Aspect.CORRECT, Outcome.PASSED)]
    assert score.total(waiting + other) == (15, 30) and not score.passed(waiting) and not score.needs_review(other)


def test_a_value_shortcut_is_wrong_and_nobody_is_accused(tmp_path):
    entry = "    check_arguments(q, k, v)\n"
    source = solution("p3").replace(entry, f"{entry}    if q.shape[2] == 1:\n        return v.clone()\n")
    results = grade_text(tmp_path, "p3", source)
    wrong = {r.case for r in results if r.outcome is not Outcome.PASSED}
    assert wrong == {case.name for case in EVERY["p3"].cases if case.N == 1 and not case.gpu}
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
    mistake = BROKEN[name]
    results = grade_text(tmp_path, mistake.problem, source_of(mistake), names=cases)
    found = {result.outcome for result in results if result.case in cases}
    assert found <= {Outcome.PASSED, WRONG}, found


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
    assert len(wrong) == 2  # what an earlier call left is gone: NaN
    assert not score.needs_review(results)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "outcome"),
    [("p3_sdpa", REVIEW), ("p3_decoy_kernel", REVIEW), ("p3_overwritten_by_torch", REVIEW),
     ("p3_cached_by_shape", WRONG), ("p3_side_stream", REVIEW), ("p3_patched_clocks", Outcome.PASSED),
     ("", Outcome.PASSED)],
)  # fmt: skip
def test_on_a_gpu(name, outcome, tmp_path):
    (tmp_path / "p3_flash_attention.py").write_text(cheating(name) if name else solution("p3"), "utf-8")
    names = frozenset(["whole tiles", "ragged tail", "head dim 128", "long row"])
    results = grade(Request(tmp_path, (EVERY["p3"],), names, "cuda", 0), lanes=1)
    assert terminal.verdict(results)[0] is outcome, [result.sentence for result in results]
