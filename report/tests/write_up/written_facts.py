"""What rubric.md and template.md say in numbers, computed: each fact is the sentence as it must stand there."""

import math
import re
from dataclasses import replace
from itertools import accumulate

import torch

from grader.kinds.attention import inputs, seeded_cases
from grader.kinds.attention.cases import Case
from grader.kinds.attention.masks import Visibility
from grader.kinds.block_sparse import tile_map
from grader.registry import PROBLEMS
from grader.tests.support import solution
from report.counting import cost, traced
from report.pages import measured

SHOW_Q4 = (
    "scores falling along the keys",
    "window smaller than a tile",
    "window not a multiple of a tile",
    "window one less than whole tiles",
)
HIDE_Q4 = (
    "scores rising along the keys",
    "values with a large offset",
    "bfloat16 with a large offset",
)  # right all the same
FIGURE_OF_P7 = Case("figure", N=20, causal=True, window=4, sinks=5)  # tiles of 4 x 4


def case_of(problem, name):
    (case,) = (case for case in PROBLEMS[problem].cases if case.name == name)
    return case


def laptop_cases(problem):
    return [case for case in PROBLEMS[problem].cases if not case.gpu]


# Q1: the online update -----------------------------------------------------------------------------------------------


def one_more_tile():
    """Two tiles of two keys, carried by hand, then the softmax of all four."""

    def step(carried, tile):
        (row_max, row_sum, acc), (scores, values) = carried, tile
        new_max = max(row_max, *scores)
        alpha, p = math.exp(row_max - new_max), [math.exp(s - new_max) for s in scores]
        return new_max, row_sum * alpha + sum(p), acc * alpha + sum(w * x for w, x in zip(p, values, strict=True))

    tiles = [((1, 3), (1, 2)), ((2, 5), (3, 4))]
    _, (m, total, acc), (last_max, last_sum, last_acc) = accumulate(tiles, step, initial=(-math.inf, 0.0, 0.0))
    weights = torch.softmax(torch.tensor([1.0, 3, 2, 5], dtype=torch.float64), 0)
    o = float(weights @ torch.tensor([1.0, 2, 3, 4], dtype=torch.float64))
    assert math.isclose(o, last_acc / last_sum)
    yield (
        f"after the first tile {m}, {total:.4f}, {acc:.4f}; alpha = {math.exp(m - last_max):.4f}; "
        f"at the end {last_max}, {last_sum:.4f}, {last_acc:.4f}; output {o:.4f}"
    )
    yield f"a softmax of ln 2 = {math.log(2):.3f} times the scores"


# Q3, Q4, Q9: tiles and windows ---------------------------------------------------------------------------------------


def kinds(N, window, block_q, block_k):
    return tile_map.cut(Visibility(True, window), N, N, block_q, block_k).kinds != tile_map.EMPTY


def visited(case, block_q, block_k):
    """How many tiles of keys each program visits, by the bounds of the reference's phases."""
    starts = range(0, case.N, block_q)
    return [sum(map(len, cost.phases(case, start, block_q, block_k).values())) for start in starts]


def tiles_counted():
    case = case_of("p6", "window not a multiple of a tile")
    assert (case.N, case.window) == (300, 77)
    said, pairs = [], {}
    for block_q, block_k in ((32, 32), (64, 32), (32, 64)):
        rows = kinds(case.N, case.window, block_q, block_k).sum(1).tolist()
        assert rows == visited(case, block_q, block_k)
        said.append((f"{' '.join(map(str, rows))}", sum(rows)))
        pairs[block_q, block_k] = sum(rows) * block_q * block_k
        yield f"{said[-1][0]} = {said[-1][1]}" if block_q != 64 else f"says {said[-1][0]} = {said[-1][1]}"
    (a, x), (b, y), (c, z) = said
    yield f"32 x 32: {a}, {x} in all. 64 x 32: {b}, {y}. 32 x 64: {c}, {z}."
    assert pairs[64, 32] == pairs[32, 64] > pairs[32, 32]
    visible = case.visibility.pairs(case.N, case.N)
    yield f"{x} tiles of 1024 are {pairs[32, 32]:,}; {y} of 2048 are {pairs[64, 32]:,}; visible are {visible:,}"
    p = cost.phases(case, 160, 32, 32)
    yield (
        f"the one from query 160 with 32 x 32: first = {160 - 77 + 1} rounded down to {p['E'].start}, inside = "
        f"{160 + 32 - 77} rounded up to {p['>'].start}, diagonal = {p['D'].start}, k_end = {p['D'].stop}"
    )
    wide = Case("", N=4096, causal=True, window=1024)
    share = sum(visited(wide, 64, 32)) / sum(visited(wide, 32, 32))
    yield f"so with N = 4096 and a window of 1024 it should be near one half; it is {share:.2f}"


def first_right(q_start, window, block):
    return max(0, q_start - window + 1) // block * block


def first_in_tiles(q_start, window, block):
    """The mistake of Q4."""
    return max(0, q_start // block - window // block) * block


def lost(N, window, block):
    """[(query, key), ...]: visible pairs that the mistaken first tile never loads."""
    seen = Visibility(True, window).mask(torch.arange(N), torch.arange(N))
    first = torch.tensor([first_in_tiles(q // block * block, window, block) for q in range(N)])
    return (seen & (torch.arange(N) < first[:, None])).nonzero().tolist()


def tokens_and_tiles():
    smallest = next((N, w, lost(N, w, 4)) for N in range(1, 9) for w in range(1, N + 1) if lost(N, w, 4))
    assert smallest == (5, 2, [[4, 3]])
    yield "N = 5 with window 2 and tiles of 4. The program from query 4 starts at tile 4 // 4 - 2 // 4 = 1, and key 3,"
    assert lost(20, 10, 4) == [[12, 3], [16, 7]]
    yield "In the figure of P6 (window 10) query 12 loses key 3, and query 16 key 7."
    for block in (4, 16):
        never = {w for w in range(1, 3 * block) if not lost(6 * block, w, block)}
        assert never == {w for w in range(1, 3 * block) if w % block in (0, 1)}
    yield "the formula never goes wrong where the window's remainder by BLOCK_K is 0 or 1"
    named = [case for case in laptop_cases("p6") if case.N < 1000 and not case.name.startswith("pairs")]
    losing = {case.name for case in named if lost(case.N, min(case.window, case.N), 32)}
    assert losing == {*SHOW_Q4, *HIDE_Q4}
    yield "Seven of P6's named cases of fewer than 1,000 tokens lose keys by the formula. Four of the seven fail, among"
    assert first_in_tiles(160, 77, 32) == 96 and first_right(160, 77, 32) == 64
    yield "key 96 in place of 64, so the keys 84 to 95 are lost"


def hidden(N, window, block_q, block_k):
    """Queries that see no key of the first tile that their program visits."""
    return [q for q in range(N) if q - window + 1 >= first_right(q // block_q * block_q, window, block_k) + block_k]


def rows_that_saw_nothing():
    found = {(N, w): hidden(N, w, 2, 2) for N in range(1, 5) for w in range(1, N + 1) if hidden(N, w, 2, 2)}
    assert found == {(4, 2): [3]}
    yield "N = 4, window 2, query 3: the first tile of its program holds keys 0 and 1, and it sees 2 and 3"
    case = case_of("p6", "ragged tail")
    block_q, block_k = map(int, re.search(r"TILES_INTERPRETER = \((\d+), (\d+)", solution("p6")).groups())
    first, *others = hidden(case.N, case.window, block_q, block_k)
    assert others == list(range(others[0], others[-1] + 1)) and (block_q, block_k) != (32, 32)
    a, b, c = hidden(case.N, case.window, 32, 32)
    yield (
        f'"Ragged tail" (window {case.window}), with the solution\'s {block_q} x {block_k}: query {first} and queries '
        f"{others[0]} to {others[-1]}; with 32 x 32: queries {a}, {b} and {c}."
    )
    asked = sum(not case.gpu for case in PROBLEMS["p7"].kind.cases(PROBLEMS["p7"], 0))
    yield f"`make grade P=7` passed all {asked} cases."


# Q5: heads and addresses ---------------------------------------------------------------------------------------------


def heads():
    Hq, Hkv = 8, 2
    right, wrong = [h // (Hq // Hkv) for h in range(Hq)], [h % Hkv for h in range(Hq)]
    agree = [h for h in range(Hq) if right[h] == wrong[h]]
    said = f"{', '.join(map(str, agree[:-1]))} and {agree[-1]}"
    yield f"{' '.join(map(str, right))}. `head % Hkv` gives {' '.join(map(str, wrong))}: heads {said} are right"
    cases = [*laptop_cases("p5"), *seeded_cases.cases(PROBLEMS["p5"], 0)]  # a grade without a seed
    fail = {c.name for c in cases if any(h // (c.Hq // c.kv_heads) != h % c.kv_heads for h in range(c.Hq))}
    assert "groups of four" in fail and not fail & {"no sharing", "one kv head"}
    yield f"{len(cases) - len(fail)} of {len(cases)} cases passed"
    case = case_of("p5", "heads interleaved")
    _, k, _ = inputs.make(case, 0)
    yield (
        f'the strides of K in "{case.name}", made as (B, N, H, D), are {", ".join(map(str, k.strides))} (elements; '
        f"B = {case.B}, Hkv = {case.kv_heads}, N = {case.N}, D = {case.D})"
    )
    assert 32 * 32768 * 128 == 2**27 and 16 * 2**27 == 2**31
    yield "32 x 32768 x 128 = 2^27 elements: batch 16 begins at 2^31"
    yield f"32 of them with D = 128, reach 2^31 at token {2**31 // (32 * 128):,}"


# Q6: who counts key 4 ------------------------------------------------------------------------------------------------


def who_counts_key_4():
    programs = [cost.phases(FIGURE_OF_P7, start, 4, 4) for start in range(0, FIGURE_OF_P7.N, 4)]
    counted = ["".join(letter for letter, tiles in p.items() if 4 in tiles) for p in programs]  # 4: where tile 1 begins
    assert counted == ["", "D", "E", "S", "S"]
    yield "tile 0 nobody (it lies in the future), tile 1 the diagonal, tile 2 the window's edge, tiles 3 and 4 the"
    seen = FIGURE_OF_P7.visibility.mask(torch.arange(20), torch.arange(20))
    again = set(range(0, FIGURE_OF_P7.sinks, 4)) & set(programs[2]["E"])  # if the sink phase ran to sink_size
    twice = [k for tile in again for k in range(tile, tile + 4) if seen[8, k]]
    assert twice == [4, 5, 6, 7]
    yield "query 8 would count 4, 5, 6 and 7 twice"
    in_window = replace(FIGURE_OF_P7, sinks=0).visibility.mask(torch.arange(20), torch.arange(20))
    by_edge = [q for q in range(20) if 4 in programs[q // 4]["E"]]
    assert [q for q in by_edge if seen[q, 4] and not in_window[q, 4]] == [8, 9, 10, 11]
    yield "key 4 is lost for queries 8 to 11, and only there"


# Q10, Q11: work and times --------------------------------------------------------------------------------------------


def work():
    """The solutions of P3 and P4, traced."""
    case, causal = case_of("p3", "whole tiles"), [case_of("p4", name) for name in ("whole tiles", "ragged tail")]
    (full,), results = traced.run("p3", case), traced.run("p4", *causal)
    no_mask, whole, tail = map(traced.counted, (case, *causal), (full, *results))
    need, need_tail = (result.facts.picture["need"] for result in results)
    yield (
        f"{whole.tiles} tiles, {need['loaded_bytes']:,} bytes of K and V, {whole.dot_flops:,} FLOPs in dots "
        f"where visible pairs take {need['pair_flops']:,} ({whole.dot_flops / need['pair_flops']:.2f} times"
    )
    assert whole.exponentials == whole.tiles * (2048 + 64)
    yield f"{whole.exponentials:,} exponentials (2048 for p and 64 for alpha in each tile)"
    assert need_tail["loaded_bytes"] == need_tail["needed_bytes"]
    yield f"{need_tail['loaded_bytes']:,} bytes, if only rows that exist are counted, and {tail.dot_flops:,} FLOPs"
    yield f"{tail.dot_flops / need_tail['pair_flops']:.2f} times the need"
    assert no_mask.dot_flops == case.flops
    yield f'as many FLOPs in P3 as in P1: {no_mask.dot_flops:,} for "whole tiles"'
    pairs = case.B * case.Hq * case.N**2
    yield f"P3 adds exponentials for alpha, {no_mask.exponentials:,} against {pairs:,}"
    large = Case("", B=4, Hq=16, N=4096, D=128)
    matrix, tensors = cost.matrix_bytes(large) / 2**30, cost.least_bytes(large) / 2**20
    yield f"The matrix: {matrix:g} GiB; Q, K, V and O: {tensors:g} MiB"


def times():
    rows = [row for row in measured.load().rows if row.dtype == "float16" and row.causal]

    def row(kernel, tier, length):
        (found,) = (row for row in rows if (row.kernel, row.tier, row.q_len) == (kernel, tier, length))
        return found

    def tiles(N, window, block):
        return sum(visited(Case("", N=N, causal=True, window=window), block, block))

    a, b = (row("P4", "B=4 H=16 D=128", n) for n in (4096, 8192))
    x, y = (tiles(n, None, 128) for n in (4096, 8192))
    yield (
        f"tiles of 128 for P4: {x} and {y}, {y / x:.2f} times; measured {a.median_ms:.3f} and {b.median_ms:.2f} ms, "
        f"{b.median_ms / a.median_ms:.2f} times"
    )
    yield f"({4096 // 128} of {x} against {8192 // 128} of {y})"
    yield f"the shorter run is at {a.tflops:.0f} TFLOP/s of visible work, the longer at {b.tflops:.0f}"
    yield f"The CSV says {a.median_ms:.3f} and {b.median_ms:.3f} ms"
    yield f"gives {x} and {y}, so {y / x:.1f} times"
    s, t = (row("P6", "B=1 H=32/8 D=128 window=1024 sinks=0", n) for n in (4096, 16384))
    m, n = tiles(4096, 1024, 64), tiles(16384, 1024, 64)
    yield (
        f"tiles of 64 for P6: {m} and {n}, {n / m:.2f} times; measured {s.median_ms:.3f} and {t.median_ms:.3f} ms, "
        f"{t.median_ms / s.median_ms:.2f} times"
    )


FACTS = (one_more_tile, tiles_counted, tokens_and_tiles, rows_that_saw_nothing, heads, who_counts_key_4, work, times)
