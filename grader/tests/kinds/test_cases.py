"""What the ladder's cases ask of every problem, so that no mistake of its kind finds a problem that never asks."""

import ast
import re

import pytest
import torch

from grader.kinds.attention import inputs, seeded_cases, work
from grader.kinds.attention.cases import SPEED_SHAPE
from grader.registry import EVERY, PROBLEMS

GRADED = {id: [case for case in problem.cases if not case.gpu] for id, problem in PROBLEMS.items()}
MASKED = ["p1", "p2", "p4", "p5", "p6", "p7"]
STEEP = 100  # exp of a difference of scores beyond this is 0 in float32


def scores(case):
    """Scores (B, Hq, N, Nk) of a case, and which of them its mask shows."""
    q, k, _ = (placed.tensor.double() for placed in inputs.make(case, 0))
    return q @ k.repeat_interleave(case.Hq // case.kv_heads, 1).mT * case.scale, case.visibility.mask(*case.positions)


@pytest.mark.parametrize("id", PROBLEMS)
def test_every_default_is_left_out_and_is_what_the_case_expects(id):
    defaults = {name: ast.literal_eval(value) for name, value in re.findall(r"(\w+)=(\w+)", PROBLEMS[id].signature)}
    names = {"is_causal": "causal", "window_size": "window", "sink_size": "sinks"}
    left_out = {name: case for case in GRADED[id] for name in case.left_out}
    assert left_out.keys() == defaults.keys()
    for name, case in left_out.items():
        assert getattr(case, names[name]) == defaults[name] and name not in case.arguments
    assert PROBLEMS[id].keywords == tuple(defaults)


@pytest.mark.parametrize("id", ["p1", "p2"])
def test_both_masks_are_asked_where_both_are_promised(id):
    assert {case.arguments.get("is_causal") for case in GRADED[id]} >= {True, False}


@pytest.mark.parametrize("id", ["p5", "p6", "p7"])
def test_groups_of_one_to_four(id):
    assert {case.Hq // case.kv_heads for case in GRADED[id]} >= {1, 2, 3, 4}


@pytest.mark.parametrize("id", MASKED)
def test_a_hidden_score_is_far_above_a_visible_row(id):
    """A finite number for a hidden score, or a maximum over hidden scores, must show."""
    found = []
    for case in (case for case in GRADED[id] if case.causal and case.values != "normal"):
        every, seen = scores(case)
        most = every.masked_fill(~seen, -torch.inf).amax(-1)
        found.append((bool((most < -STEEP).any()), bool((every.amax(-1) - most > STEEP).any())))
    assert any(low for low, _ in found) and any(above for _, above in found)


@pytest.mark.parametrize("id", PROBLEMS)
def test_a_mask_of_minus_10000_would_be_the_highest_score(id):
    (case,) = (case for case in GRADED[id] if case.name == "all scores below -10000")
    every, _ = scores(case)
    assert every.max() < -10_000 and (case.causal or case.num_keys % 64)


@pytest.mark.parametrize("id", PROBLEMS)
def test_scores_of_a_row_differ_by_more_than_exp_can_show(id):
    widest = 0.0
    for case in (case for case in GRADED[id] if case.values in ("falling", "rising", "uneven")):
        every, seen = scores(case)
        highest, lowest = (every.masked_fill(~seen, sign * torch.inf) for sign in (-1, 1))
        widest = max(widest, (highest.amax(-1) - lowest.amin(-1)).max().item())
    assert widest > STEEP


def test_a_window_and_sinks_together_that_fit_no_tile():
    sizes = {16, 32, 64, 128}
    assert any(case.window % n and case.sinks % n for case in GRADED["p7"] for n in sizes if case.sinks > n)
    assert any(all(case.window % n and case.sinks % n for n in sizes) for case in GRADED["p7"])


@pytest.mark.parametrize("id", ["p3", "p4", "p5", "p6", "p7"])
def test_some_cases_have_other_tiles_few_of_them_square(id):
    tiles = {case.tiles for case in GRADED[id] if case.tiles}
    assert len({pair for pair in tiles if pair[0] != pair[1]}) >= 3
    assert {BLOCK_Q < BLOCK_K for BLOCK_Q, BLOCK_K in tiles if BLOCK_Q != BLOCK_K} == {True, False}
    assert SPEED_SHAPE.tiles is None and not any(case.tiles for case in PROBLEMS[id].cases if case.gpu)


def test_costs_are_judged_on_a_long_row_of_tiles_and_groups_that_show_them():
    for id in ("p2", "p3", "p4", "p5", "p6", "p7", "x1", "x3"):
        long = EVERY[id].kind.long_case(EVERY[id].cases)
        assert (id == "p2" or long.N >= work.SETTLED) and long.layout == "contiguous"
        assert id < "p5" or (long.kv_heads > 1 and (id[0] == "x" or long.Hq == 8 * long.kv_heads))


@pytest.mark.parametrize("id", ["p3", "p7"])
def test_the_long_row_of_a_class_has_a_dtype_a_width_and_a_window_of_its_own(id):
    rows = [PROBLEMS[id].kind.long_case(seeded_cases.every(PROBLEMS[id], seed)) for seed in range(1, 20)]
    assert {row.dtype for row in rows} == {"float16", "bfloat16", "float32"} and {row.D for row in rows} == {
        32,
        64,
        128,
    }
    assert len({row.layout for row in rows}) > 3 and all(work.settled(row) for row in rows)
    assert id == "p3" or {row.window > 256 for row in rows} == {True, False}


def test_every_case_of_grouped_queries_has_two_kv_heads_or_says_otherwise():
    assert all(case.kv_heads > 1 or "one kv head" in case.name for case in GRADED["p5"])


@pytest.mark.parametrize("id", ["p4", "p5", "p6", "p7"])
def test_a_lesson_names_cases_that_every_device_asks(id):
    lesson = [case for case in GRADED[id] if case.name in PROBLEMS[id].lesson]
    assert len(lesson) == len(PROBLEMS[id].lesson) > 0 and all(case.fits_gpu for case in lesson)
