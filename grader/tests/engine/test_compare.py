"""A Mismatch, and the words made of them."""

import math

import pytest
import torch

from grader.engine import compare_values, locate


def mismatch_of(got, expected=None, allowed=1e-3):
    expected = torch.zeros(got.shape, dtype=torch.float64) if expected is None else expected
    return compare_values.mismatch(got, expected, torch.full_like(expected, allowed))


def test_within_the_allowance_is_no_mismatch():
    assert mismatch_of(torch.full((1, 2, 3, 4), 1e-3 - 1e-6)) is None


def test_nan_is_wrong_and_never_a_wildcard():
    got = torch.zeros(1, 1, 2, 2)
    got[0, 0, 1, 1] = math.nan
    found = mismatch_of(got)
    assert (found.wrong, found.nan, found.first) == (1, 1, (0, 0, 1, 1))


def test_unwritten_memory_is_told_from_nan():
    got = torch.zeros(1, 1, 4, 2, dtype=torch.float16)
    got.view(torch.int16)[0, 0, 3] = -1
    found = mismatch_of(got)
    assert (found.unwritten, found.nan) == (2, 0)
    assert locate.where(found) == (
        "2 of 8 elements of the output were never written, all in the last rows: does the grid reach the last tile? "
        "First wrong row 3; rows before it agree. At (0, 0, 3, 0) got nan, expected 0."
    )


def test_unwritten_rows_elsewhere_ask_nothing_of_the_grid():
    got = torch.zeros(1, 2, 64, 1, dtype=torch.float16)
    got.view(torch.int16)[0, 1, :16] = -1
    said = locate.where(mismatch_of(got))
    assert said.startswith("16 of 128 elements of the output were never written. Only rows 0-15 of 64 are wrong, ")
    assert "does the grid" not in said


def test_where_the_errors_are():
    got = torch.zeros(2, 3, 8, 4)
    got[1, 2, 5:, 3] = 1.0
    found = mismatch_of(got)
    assert found.heads == [(1, 2)] and found.row_ranges == [(5, 7)] and found.columns == [(3, 3)]
    said = locate.where(found)
    assert "First wrong row 5; rows before it agree" in said
    assert "only (batch, head) (1, 2) of 6" in said and "columns 3 of 4" in said
    assert "At (1, 2, 5, 3) got 1, expected 0: off by 1.0e+00 where 1.0e-03 is allowed" in said


def rows_said(num_rows, *wrong):
    got = torch.zeros(1, 1, num_rows, 1)
    for first, last in wrong:
        got[0, 0, first : last + 1] = 1.0
    return locate.where(mismatch_of(got)).split(". At (")[0]


@pytest.mark.parametrize(
    ("num_rows", "wrong", "words"),
    [
        (129, [(32, 128)], "First wrong row 32, a multiple of 32; rows before it agree"),
        (129, [(33, 128)], "First wrong row 33; rows before it agree"),
        (129, [(128, 128)], "First wrong row 128, a multiple of 128; rows before it agree"),
        (129, [(32, 95)], "Only rows 32-95 of 129 are wrong, whole blocks of 32 rows"),
        (129, [(32, 94)], "Only rows 32-94 of 129 are wrong"),
        (129, [(0, 15), (48, 63)], "Rows 0-15, 48-63 of 129 are wrong, whole blocks of 16 rows"),
        (70, [(3, 3), (9, 9)], "Rows 3, 9 of 70 are wrong"),
        (
            160,
            [(at, at + 15) for at in range(0, 160, 32)],
            "80 of 160 rows are wrong, whole blocks of 16 rows; the first",
        ),
        (16, [(0, 15)], "Every row has wrong elements"),
        (1, [(0, 0)], "The only row is wrong"),
    ],
)
def test_rows_and_the_tiles_that_they_keep_to(num_rows, wrong, words):
    said = rows_said(num_rows, *wrong)
    assert said.startswith(words) and ("tile" in said) == ("tile" in words)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ([(0, 0), (0, 1), (0, 2)], "; only in batch 0 of 3, in every head."),
        ([(b, h) for b in (0, 2) for h in range(3)], "; only in batch 0, 2 of 3, in every head."),
        ([(0, 0), (0, 1), (1, 2)], "; only (batch, head) (0, 0), (0, 1), (1, 2) of 9."),
        ([(b, h) for b in range(3) for h in range(3) if (b, h) != (1, 1)], "(2, 0) and 2 more of 9."),
    ],
)
def test_batches_and_heads(wrong, words):
    got = torch.zeros(3, 3, 8, 4)
    for batch, head in wrong:
        got[batch, head] = 1.0
    assert words in locate.where(mismatch_of(got))


def test_infinities_are_counted():
    got = torch.full((1, 1, 1, 1), math.inf)
    assert mismatch_of(got).inf == 1 and "The only row is wrong; it is infinite" in locate.where(mismatch_of(got))


def test_scattered_rows_are_counted_not_listed():
    got = torch.zeros(1, 1, 20, 1)
    got[0, 0, ::2] = 1.0
    assert "10 of 20 rows are wrong; the first is row 0" in locate.where(mismatch_of(got))


def test_ranges():
    assert compare_values.ranges([]) == []
    assert compare_values.ranges([3, 4, 5, 9]) == [(3, 5), (9, 9)]
