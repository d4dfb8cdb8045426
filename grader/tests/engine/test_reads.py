"""What is said of a kernel's reads in a kind that says no more than which rows are needed."""

from types import SimpleNamespace

import numpy as np
import pytest

from grader.engine import reads
from grader.engine.row_log import programs

CASE = SimpleNamespace(rows=5)
READS = reads.Reads(needed=lambda case: {"x": [True] * case.rows}, times=lambda case: 1)


def log(*stretches, loads=0):
    """Line 9 of program n reads the nth of these stretches."""
    placed = [((n, 0, 0), [stretch]) for n, stretch in enumerate(stretches)]
    return reads.Log(READS, CASE, {"x": ("row",)}, {"x": (5, 7)}, [reads.Line("kernel", 9, "x", placed)], {"x": loads})


@pytest.mark.parametrize(
    ("stretches", "said"),
    [
        ([(0, 4, 1)], []),
        ([(0, 3, 1)], ["No program reads row 4, where rows 0-4 are needed."]),
        ([(0, 4, 2)], ["No program reads rows 1, 3, where rows 0-4 are needed."]),
    ],
)
def test_rows_that_no_program_reads_are_told(stretches, said):
    assert [fact.sentence for fact in reads.facts(log(*stretches), nan=True)] == said


def test_rows_that_are_loaded_twice_are_work_in_vain_and_torch_comes_first():
    twice = log((0, 4, 1), (0, 4, 1), loads=70)
    assert reads.wasted(log((0, 4, 1), loads=35), "") is None
    assert reads.wasted(twice, "").sentence == "All programs together load 10 rows where 5 are needed: load each once."
    assert reads.wasted(twice, "PyTorch did it.").sentence == "PyTorch did it."
    assert "a copy of x" in reads.wasted(log((0, 4, 1)), "").sentence


def test_values_that_are_right_though_rows_were_not_read_are_told():
    assert reads.skipped(log((0, 3, 1), loads=28)) and not reads.skipped(log((0, 4, 1), loads=35))
    assert reads.skipped(log((0, 3, 1), (0, 3, 1), loads=56)), "rows that are read twice hide no others"
    assert reads.skipped(both(x=28, w=14, rows=3)), "an input that is read whole hides no other"


def both(x, w, rows=4, needed=(True, True), asks=reads.ASKS):
    """Rows 0 to `rows` of x (5, 7), of which all are needed, and both of w (2, 7); x, w: numbers loaded."""
    lines = [reads.Line("kernel", 9, name, [((0, 0, 0), [(0, last, 1)])]) for name, last in (("x", rows), ("w", 1))]
    wanted = reads.Reads(lambda case: {"x": [True] * 5, "w": [*needed]}, lambda case: asks, times=lambda case: 1)
    return reads.Log(wanted, CASE, {"x": ("row",), "w": ("row",)}, {"x": (5, 7), "w": (2, 7)}, lines, {"x": x, "w": w})


def test_each_input_is_judged_by_its_own_rows():
    assert reads.wasted(both(x=35, w=14), "") is None
    assert "load 20 rows where 2 are needed" in reads.wasted(both(x=35, w=140), "").sentence
    assert reads.wasted(both(x=35, w=0, needed=(False, False)), "") is None, "what is not needed is no copy"
    before = both(x=140, w=14, needed=(False, True), asks={"lost": ("?", "")})
    assert "load 20 rows where 5 are needed. Line 9 reads row 0" in reads.wasted(before, "").sentence


def test_stretches_lie_along_the_dim_that_gives_the_fewest():
    """Each program's rows of x (2, 3, 4, D): place, number."""
    of_tokens = np.array([(0, 0, 0, row) for row in (4, 5, 6, 7)])
    assert programs(of_tokens, (2, 3, 4)) == [[[0, 0, 0], [[4, 7, 1]]]]
    of_heads = np.array([(1, 0, 0, row) for row in (1, 5, 9, 13)])
    assert programs(of_heads, (2, 3, 4)) == [[[1, 0, 0], [[1, 9, 4], [13, 13, 4]]]]
