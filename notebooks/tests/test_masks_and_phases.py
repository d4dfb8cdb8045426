"""Notebook 04: what its pictures claim, against the masks themselves and against kernels that ran."""

import pytest

from grader.kinds.attention.cases import Case
from notebooks.pictures import masks_and_phases as pictures
from report.counting import traced
from report.pages import tile_figures

SHAPES = [(32, 32), (64, 32), (32, 64), (16, 128)]


def causal(N, window=None, sinks=None):
    return Case("a case", N=N, D=16, causal=True, window=window, sinks=sinks)


@pytest.mark.parametrize("block_q, block_k", SHAPES)
@pytest.mark.parametrize("window, sinks", [(None, None), (1, None), (20, 0), (80, 40), (60, 70), (9, 150), (500, 300)])
def test_phases_visit_what_is_not_empty_and_nothing_twice(window, sinks, block_q, block_k):
    for N in (1, 7, 129, 250, 256):
        assert_whole(causal(N, window, sinks), block_q, block_k)


def assert_whole(case, block_q, block_k):
    kinds = {(q, k): letter for q, tiles in pictures.kind_tiles(case, block_q, block_k) for k, letter in tiles}
    visited = [(q, k, phase) for q, tiles in tile_figures.phase_tiles(case, block_q, block_k) for k, phase in tiles]
    assert sorted((q, k) for q, k, _ in visited) == sorted(kinds)
    assert all(kinds[q, k] == "F" for q, k, phase in visited if phase == ">")
    assert tile_figures.tiles_of(case, block_q, block_k) == len(visited)


def test_traces_agree_with_the_plan():
    for problem, case in (("p4", causal(100)), ("p6", causal(100, 40)), ("p7", causal(100, 20, 37))):
        (result,) = traced.run(problem, case)
        assert result.outcome.value == "passed"
        assert traced.tiles_visited(result) == traced.tiles_needed(result) == tile_figures.tiles_of(case, *traced.TILES)


def test_a_kernel_that_cannot_run_says_so():
    with pytest.raises(RuntimeError, match="p6 'a case' was not traced"):
        traced.run("p6", causal(40, 8), source="raise ValueError('no')")


def test_sliders_only_where_a_person_is(monkeypatch, capsys):
    ipywidgets = pytest.importorskip("ipywidgets")
    asked = []
    monkeypatch.setattr(ipywidgets, "interact", lambda draw, **ranges: asked.append(ranges))
    for name in pictures.LIVE:
        monkeypatch.delenv(name, raising=False)
    pictures.with_sliders(print, N=(1, 9, 1))
    assert not asked and "Run this notebook in Jupyter" in capsys.readouterr().out
    monkeypatch.setenv("JPY_SESSION_NAME", "04")
    pictures.with_sliders(print, N=(1, 9, 1))
    assert asked == [{"N": (1, 9, 1)}]
