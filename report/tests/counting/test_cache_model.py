"""The model of dies and their caches: counts that can be worked out by hand, and the story of the published order."""

from collections import OrderedDict
from dataclasses import replace

import pytest

from report.counting.cache_model import MI300X, Machine, simulate, visits
from report.counting.orders import head_first, identity, listed, published
from report.places import load

SIZES = (64, 16, 8, 1), (13, 10, 8, 2), (7, 3, 8, 1), (5, 12, 2, 4), (1, 1, 1, 1)
ALONE = Machine(dies=1, slots=1, capacity=4, hit=1.0, miss=3.0, jitter=0.0)


def test_one_program_misses_every_tile():
    run = simulate([(0, 3)], machine=ALONE)
    assert (run.visits, run.hits, run.end) == ((4,), (0,), (12.0,))


def test_the_next_program_finds_what_fits():
    fits = simulate([(0, 3), (0, 3)], machine=ALONE)
    assert fits.hits == (4,) and fits.makespan == 4 * 3 + 4 * 1
    swept = simulate([(0, 4), (0, 4)], machine=ALONE)  # five tiles in turn through a cache of four: each just gone
    assert swept.hits == (0,)


def test_heads_share_where_they_share_k_and_v():
    order = [(0, 1), (1, 1)]
    assert simulate(order, 1, ALONE).hits == (0,)
    assert simulate(order, 2, ALONE).hits == (2,)


def test_what_was_used_last_stays():
    """Tiles 0, then 0 1, then 0 1 2 of one head, then tile 0 of another: only the oldest goes."""
    machine = replace(ALONE, capacity=3)
    run = simulate([(0, 2), (0, 0), (1, 0), (0, 0)], machine=machine)
    assert run.hits == (2,)  # the short programs of head 0; head 1 drops tile 1, which is older than 0


def test_slots_run_side_by_side_and_programs_wait_for_one():
    machine = replace(ALONE, slots=2, hit=1.0, miss=1.0)
    run = simulate([(0, 3), (1, 0), (2, 0)], machine=machine)
    assert run.makespan == 4 and run.busy == (6.0,) and run.idle == 1 - 6 / 8


def test_programs_go_to_the_dies_in_turn():
    run = simulate([(0, 0), (1, 5), (2, 0), (3, 5)], machine=replace(ALONE, dies=2))
    assert run.visits == (2, 12)


def test_the_seed_decides():
    order = listed(identity, 32, 8)
    assert simulate(order, seed=1) == simulate(order, seed=1) != simulate(order, seed=2)
    still = replace(MI300X, jitter=0.0)
    assert simulate(order, 1, still, 1) == simulate(order, 1, still, 2)


@pytest.mark.parametrize("miss", [1.0, 1.6, 3.0])
@pytest.mark.parametrize("heads", [8, 32])
def test_more_hits_and_still_slower(heads, miss):
    """The published order against the plain one, and ours against both, whatever a miss costs."""
    machine = replace(MI300X, miss=miss)
    plain, piled, ours = (simulate(listed(o, 64, heads), 1, machine) for o in (identity, published, head_first))
    assert piled.hit_rate > plain.hit_rate + 0.05
    assert piled.makespan > 1.15 * plain.makespan
    assert ours.hit_rate > piled.hit_rate and ours.makespan < plain.makespan
    assert piled.visits[7] / (sum(piled.visits) / 8) == 60.5 / 32.5  # tiles 56 to 63 of each head on the last die
    assert len(set(ours.visits)) == 1


def test_visits_are_what_is_counted_and_show_the_cache():
    """Two programs side by side, a cache of two tiles: each visit in turn, and what is held after it."""
    machine, cache = replace(ALONE, slots=2, capacity=2), OrderedDict()
    seen = [(*visit, list(cache)) for visit in visits([(0, 1), (1, 0)], 1, machine, 0, cache)]
    assert seen == [
        (0, 0, 0, 0, 0.0, 3.0, False, [(0, 0)]),
        (1, 1, 1, 0, 0.0, 3.0, False, [(0, 0), (1, 0)]),
        (0, 0, 0, 1, 3.0, 3.0, False, [(1, 0), (0, 1)]),
    ]
    assert simulate([(0, 1), (1, 0)], 1, machine).busy == (9.0,)


@pytest.mark.parametrize("sizes", SIZES)
def test_head_first_is_the_order_of_the_lab_s_solution(sizes):
    assert listed(head_first, *sizes) == load("x2_program_order.py").program_order(*sizes)
