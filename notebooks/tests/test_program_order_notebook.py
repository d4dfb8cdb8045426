"""Notebook 06: what its words say of the model, of a cache of three tiles, of schedules and of the measurement."""

from dataclasses import replace
from itertools import pairwise

import pytest

from grader.gpu.peaks import peak
from notebooks.pictures import measured_orders, program_order
from notebooks.pictures.program_order import Launch
from report.counting.cache_model import MI300X, Machine, simulate
from report.counting.orders import head_first, identity, listed, longest_first, published


@pytest.fixture(scope="module")
def rows():
    return measured_orders.measured()[0]


def speed(order, **sizes):
    """How many times as fast as the plain order, in the model."""
    return Launch("", identity, **sizes).figures[1] / Launch("", order, **sizes).figures[1]


def test_more_hits_and_slower_and_the_ways_out_that_the_exercise_names():
    plain, blocks, whole = (Launch("", order).figures for order in (identity, published, head_first))
    assert plain[0] < blocks[0] < whole[0] and whole[1] < plain[1] < blocks[1]
    assert speed(published, tiles=16) > 1
    assert speed(published, machine=replace(MI300X, miss=30)) > 1


def test_the_plain_order_gains_nothing_from_larger_caches():
    endless = replace(MI300X, capacity=10**6)
    assert Launch("", identity, machine=endless).figures[0] - Launch("", identity).figures[0] < 0.05


def test_the_small_cache_fewer_hits_and_sooner():
    tiny = Machine(dies=1, slots=2, capacity=3, hit=1, miss=2, jitter=0)
    plain, reverse = (simulate(listed(order, 4, 2), machine=tiny) for order in (identity, longest_first))
    assert sum(plain.hits) == sum(plain.visits) - 8 > sum(reverse.hits)  # each of eight tiles is loaded once
    assert plain.makespan > reverse.makespan


def test_schedules_hold_every_program_once_and_nothing_overlaps():
    machine = Machine(dies=1, slots=6, capacity=10**6, miss=1, jitter=0)
    ends = []
    for order, told in ((identity, None), (longest_first, None), (head_first, 4)):
        ran = program_order.programs(Launch("", order, 7, 3, machine, told))
        assert sorted(tile for _, tile, _, _ in ran) == sorted([*range(7)] * 3)
        assert all(end - start == tile + 1 for _, tile, start, end in ran)
        for slot in range(6):
            times = sorted((start, end) for at, _, start, end in ran if at == slot)
            assert all(before[1] <= after[0] for before, after in pairwise(times))
        ends.append(max(end for *_, end in ran))
    assert ends[0] > ends[1] > ends[2] == 3 * 28 / 6  # the last: no slot is idle before the end


def test_a_gpu_keeps_its_size_however_it_is_cut():
    assert program_order.divided(8) == MI300X
    for dies in (1, 2, 4):
        machine = program_order.divided(dies)
        assert machine.slots * dies == MI300X.slots * 8 and machine.capacity * dies == MI300X.capacity * 8


def test_sizes_that_an_order_does_not_fit_are_told(capsys):
    program_order.chosen("published", tiles=128)
    assert "never computed" in capsys.readouterr().out


def test_what_was_measured_and_what_the_words_say_of_it(rows):
    cells = measured_orders.at(rows, "B=1 H=16 D=128", 8192)
    assert len(cells) == 6
    assert min(cells, key=lambda name: cells[name].read_hits) == "all heads"
    assert min(cells, key=lambda name: cells[name].median_us) == "all heads"
    assert cells["all heads"].p80_us < cells["plain"].p20_us
    for row in rows:
        assert row.dram_reads * 2**20 / row.median_us / 1e6 < 0.25 * peak("NVIDIA H200").terabytes
    assert all(row.over_plain > 1 for row in rows if row.kernel == "all heads")
    own = [row.over_plain for row in rows if row.kernel == "published" and "/" not in row.shape]
    assert min(own) > max(row.over_plain for row in rows if row.kernel == "published" and "/" in row.shape) > 1


@pytest.mark.thorough
def test_a_schedule_alone_explains_all_orders_but_the_published_one(rows):
    free, dear = (measured_orders.predictions(rows, each) for each in (measured_orders.H200_FREE, measured_orders.H200))
    assert len(free) == len(dear) == len([row for row in rows if row.kernel != "plain"])
    off = {row.key: abs(model / row.over_plain - 1) for row, model in free}
    assert max(far for key, far in off.items() if key[2] != "published") < 0.025
    assert max(far for key, far in off.items() if key[2] == "published") > 0.05
    assert sum(model < 1 for row, model in dear if row.kernel == "all heads") == 2
    assert all(model < 1 for row, model in free if row.kernel == "published")


def test_two_names_of_one_order(rows):
    assert measured_orders.heads_of("B=2 H=32/4 D=128") == (64, 8)
    assert listed(head_first, 64, 16, 1) == listed(longest_first, 64, 16)
    cells = measured_orders.at(rows, "B=1 H=16 D=128", 8192)
    noise = cells["grouped heads"].over_plain / cells["reversed"].over_plain - 1
    assert 0.01 < noise < (cells["all heads"].over_plain - 1) / 5


def test_with_few_tiles_balance_costs_nothing_and_hits_decide():
    free = replace(MI300X, miss=1.0)
    assert speed(published, tiles=16, machine=free) == pytest.approx(1, abs=0.01)
    assert speed(published, tiles=64, machine=free) < 0.8
