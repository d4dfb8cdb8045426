"""The facts of a mismatch, and the words made of them."""

import math

import torch

from grader import compare, locate


def facts_of(got, expected=None, allowed=1e-3):
    expected = torch.zeros(got.shape, dtype=torch.float64) if expected is None else expected
    return compare.mismatch(got, expected, torch.full_like(expected, allowed))


def test_within_the_allowance_is_no_mismatch():
    assert facts_of(torch.full((1, 2, 3, 4), 1e-3 - 1e-6)) is None


def test_nan_is_wrong_and_never_a_wildcard():
    got = torch.zeros(1, 1, 2, 2)
    got[0, 0, 1, 1] = math.nan
    facts = facts_of(got)
    assert (facts["wrong"], facts["nan"], facts["first"]) == (1, 1, (0, 0, 1, 1))


def test_unwritten_memory_is_told_from_nan():
    got = torch.zeros(1, 1, 4, 2, dtype=torch.float16)
    got.view(torch.int16)[0, 0, 3] = -1
    facts = facts_of(got)
    assert (facts["unwritten"], facts["nan"]) == (2, 0)
    assert "2 of 8 elements of the output were never written" in locate.where(facts)


def test_where_the_errors_are():
    got = torch.zeros(2, 3, 8, 4)
    got[1, 2, 5:, 3] = 1.0
    facts = facts_of(got)
    assert facts["heads"] == [(1, 2)] and facts["row_ranges"] == [(5, 7)] and facts["columns"] == [(3, 3)]
    said = locate.where(facts)
    assert "First wrong row 5; rows before it agree" in said
    assert "only (batch, head) (1, 2) of 6" in said and "columns 3 of 4" in said
    assert "at (1, 2, 5, 3) got 1, expected 0: off by 1.0e+00 where 1.0e-03 is allowed" in said


def test_infinities_are_counted():
    got = torch.full((1, 1, 1, 1), math.inf)
    assert facts_of(got)["inf"] == 1


def test_scattered_rows_are_counted_not_listed():
    got = torch.zeros(1, 1, 20, 1)
    got[0, 0, ::2] = 1.0
    assert "10 of 20 rows are wrong, the first is row 0" in locate.where(facts_of(got))


def test_ranges():
    assert compare.ranges([]) == []
    assert compare.ranges([3, 4, 5, 9]) == [(3, 5), (9, 9)]
