"""What is told of the delta, or the dp, that a kernel's ds implies: with all scores equal and one column of V."""

import pytest
import torch

from grader.kinds.backward import implied

N = 70


@pytest.fixture
def pairs():
    """(p, dp, seen): causal, every visible key alike."""
    seen = torch.ones(N, N, dtype=torch.bool).tril()
    dp = torch.randn(N, generator=torch.Generator().manual_seed(0)).double()
    return seen.double() / seen.sum(1, keepdim=True), dp, seen


def told(pairs, taken=None, dp=None):
    """The sentences on ds = p (dp - taken)."""
    p, right, seen = pairs
    dp, taken = right if dp is None else dp, (p @ right)[:, None] if taken is None else taken
    return [each.sentence for each in implied.look("dk", p * (dp - taken), p, right, seen)]


def test_nothing_is_said_of_what_is_right(pairs):
    assert told(pairs) == []


def test_a_window_inside_of_a_tile_of_keys_is_right(pairs):
    """There the sum over the tile is delta."""
    _, dp, _ = pairs
    tile = torch.arange(N) // 16
    seen = tile[:, None] == tile
    assert told((seen.double() / seen.sum(1, keepdim=True), dp, seen)) == []


@pytest.mark.parametrize("width", [16, 32, 64])
def test_delta_of_a_tile_of_keys(pairs, width):
    p, dp, _ = pairs
    tile = torch.arange(N) // width
    taken = (p * dp) @ (tile[:, None] == tile).double()
    (said,) = told(pairs, taken)
    assert f"query row {width} and keys 0-{width - 1} is the sum of p * dp over these keys alone" in said


def test_delta_of_another_row(pairs):
    p, dp, _ = pairs
    delta = p @ dp
    delta[[3, 5]] = delta[[5, 3]]
    assert told(pairs, delta[:, None]) == [
        "In a second run, on inputs that make all scores equal, dk has for query row 3 the delta of row 5."
    ]


@pytest.mark.parametrize("factor", [2.0, 1.03, 0.5])
def test_no_row_is_named_for_a_delta_that_none_has(pairs, factor):
    p, dp, _ = pairs
    assert told(pairs, factor * (p @ dp)[:, None]) == []


def test_rows_without_dp(pairs):
    dp = pairs[1].expand(N, N).clone()
    dp[16:32] = 0
    (said,) = told(pairs, dp=dp)
    assert "dp = do v^T is 0 in dk for query row 16 and 15 more, not for all" in said


def test_nothing_is_said_where_every_dp_is_0_or_the_error_has_no_shape(pairs):
    assert told(pairs, dp=torch.zeros(N).double()) == []
    assert told(pairs, torch.randn(N, N, generator=torch.Generator().manual_seed(1)).double()) == []


def test_a_hidden_pair_says_nothing(pairs):
    p, dp, seen = pairs
    ds = p * (dp - (p @ dp)[:, None]) + (~seen).double()
    assert implied.look("dk", ds, p, dp, seen) == []
