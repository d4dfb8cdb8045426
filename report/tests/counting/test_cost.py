"""The report's formula for tiles, FLOPs, exponentials and bytes, against kernels that ran with every load counted."""

import pytest

from grader.kinds.attention.cases import Case
from grader.tests.support import thorough
from report.counting import cost, traced
from report.pages import tile_figures

TILES = "TILES_INTERPRETER = (64, 32, 4, 1)"
SHAPES = [(32, 32), (64, 32), (32, 64)]


def causal(name, **more):
    return Case(name, **{"N": 200, "D": 16, "causal": True} | more)


CASES = {
    "p3": [Case("whole tiles", N=128, D=32), Case("ragged", B=2, Hq=2, N=107, D=16, dtype="float32")],
    "p4": [causal("whole tiles", N=128), causal("ragged", B=2, Hq=3, N=135), Case("not causal", N=70, D=16)],
    "p5": [causal("grouped heads", Hq=4, Hkv=2, N=129)],
    "p6": [causal("window", window=40), causal("window of a tile", window=64), causal("window of one", window=1),
           causal("wider than N", window=999), causal("odd", B=2, Hq=2, Hkv=1, N=129, window=33)],
    "p7": [causal("sinks", window=20, sinks=37), causal("no sinks", window=50, sinks=0),
           causal("sinks in the window", window=60, sinks=70), causal("more sinks than keys", window=9, sinks=999)],
}  # fmt: skip


# `make test` has the fewest that hold every mask and each order of the two sizes.
QUICK = [("p4", 64, 32), ("p7", 32, 64)]
EVERY = [(problem, *shape) for problem in CASES for shape in SHAPES]


@pytest.mark.parametrize("problem, block_q, block_k", [each if each in QUICK else thorough(*each) for each in EVERY])
def test_the_formula_is_what_the_kernel_does(problem, block_q, block_k):
    source = traced.source_of(problem)
    assert source.count(TILES) == 1
    source = source.replace(TILES, f"TILES_INTERPRETER = ({block_q}, {block_k}, 4, 1)")
    for case, result in zip(CASES[problem], traced.run(problem, *CASES[problem], source=source), strict=True):
        assert result.outcome.value == "passed", result.sentence
        assert traced.counted(case, result) == cost.cost(case, block_q, block_k), case.name
        assert loaded(result) == planned(case, block_q, block_k), case.name


@pytest.mark.parametrize("block_q, block_k", SHAPES)
def test_the_tiles_that_are_drawn_are_those_of_the_formula(block_q, block_k):
    windows = [causal(f"a window of {window}", window=window, sinks=37) for window in range(1, 140)]
    for case in [*windows, *(case for cases in CASES.values() for case in cases)]:
        for q, tiles in tile_figures.phase_tiles(case, block_q, block_k):
            phases = cost.phases(case, q, block_q, block_k).items()
            assert tiles == sorted((k, letter) for letter, starts in phases for k in starts), case.name


def loaded(result):
    """{first query: first keys of the tiles that were loaded, each once}: of one head, from the trace."""
    bands = result.facts.picture["visits"]["bands"]
    assert all(times == 1 for band in bands for _, _, times, _ in band["tiles"])
    return {band["q"][0]: sorted(first for first, *_ in band["tiles"]) for band in bands}


def planned(case, block_q, block_k):
    return {q: sorted(k for k, _ in tiles) for q, tiles in tile_figures.phase_tiles(case, block_q, block_k)}


@pytest.mark.parametrize("n, m", [(1, 1), (5, 2), (8, 8), (8, 12)])
def test_the_closed_forms_of_whole_tiles(n, m):
    """n tiles a side, a window of m tiles: the triangle, and the band of m + 1 tiles a row."""
    N, t = 32 * n, 32
    assert cost.cost(Case("full", N=N), t, t).tiles == n * n
    assert cost.cost(causal("causal", N=N), t, t).tiles == n * (n + 1) // 2
    band = sum(min(i, m) + 1 for i in range(n))
    assert cost.cost(causal("window", N=N, window=m * t), t, t).tiles == band
    assert m > n or band == n * (m + 1) - m * (m + 1) // 2  # as the report has it
    sinks = sum(min(2, max(0, i - m)) for i in range(n))
    assert cost.cost(causal("sinks", N=N, window=m * t, sinks=t + 1), t, t).tiles == band + sinks


def test_what_is_needed_at_least():
    case = causal("GQA", B=2, Hq=4, Hkv=2, N=10)
    assert cost.least_bytes(case) == 2 * (2 * 4 + 2 * 2) * 10 * 16 * 2
    assert cost.matrix_bytes(case) == 4 * 2 * 4 * 100
