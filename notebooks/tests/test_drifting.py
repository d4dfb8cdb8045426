"""The pretended kernels of notebook 07: turns find the true ratio, one after the other does not."""

from grader.gpu import timing
from notebooks.pictures.drifting import in_turns, one_after_the_other


def test_turns_find_the_ratio_and_blocks_do_not():
    turns, clock = in_turns({"A": 1.0, "B": 1.05}, 50)
    found = timing.ratio(turns, "A", "B")
    assert found.low < 1.05 < found.high
    assert len(clock) == 100
    blocks, _ = one_after_the_other({"B": 1.05, "A": 1.0}, 50)
    assert timing.ratio(blocks, "A", "B").high < 1
