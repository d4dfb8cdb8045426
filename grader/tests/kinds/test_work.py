"""Needless loads: one measure of what is needed for the sentence and for the page, fair to tiles of several sizes."""

import pytest

from grader.kinds.attention import picture, work
from grader.kinds.attention.cases import Case
from grader.result import Aspect, Outcome, Result
from grader.tests.kinds.test_picture import WINDOW, record
from grader.tests.support import grade_text, solution

SINKS = Case("sinks", Hq=2, Hkv=1, N=127, D=16, causal=True, window=16, sinks=4)
CAUSAL = Case("causal", N=256, D=16, causal=True)


def trace(*visits):
    """What a trace tells of these visits, each tile loaded when it was met."""
    loads = {}
    for visit in visits:
        rows = sum(last - first + 1 for first, last in visit["tiles"])
        loads[visit["program"]] = loads.get(visit["program"], 0) + rows
    rows = [{"kernel": "kernel", "program": program, "k": count, "v": count} for program, count in loads.items()]
    return {"visits": list(visits), "key_rows": rows}


def every_tile(q, times=1, **rest):
    return record(q, [[0, 31], [32, 63], [64, 95], [96, 127]] * times, **rest)


def test_a_shared_tile_of_queries_needs_its_keys_once_in_the_sentence_as_on_the_page():
    seen = trace(*(every_tile([32, 63], times=2, program=program) for program in (0, 1)))
    sentence, facts = work.needless_tiles(WINDOW, seen)
    assert sentence.startswith("kernel loads 16 tiles of keys where this mask needs 2 of 4: query rows 32-63 load 8")
    assert facts["tiles_needed"] == picture.draw(WINDOW, seen)["need"]["needed_tiles"] == 2


def test_each_program_is_allowed_the_keys_of_the_tile_that_it_shares():
    shared = [record([32, 63], [[0, 31], [32, 63], [64, 95], [96, 127]], program=program) for program in (0, 1)]
    assert work.needless_tiles(WINDOW, trace(*shared)) is None
    assert work.needless_tiles(WINDOW, trace(every_tile([32, 63]), every_tile([0, 31], 2)))[1]["tiles_allowed"] == 7


def test_small_tiles_on_the_diagonal_are_parts_of_a_large_one():
    visits = []
    for first in (0, 128):
        large = [[0, 127]] * (first > 0)
        small = [[at, at + 15] for at in range(first, first + 128, 16)]
        visits.append(record([first, first + 127], large + small))
    assert work.needless_tiles(CAUSAL, trace(*visits)) is None
    need = picture.draw(CAUSAL, trace(*visits))["need"]
    assert need["needed_tiles"] == 3 and need["visited_tiles"] == 4  # 3.9: the last small one ends the sequence


def test_a_small_tile_for_the_sinks_makes_the_window_s_no_larger():
    visits = []
    for first in range(0, 127, 16):
        q, oldest = [first, min(first + 15, 126)], max(0, first - 15) // 64 * 64
        window = [[at, min(at + 63, 126)] for at in range(oldest, q[1] + 1, 64)]
        visits.append(record(q, [[0, 3], *window]))
    assert work.needless_tiles(SINKS, trace(*visits)) is None
    twice = [visit | {"tiles": visit["tiles"] * 6} for visit in visits]
    assert "tiles of 64" in work.needless_tiles(SINKS, trace(*twice))[0]


def test_a_tile_cut_off_by_the_end_is_a_tile():
    case = Case("ragged", N=129, D=16, causal=True)
    visits = [record([at, min(at + 31, 128)], [[at, min(at + 31, 128)]] * 6) for at in range(0, 129, 32)]
    assert work.needless_tiles(case, trace(*visits))[1]["tiles_loaded"] == 5 * 6


def test_a_kernel_that_no_long_row_launches_is_named():
    cases = [Case("one token", N=1), Case("long row", N=1030)]
    results = [Result("p3", case.name, Aspect.CORRECT, Outcome.PASSED) for case in cases]
    for result, kernels in zip(results, (["short (line 7)"], ["long (line 9)"]), strict=True):
        result.facts["kernels"] = kernels
    work.name_short_kernels({case.name: case for case in cases}, results)
    assert results[1].facts["short_kernels"] == ["short (line 7)"] and "short (line 7)" in results[1].sentence
    results[0].facts["kernels"] = ["long (line 9)"]
    results[1].sentence, results[1].facts = "", {"kernels": ["long (line 9)"]}
    work.name_short_kernels({case.name: case for case in cases}, results)
    assert not results[1].sentence


LONG = "long row"
IN_VAIN = ("k_end = tl.minimum(q_start + BLOCK_Q, N)", "k_end = tl.minimum(q_start + BLOCK_Q + BLOCK_K, N)")
MASKED_ALWAYS = (
    "keys, 0, masked_start, BLOCK_K, IS_CAUSAL, MASKED=False",
    "keys, 0, masked_start, BLOCK_K, IS_CAUSAL, MASKED=True",
)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (IN_VAIN, "16 of the 321 tiles of keys that the kernels visit hold no key that their queries see"),
        (MASKED_ALWAYS, "a mask is put on every tile, also on the 272 whose keys are all visible"),
        (("", ""), ""),
    ],
)
def test_what_costs_no_points_is_told_as_advice(change, said, tmp_path):
    assert change[0] in solution("p4")
    results = grade_text(tmp_path, "p4", solution("p4").replace(*change), names=[LONG, "work"])
    (long_row,) = (result for result in results if result.case == LONG)
    assert long_row.outcome is results[-1].outcome is Outcome.PASSED
    assert said in long_row.sentence and ("It costs no points" in long_row.sentence) is bool(said)
