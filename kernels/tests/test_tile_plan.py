"""Which tiles the fast form works with, and in which order."""

from collections import Counter
from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton.experimental.gluon.nvidia.hopper")

from kernels import tile_plan
from kernels.tests.gluon_on_cpu import kernels


def find(N, D, heads=64, is_causal=True, window=None, group=1, multiprocessors=132, form=None):
    q = torch.empty(1, heads, N, D, dtype=torch.float16, device="meta")
    return tile_plan.find_plan(q, group, 64, heads, is_causal, window, 0, multiprocessors, form)


def test_forms_by_length():
    forms, known, short = tile_plan.forms, tile_plan.FORMS, tile_plan.SHORT
    assert forms(16384, 64, True, None, 0) is forms(16, 64, True, None, 0) is known[64]
    assert set(forms(1024, 128, True, None, 0)) == {short[128]} and forms(1024, 128, False, None, 0) is known[128]
    assert forms(1024, 16, False, None, 0) is forms(1024, 64, False, None, 0)
    for window, sinks, form in ((256, 0, short), (257, 0, tile_plan.WINDOWS), (128, 4096, tile_plan.WINDOWS)):
        assert set(forms(8192, 128, True, window, sinks)) == {form[128]}
    assert find(2048, 128, window=4096) == find(2048, 128)  # the window hides nothing
    assert find(2048, 128, form=short[128]).form == short[128] != find(2048, 128).form


@pytest.mark.parametrize(
    ("heads", "N", "D", "is_causal", "form"),
    [
        (1, 512, 64, False, (128, 1, 2, 2)), (8, 2048, 64, False, (128, 1, 2, 2)),
        (2, 8192, 64, False, (128, 1, 2, 2)), (12, 2048, 64, True, (128, 1, 2, 2)),
        (2, 16384, 64, True, (128, 1, 2, 2)), (96, 512, 64, True, (64, 1, 2, 3)),
        (96, 1024, 64, True, (64, 1, 2, 3)), (12, 2048, 64, False, (64, 3, 3, 1)),
        (12, 4096, 64, True, (64, 3, 3, 1)), (96, 1024, 64, False, (64, 4, 3, 1)),
        (96, 4096, 64, True, (64, 4, 3, 1)), (32, 16384, 64, True, (64, 4, 3, 1)),
        (4, 1024, 128, False, (64, 1, 2, 2)), (1, 8192, 128, True, (64, 1, 2, 2)),
        (4, 4096, 128, False, (128, 2, 2, 1)), (16, 4096, 128, True, (128, 2, 2, 1)),
        (12, 4096, 128, True, (64, 3, 3, 1)), (48, 8192, 128, True, (64, 3, 3, 1)),
        (32, 16384, 128, True, (64, 3, 3, 1)), (12, 2048, 128, True, (128, 2, 2, 1)),
        (5, 8192, 128, True, (64, 3, 3, 1)), (12, 1024, 128, False, (64, 1, 2, 2)),
        (8, 4096, 256, True, (64, 2, 2, 1)),
    ],
)  # fmt: skip
def test_the_form_is_the_one_that_was_fastest_on_an_h200(heads, N, D, is_causal, form):
    """Programs of one consumer where heads are few or rows short, else many consumers where tiles are enough."""
    assert find(N, D, heads, is_causal).form == form


def test_the_costs_are_those_of_an_order_written_out():
    """Three tiles of 192, 128 and 64 keys in each of three heads, two heads at a time; two programs."""
    lengths = tile_plan.lengths_of_tiles(N=150, tokens=64, BLOCK_K=64, is_causal=True, window_size=None, sinks=0)
    assert lengths.tolist() == [192, 128, 64]
    costs = tile_plan.costs_in_order(lengths, heads=3, heads_at_once=2) / 64
    assert costs.tolist() == [3, 3, 2, 2, 1, 1, 3, 2, 1]
    assert tile_plan.cost_in_turns(costs, 2, False) == 3 + 2 + 1 + 3 + 1
    assert tile_plan.cost_in_turns(costs, 2, True) == 3 + 2 + 1 + 2 + 1
    assert tile_plan.cost_by_programs(torch.tensor([3.0, 1.0, 2.0]), 2) == 1 + 2
    (one_way, *_) = tile_plan.plans((64, 1, 2, 2), lengths, 10, 3, 2, 1, bytes_of_head=2 * tile_plan.IN_L2)
    assert one_way.cost == pytest.approx((1 + tile_plan.PAST_L2) * 64 * (3 + 1 + 2 + 3 + 1) + 5 * 10)


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize(
    ("is_causal", "window", "sinks", "at_once"),
    [(True, None, 0, 4), (True, None, 0, 6), (False, None, 0, 1), (True, 128, 100, 1)],  # 4: two of six are left
)
def test_the_kernel_numbers_its_tiles_like_that(is_causal, window, sinks, at_once, back, monkeypatch):
    """Every tile once, in the order that the plan counts on, as many keys as it says, and no program does more."""
    fast, seen = kernels.import_on_cpu()["fast_attention"], []
    produce, plans, work = fast.produce.function, tile_plan.plans, Counter()

    def note(program):
        for turn in range(program.turns()):
            tile = fast.find_tile(program, program.number(turn))
            place = int(tile.batch), int(tile.head), int(tile.q_start)
            seen.append((int(program.number(turn)), int(tile.count), place))
            work[int(fast.gl.program_id(0))] += 64 * int(tile.count)
        return produce(program)

    monkeypatch.setattr(fast.produce, "function", note)
    monkeypatch.setattr(tile_plan, "forms", lambda *_: {(64, 3, 3, 1): (1, 0)})
    order = {"there_and_back": back, "heads_at_once": at_once, "programs": 5}
    monkeypatch.setattr(tile_plan, "plans", lambda *given: [replace(plan, **order) for plan in plans(*given)])
    q = torch.randn(2, 3, 700, 64).half()
    kernels.run(fast.flash_attention_forward, q, q, q, is_causal, window, sinks, multiprocessors=5)
    lengths = tile_plan.lengths_of_tiles(700, 192, 64, is_causal, window, sinks)
    (launch,) = fast.LAUNCHES.kept.values()
    costs = tile_plan.costs_in_order(lengths, 6, launch.others[5])
    numbers, counts, places = zip(*sorted(seen), strict=True)
    assert numbers == tuple(range(len(costs))) and len(set(places)) == len(costs) == 24
    rest = [planned - 64 * count for planned, count in zip(costs.tolist(), counts, strict=True)]
    assert set(rest) <= ({0} if window is None else {0, 64})  # at the end of a row a window may need a tile less
    planned = tile_plan.cost_in_turns(costs, 5, back)
    assert max(work.values()) == planned if window is None else max(work.values()) <= planned


def test_programs_end_at_about_the_same_time():
    """Within a sixteenth of the mean, which one direction alone does not reach."""
    for N, D, heads in ((4096, 128, 64), (2048, 128, 64), (4096, 64, 96)):
        plan = find(N, D, heads)
        (_, consumers, _, at_a_time), BLOCK_K = plan.form, plan.form[0]
        lengths = tile_plan.lengths_of_tiles(N, 64 * consumers, BLOCK_K, True, None, 0)
        programs = 132 * at_a_time
        mean = (lengths.sum().item() + tile_plan.EACH[D] * len(lengths)) * heads / programs
        one_way = tile_plan.costs_in_order(lengths, heads, plan.heads_at_once) + tile_plan.EACH[D]
        assert plan.cost < 1.0625 * mean < tile_plan.cost_in_turns(one_way, programs, False)
        assert plan.query_tiles == len(lengths)


def test_the_last_head_is_not_left_over():
    """Few heads are numbered together, so no long tile begins when the others end; of many, not all: L2 would lose."""
    for heads in (5, 11, 12, 13, 16):
        assert find(8192, 128, heads).heads_at_once == heads
    assert find(16384, 128, heads=64).heads_at_once < 16
    assert find(1024, 128, heads=12).heads_at_once == 12  # all begin at once, the longest alone where they can be


def test_at_head_dim_256_a_program_a_tile_costs_no_more_than_turns():
    """There o leaves through q's buffer, so a program that goes on waits for Q as one that begins does."""
    assert tile_plan.EACH[256] == tile_plan.EACH_WITH_A_PROGRAM > tile_plan.EACH[128]
    for N, heads in ((4096, 48), (2048, 48), (8192, 8)):
        plan = find(N, 256, heads)
        assert plan.programs == plan.query_tiles * heads > 132


def test_very_many_tiles_are_planned_fast_and_whatever_the_defaults_of_torch_are(monkeypatch):
    monkeypatch.setattr(tile_plan, "cost_by_programs", None)  # what would take long
    looked_at, cost_in_turns = [], tile_plan.cost_in_turns
    monkeypatch.setattr(tile_plan, "cost_in_turns", lambda *given: looked_at.append(given) or cost_in_turns(*given))
    assert find(512, 64, heads=1 << 16).programs == 3 * 132
    assert len(looked_at) == len(tile_plan.FORMS[64])  # one order of each form
    monkeypatch.undo()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("meta"):
            assert find(2048, 128).there_and_back
    finally:
        torch.set_default_dtype(torch.float32)


def test_where_all_rows_are_alike_one_head_follows_another():
    plan = find(16384, 128, 64, is_causal=False)
    assert (plan.programs, plan.heads_at_once, plan.there_and_back) == (132, 1, False)
    assert find(640, 128, heads=2, is_causal=False).programs == 2 * 10  # no more than there are tiles


def test_the_form_leaves_no_multiprocessor_idle():
    """12 heads of 2048 tokens: 132 tiles of 192 queries are one each, 192 of 128 queries are two for some."""
    assert find(2048, 128, heads=12, is_causal=False).form[1] == 3
    assert find(1024, 128, heads=64, is_causal=False).form[1] == 2
