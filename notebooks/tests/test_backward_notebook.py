"""Notebook 08: the phases by columns, and what its words say of tiles, memory, products and difference quotients."""

from dataclasses import replace

import pytest
import torch

from grader.kinds.attention.cases import Case
from notebooks.pictures import backward, key_phases, operations

WINDOW = Case("", N=256, causal=True, window=80)


def letters(case, block_q, block_k):
    return ["".join(letter for _, letter in tiles) for _, tiles in key_phases.columns(case, block_q, block_k)]


def test_the_map_of_the_labs_first_lines():
    case = Case("", N=20, causal=True, window=6, sinks=2)
    assert letters(case, 4, 4) == ["DEESS", "DEE", "DEE", "DE", "D"]


@pytest.mark.parametrize("n", [7, 250, 256])
@pytest.mark.parametrize(("window", "sinks"), [(None, None), (1, None), (20, 0), (80, 5), (80, 40), (9, 150)])
def test_each_pair_is_added_once_and_none_without_a_mask_that_is_hidden(n, window, sinks):
    case = Case("", N=n, causal=True, window=window, sinks=sinks)
    wanted = case.visibility.mask(torch.arange(n), torch.arange(n)).int()
    for block_q, block_k in ((16, 64), (32, 32), (64, 16)):
        counted = torch.zeros_like(wanted)
        for k in range(0, n, block_k):
            for masked, starts in zip((True, False, True), key_phases.phases(case, k, block_q, block_k), strict=True):
                for q in starts:
                    tile = slice(q, q + block_q), slice(k, k + block_k)
                    counted[tile] += wanted[tile] if masked else 1
        assert torch.equal(counted, wanted)


def test_the_letters_of_each_panel():
    assert letters(replace(WINDOW, window=None), 32, 32) == ["D" + "F" * i for i in range(7, -1, -1)]
    assert letters(replace(WINDOW, sinks=40), 32, 32)[:2] == ["DFFFFFFF", "DFEESSS"]
    assert letters(replace(WINDOW, N=250, window=None), 32, 32)[0][-1] == "r"
    assert "F" not in "".join(letters(replace(WINDOW, N=250), 64, 32))
    for block_q, window in ((32, 64), (64, 96)):  # the exercise: from this window on there is one
        found = [letters(replace(WINDOW, window=size), block_q, 32) for size in (window - 1, window)]
        assert ["F" in "".join(columns) for columns in found] == [False, True]


def test_four_sinks_make_one_long_column_and_both_kernels_visit_as_many_tiles():
    of_queries, of_keys = backward.lengths_of(Case("", N=16384, causal=True, window=128, sinks=4), 64)
    assert max(of_queries) == 4 and sum(of_queries) == sum(of_keys)
    assert of_keys[0] == 256 and max(of_keys[1:]) == 3
    of_queries, of_keys = backward.lengths_of(replace(WINDOW, window=None), 32)
    assert of_queries == of_keys[::-1] == [*range(1, 9)]


def test_autograd_keeps_the_probabilities_of_plain_code():
    shape = (1, 16, 1024, 128)
    kept = operations.kept(lambda q, k, v: torch.softmax(q @ k.mT / 128**0.5, -1) @ v, shape, shape, shape)
    assert kept == 3 * 16 * 1024 * 128 * 2 + 16 * 1024 * 1024 * 2


def test_two_five_and_seven_products():
    x3 = pytest.importorskip("solutions.x3_backward", reason="needs Triton")
    assert backward.dots(x3.attend) == 2
    assert backward.dots(x3.add_queries, x3.add_keys) == 7


def test_the_exercise_on_paper():
    p, dp = torch.tensor([0.25, 0.75]), torch.tensor([1.0, -1.0])
    delta = (p * dp).sum()
    assert delta == -0.5 and (p * (dp - delta)).tolist() == [0.375, -0.375]


@pytest.mark.parametrize(("value", "text"), [(-0.001, "0.00"), (-0.5, "−0.50"), (1.304, "1.30")])
def test_numbers_in_pictures_have_a_minus_only_where_it_says_something(value, text):
    assert backward.signed(value) == text
