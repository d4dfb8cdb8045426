"""Work is cost: the ratios of costs to what a mask needs, where tiles differ in size, and what no decoy can hide."""

import dataclasses

import pytest
from msgspec import structs

from grader.core.protocol.reports import Costs, Dots, Multiplied
from grader.kinds.attention import work
from grader.kinds.attention.cases import Case
from grader.kinds.block_sparse.cases import SparseCase
from grader.kinds.block_sparse.patterns import Documents
from grader.result import Outcome
from grader.tests.support import grade_text, honest, solution, thorough

FULL = Case("full", N=1024, D=32)
CAUSAL = Case("causal", N=1024, D=32, causal=True)
WINDOW = Case("window", N=1024, D=32, causal=True, window=130)


def dots(tiles, rows, keys, D=32):
    """What the runner counts of so many tiles: a dot for the scores and one for the output."""
    count = tiles * rows * keys * D
    return [Dots(rows, keys, D, count), Dots(rows, D, keys, count)]


def costs(*tiles, **more):
    counted = Costs([dot for each in tiles for dot in dots(*each)], [], 0, 0, 0, {}, 1, 0)
    return structs.replace(counted, **more)


def products(case, *tiles, **more):
    return work.measure(case, costs(*tiles, **more)).products


@pytest.mark.parametrize("rows", [16, 64, 128, 256])
@pytest.mark.parametrize("keys", [16, 64, 256])
@pytest.mark.parametrize("case", [CAUSAL, WINDOW], ids=["causal", "window"])
def test_the_tiles_needed_are_one_and_all_tiles_are_too_many(case, rows, keys):
    needed = work.need(case, rows, keys) // (rows * keys)
    assert products(case, (needed, rows, keys)) <= 1.0
    every = (case.N // rows) * (case.N // keys)
    assert products(case, (every, rows, keys)) > work.PRODUCTS


def test_decoys_in_small_or_large_tiles_pay_for_nothing():
    every = (16 * 16, 64, 64)
    alone = products(CAUSAL, every)
    for decoy in ((4000, 16, 16), (4, 256, 256), (1, 512, 512)):
        assert products(CAUSAL, every, decoy) > alone > work.PRODUCTS


def test_a_second_pass_over_the_keys_is_too_much():
    scores_again = dots(16 * 16, 64, 64)[:1]
    once = costs((16 * 16, 64, 64))
    assert work.measure(FULL, once).products <= 1.0
    assert work.measure(FULL, structs.replace(once, dots=once.dots + scores_again)).products > work.PRODUCTS


def test_a_head_dim_that_is_padded_or_cut_makes_as_many_pairs():
    padded, halves = costs((16 * 16, 64, 64, 64)), costs((2 * 16 * 16, 64, 64, 16))
    assert work.measure(FULL, padded).products <= 1.0
    assert work.measure(FULL, costs((16 * 16, 128, 64, 64), (0, 1, 1))).tile == (128, 64)
    assert 0.8 < work.measure(FULL, halves).products <= 1.0


def test_products_of_blocks_without_a_dot_are_products():
    blocks = [Multiplied([64, 64, 32], 2 * 16 * 16 * 64 * 64 * 32)]
    assert 0.9 < products(FULL, multiplied=blocks) <= 1.0
    assert products(CAUSAL, multiplied=blocks) > work.PRODUCTS


def test_sums_of_logarithms_are_no_way_round():
    """Blocks with an axis for the head dim that nobody multiplies are still made."""
    found = work.measure(CAUSAL, costs((136, 64, 64), computed=136 * 64 * 64 * 20 + 120 * 64 * 64 * 32 * 3))
    assert work.computes_too_much(CAUSAL, found, {})
    assert not work.computes_too_much(CAUSAL, dataclasses.replace(found, computed=40.0), {})


def test_lists_say_exactly_which_tiles():
    case = SparseCase("documents", N=128, D=32, of=Documents((64, 64)), block=(32, 32))
    assert products(case, (8, 32, 32)) == 1.0 and products(case, (16, 32, 32)) == 2.0


@pytest.mark.parametrize(("different", "copied"), [(1.12, False), (1.6, True), (2.4, True)])
def test_copies_for_each_query_head_are_loaded_as_different_elements(different, copied):
    case = Case("groups", Hq=16, Hkv=2, N=1024, D=32, causal=True)
    found = work.measure(case, costs((136 * 16, 64, 64), different=int(different * 1.25 * 16 * 1024 * 32 * 2)))
    assert bool(work.copies_heads(case, found, {})) is copied


@pytest.mark.parametrize(
    ("held", "grows"),
    [
        ({}, ""),
        ({500: 100, 1000: 100}, ""),
        ({500: 100, 1000: 109}, ""),
        ({500: 100, 1000: 134, 2000: 190, 4000: 310}, "3.1 times as many"),
        ({500: 300, 1000: 500, 2000: 400, 4000: 700}, "2.3 times as many"),
        ({500: 100, 1000: 400, 2000: 400, 4000: 400}, ""),
    ],
)
def test_what_a_program_holds_may_not_grow_with_the_row(held, grows):
    said = work.grows(held)
    assert grows in said and bool(said) is bool(grows)


LONG = "long row"
IN_VAIN = ("k_end = tl.minimum(q_start + BLOCK_Q, N)", "k_end = tl.minimum(q_start + BLOCK_Q + BLOCK_K, N)")
MASKED_ALWAYS = (
    "keys, 0, masked_start, BLOCK_K, IS_CAUSAL, MASKED=False",
    "keys, 0, masked_start, BLOCK_K, IS_CAUSAL, MASKED=True",
)


@pytest.mark.parametrize(
    ("id", "change", "said"),
    [
        ("p4", IN_VAIN, "16 of the 194 tiles of keys that the kernels visit hold no key that their queries see"),
        ("p4", MASKED_ALWAYS, "a mask is put on every tile, also on the 112 whose keys are all visible"),
        ("p4", ("", ""), ""),
        thorough("p6", ("", ""), ""),
        thorough("p7", ("", ""), ""),
    ],
)
def test_what_costs_no_points_is_told_as_advice(id, change, said, tmp_path):
    assert change[0] in solution(id)
    results = grade_text(tmp_path, id, solution(id).replace(*change), names=[LONG, "work"])
    (long_row,) = (result for result in results if result.case == LONG)
    assert long_row.outcome is results[-1].outcome is Outcome.PASSED
    assert said in long_row.sentence and ("It costs no points" in long_row.sentence) is bool(said)


@pytest.mark.thorough
def test_parts_that_end_in_a_tile_of_their_own_are_no_waste_where_heads_are_narrow(tmp_path):
    """A class's row of D = 32, where what every kernel multiplies beside its products weighs most."""
    results = grade_text(tmp_path, "p3", honest("p3_merged_by_einsum"), names=[LONG, "work"], seed=4)
    assert [result.sentence for result in results if result.outcome is not Outcome.PASSED] == []
