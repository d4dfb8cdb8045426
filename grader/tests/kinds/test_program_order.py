"""The lab on program order: its properties at every size, its bits, and wrong orders that each property catches."""

import importlib.util
import itertools
import os
import random
import re
import subprocess
import sys

import numpy as np
import pytest

from grader.course import gaps
from grader.kinds.attention.tile_visits import Visit
from grader.kinds.program_order import kind
from grader.kinds.program_order.check_order import check_order
from grader.registry import EVERY
from grader.result import Outcome
from grader.tests.support import SOLUTIONS

MODULE = SOLUTIONS / "x2_program_order.py"
MOST = 2000  # programs; up to here every size is tried


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


solution = load(MODULE)
head_first = solution.place


def identity(p, tiles, heads, dies=8, sharing=1):
    return p // tiles, p % tiles


def longest_first(p, tiles, heads, dies=8, sharing=1):
    return p // tiles, tiles - 1 - p % tiles


def published(p, tiles, heads, dies=8, sharing=1):
    """For 8 dies: a block of neighbouring tiles to each of them, which is no bijection for most numbers of tiles."""
    return p // tiles, p % tiles % 8 * (tiles // 8) + p % tiles // 8 % 8


def listed(order, *sizes):
    return [order(p, *sizes) for p in range(sizes[0] * sizes[1])]


class Diverged(Exception):
    """Lanes that do not take the same branch."""


class Lanes(np.ndarray):
    """Many programs as one number: an `if` that they do not answer alike raises Diverged with the answers."""

    def __bool__(self):
        answers = np.asarray(self)
        if answers.all() != answers.any():
            raise Diverged(answers)
        return bool(answers.all())


def all_places(order, programs, *sizes):
    """(programs, 2): order(program, *sizes) of each program, computed for all at once."""
    try:
        head, tile = order(programs.view(Lanes), *sizes)
        return np.stack([np.asarray(head), np.asarray(tile)], 1)
    except Diverged as diverged:
        (answers,) = diverged.args
        places = np.empty((len(programs), 2), int)
        for side in (answers, ~answers):
            places[side] = all_places(order, programs[side], *sizes)
        return places


def sentence(order, num_tiles, num_heads, num_dies=8, heads_per_kv=1):
    sizes = num_tiles, num_heads, num_dies, heads_per_kv
    return check_order(all_places(order, np.arange(num_tiles * num_heads), *sizes), *sizes)


@pytest.mark.thorough
def test_every_size_up_to_2000_programs():
    wrong = {
        (num_tiles, num_heads): said
        for num_tiles in range(1, MOST + 1)
        for num_heads in range(1, MOST // num_tiles + 1)
        if (said := sentence(solution.place, num_tiles, num_heads))
    }
    assert wrong == {}


def test_other_dies_and_shared_heads():
    for dies, sharing in itertools.product((1, 2, 3, 4, 5, 7, 16), (1, 2, 3, 8)):
        for num_tiles, kv_heads in itertools.product((1, 2, 3, 7, 8, 31, 64), (1, 2, 5, 6, 7, 8, 9, 17)):
            assert sentence(solution.place, num_tiles, kv_heads * sharing, dies, sharing) is None


def test_sampled_beyond():
    draw = random.Random(0)
    for _ in range(60):
        num_tiles, sharing, dies = draw.randint(1, 3000), draw.choice((1, 1, 2, 4, 7)), draw.choice((1, 2, 6, 8, 8, 8))
        num_heads = sharing * draw.randint(1, max(1, 200_000 // (num_tiles * sharing)))
        assert sentence(solution.place, num_tiles, num_heads, dies, sharing) is None, (num_tiles, num_heads)


def test_heads_that_divide_give_the_same_work_to_the_unit():
    order = np.array(solution.program_order(13, 24, 8, 3))
    work = np.bincount(np.arange(len(order)) % 8, weights=order[:, 1] + 1)
    assert set(work) == {3 * 13 * 14 / 2}


def test_a_spread_head_meets_as_few_dies_as_it_can():
    """Four kv heads on eight dies: two dies for each."""
    dies = {}
    for program, (head, _) in enumerate(solution.program_order(16, 8, 8, 2)):
        dies.setdefault(head // 2, set()).add(program % 8)
    assert [len(found) for found in dies.values()] == [2] * 4


def test_bad_sizes_are_said():
    with pytest.raises(ValueError, match="'num_dies': 0"):
        solution.program_order(4, 4, 0)
    with pytest.raises(ValueError, match="got 5 and 2"):
        solution.program_order(4, 5, 8, 2)


def test_the_published_pattern_is_a_bijection_for_few_sizes_only():
    sizes = [n for n in range(1, 257) if len({published(m, n, 1) for m in range(n)}) == n]
    assert sizes == [1, *range(8, 65, 8)]
    said = sentence(published, 128, 1)
    assert said.startswith("64 of 128 tiles are never computed") and "and 64 more than once" in said


# Plausible mistakes: what is returned in place of the right order, and words of the sentence that must say so.


def the_last_die_has_the_longest(p, tiles, heads, dies, sharing):
    """Each die a block of neighbouring tiles of every head."""
    head, m = p // tiles, p % tiles
    return head, m % dies * (tiles // dies) + m // dies


def shortest_first(p, tiles, heads, dies, sharing):
    head, tile = head_first(p, tiles, heads, dies, sharing)
    return head, tiles - 1 - tile


def blocks_of_programs(p, tiles, heads, dies, sharing):
    """Takes p // (programs a die) for the die: it is p % dies."""
    die, slot = p // (tiles * heads // dies), p % (tiles * heads // dies)
    return die * (heads // dies) + slot // tiles, tiles - 1 - slot % tiles


def whole_heads_only(p, tiles, heads, dies, sharing):
    """Forgets that heads may not divide: the last round has heads that are not there."""
    die, slot = p % dies, p // dies
    return slot // tiles * dies + die, tiles - 1 - slot % tiles


def query_heads(p, tiles, heads, dies, sharing):
    """Deals query heads where kv heads are meant."""
    return head_first(p, tiles, heads, dies, 1)


def all_spread(p, tiles, heads, dies, sharing):
    """Balanced and longest first, and no head stays on a die."""
    return p % heads, tiles - 1 - p // heads


def left_over_in_turn(p, tiles, heads, dies, sharing):
    """What is left over goes out head by head: at each turn the first die gets the longest row."""
    whole = heads // dies * dies * tiles
    head, tile = head_first(p, tiles, heads, dies, sharing)
    return (head, tile) if p < whole else (p // tiles, tiles - 1 - p % tiles)


def one_too_many(p, tiles, heads, dies, sharing):
    head, tile = head_first(p, tiles, heads, dies, sharing)
    return head, tile + 1


def rounded_up(p, tiles, heads, dies, sharing):
    """Tiles in rounds of num_dies: a ragged last round meets tiles again."""
    head, m = p // tiles, p % tiles
    return head, tiles - 1 - m // dies * dies % tiles


@pytest.mark.parametrize(
    ("order", "sizes", "words"),
    [
        (published, (128, 8, 8, 1), "512 of 1024 tiles are never computed"),
        (rounded_up, (12, 8, 8, 1), "are never computed"),
        (whole_heads_only, (16, 12, 8, 1), "there are 16 tiles and 12 heads"),
        (one_too_many, (16, 8, 8, 1), "computes tile 16 of head 0"),
        (identity, (64, 8, 8, 1), "0 of 8 kv heads have all their tiles on one die, where 8 can"),
        (longest_first, (64, 8, 8, 1), "kv head 0 are on 8 dies"),
        (blocks_of_programs, (16, 16, 8, 1), "0 of 16 kv heads"),
        (query_heads, (16, 16, 4, 2), "kv heads have all their tiles on one die"),
        (the_last_die_has_the_longest, (64, 16, 8, 1), "0 of 16 kv heads"),
        (the_last_die_has_the_longest, (64, 4, 8, 1), "die 7 has"),
        (left_over_in_turn, (64, 15, 8, 1), "what one tile of queries costs at most"),
        (shortest_first, (16, 8, 8, 1), "runs before its tile 1, which takes longer"),
        (all_spread, (16, 9, 8, 1), "0 of 9 kv heads"),
    ],
)
def test_wrong_orders_are_caught(order, sizes, words):
    assert words in (check_order(listed(order, *sizes), *sizes) or "")


def test_every_property_catches_an_order_that_keeps_the_others():
    """Each of the four properties is needed: without it one of these would pass."""
    caught = {}
    for order, sizes in ((one_too_many, (16, 8, 8, 1)), (all_spread, (16, 9, 8, 1)),
                         (left_over_in_turn, (64, 15, 8, 1)), (shortest_first, (16, 8, 8, 1))):  # fmt: skip
        caught[order.__name__] = re.sub(r"\d+", "", check_order(listed(order, *sizes), *sizes))
    assert len(set(caught.values())) == 4


@pytest.mark.parametrize("order", [[], [(0, 0)] * 3, [(0.0, 0.0)] * 4, None, [(0, 0), (1,)], [(0, 1, 2)] * 4])
def test_what_is_no_order_is_said(order):
    assert "two integers, head and tile, for each of 4 programs" in check_order(order, 2, 2)


def test_other_right_orders_pass():
    """Dealt from the last die, or with the heads of a die side by side: no property asks for ours."""
    from_the_last = [(7 - head % 8 + head // 8 * 8, tile) for head, tile in listed(head_first, 16, 16, 8, 1)]
    side_by_side = [(p // 8 % 2 * 8 + p % 8, 15 - p // 16) for p in range(256)]
    assert check_order(from_the_last, 16, 16) is None
    assert check_order(side_by_side, 16, 16) is None


BITS = """
import importlib.util, sys, torch

def load(path):
    spec = importlib.util.spec_from_file_location("lab", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

lab, plain = map(load, sys.argv[1:])
torch.manual_seed(0)
for B, Hq, Hkv, N, dies, causal in [(1, 1, 1, 5, 8, True), (2, 6, 2, 70, 8, True), (1, 5, 5, 100, 2, True),
                                    (2, 8, 8, 33, 8, True), (1, 3, 1, 97, 1, False), (1, 9, 9, 64, 4, True)]:
    q, k, v = (torch.randn(B, heads, N, 16) for heads in (Hq, Hkv, Hkv))
    got, expected = lab.flash_attention_forward(q, k, v, causal, dies), plain.flash_attention_forward(q, k, v, causal)
    assert got.isfinite().all() and torch.equal(got, expected), (B, Hq, Hkv, N, dies, causal)
print("the same bits")
"""


@pytest.mark.thorough
def test_the_kernel_gives_the_bits_of_the_plain_order():
    command = [sys.executable, "-c", BITS, str(MODULE), str(SOLUTIONS / "p5_gqa.py")]
    done = subprocess.run(command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert done.stdout == "the same bits\n", done.stderr[-2000:]


def test_the_lab_has_three_gaps():
    assert [gap.number for gap in gaps.find_gaps(MODULE.read_text("utf-8").splitlines(), MODULE.name)] == [1, 2, 3]


@pytest.mark.parametrize("orders", [[], [None], [[], [], []]])
def test_an_answer_of_too_few_or_too_many_orders_is_wrong(orders):
    told, sizes = kind.Ordered(None, found=kind.Orders(orders)), [(2, 1, 2, 1), (1, 1, 2, 1)]
    assert kind.FUNCTION.judge(EVERY["x2"], None, sizes, told, "cpu").outcome is Outcome.WRONG
    case = next(case for case in EVERY["x2"].cases if case.attends)
    assert "gives no list" in kind.misplaced(case, [Visit("k", 0, (0, 63), 0, 0, [], 0)], orders)
