"""Notebook 05: the measurement that it reads, and the claims that its words make about it."""

import pytest

from notebooks.pictures import block_sparse


def test_what_the_words_say_of_the_measurement():
    rows, machine = block_sparse.measured()
    assert machine["gpu"] and machine["date"]
    over = {}
    for pattern in block_sparse.LOOKS:
        fast = block_sparse.at(rows, pattern, 16384, 64, "fast")
        over[pattern] = 1 / fast.over_dense / fast.density
    assert min(over.values()) > 1, "every pattern lies above the line"
    assert sorted(over, key=over.get)[-2:] == ["random FP", "random FCP"]
    with pytest.raises(ValueError):
        block_sparse.at(rows, "no such pattern", 16384, 64, "fast")
