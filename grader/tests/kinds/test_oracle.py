"""The oracle is right, and its allowance lets careful kernels pass and stops careless ones."""

import math

import pytest
import torch
import torch.nn.functional as F

from grader.engine import compare_values
from grader.kinds.attention import oracle
from grader.kinds.attention.cases import Case
from grader.kinds.attention.masks import Visibility
from grader.registry import EVERY, PROBLEMS
from grader.tests.kinds import honest_forms
from grader.tests.kinds.honest_forms import Form, attend, tensors
from grader.tests.support import thorough

ROOM = 0.9  # of what is allowed, at most: a kernel that is honest in a way not thought of here has the rest


@pytest.mark.parametrize("seen", [Visibility(), Visibility(causal=True), Visibility(True, 5), Visibility(True, 5, 3)])
def test_visibility_is_what_the_ladder_says(seen):
    mask = seen.mask(torch.arange(20), torch.arange(20))
    for i in range(20):
        for j in range(20):
            want = True if not seen.causal else j <= i
            if seen.window:
                want = j <= i and (i - j < seen.window or j < seen.sinks)
            assert bool(mask[i, j]) == want


@pytest.mark.parametrize("seen", [Visibility(), Visibility(causal=True), Visibility(True, 7, 2)])
def test_attention_equals_pytorch(seen):
    q, k, v = (torch.randn(2, h, 50, 16, dtype=torch.float64) for h in (4, 2, 2))
    mask = seen.mask(torch.arange(50), torch.arange(50))
    want = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
    o, lse, size = oracle.attention(q, k, v, seen.mask)
    assert torch.allclose(o, want, atol=1e-12)
    scores = (q @ k.repeat_interleave(2, 1).mT / math.sqrt(16)).masked_fill(~mask, -math.inf)
    assert torch.allclose(lse, scores.logsumexp(-1), atol=1e-12)
    assert (size >= o.abs() - 1e-12).all()


@pytest.mark.parametrize("seed", [0, *map(thorough, range(1, honest_forms.PARTS))])  # a command measures more
def test_no_correct_kernel_is_rejected(seed):
    for case, problems in honest_forms.cases_of(seed).items():
        for form, (o, lse) in honest_forms.share_used(case, seed).items():
            assert o < ROOM, (case, form)
            assert lse < ROOM or not any(EVERY[id].returns_lse for id in problems), (case, form)


@pytest.mark.parametrize("seed", [0, *map(thorough, range(1, honest_forms.SEEDS))])
@pytest.mark.parametrize("id", PROBLEMS)
def test_a_float16_accumulator_is_rejected(id, seed):
    assert honest_forms.some_case_fails(id, seed)


@pytest.mark.parametrize("id", ["p3", "p4", "p6", "p7"])
@pytest.mark.parametrize("tile", [16, 32, 64])
def test_a_replaced_maximum_is_rejected(id, tile):
    case = next(c for c in PROBLEMS[id].cases if c.values == "falling")
    q, k, v = tensors(case)
    want = oracle.expect(q, k, v, case.visibility)
    got, _ = attend(q, k, v, case.visibility.mask, Form(tile, keeps_maximum=False))
    assert compare_values.mismatch(got, want.o, want.allowed_o)


def test_rows_that_see_nothing_are_zero_and_minus_infinity():
    q, k, v = (torch.randn(1, 1, 4, 16) for _ in range(3))
    o, lse, _ = oracle.attention(q, k, v, lambda i, j: i[:, None] > j[None, :])
    assert (o[0, 0, 0] == 0).all() and lse[0, 0, 0] == -math.inf and o.isfinite().all()


def test_tf32_widens_the_allowance_of_float32_only():
    case = Case("x", N=100, D=64, dtype="float32")
    q, k, v = tensors(case)
    plain, tf32 = oracle.expect(q, k, v, case.visibility), oracle.expect(q, k, v, case.visibility, tf32=True)
    assert tf32.relative > 20 * plain.relative
    half = Case("x", N=100, D=64)
    q, k, v = tensors(half)
    assert oracle.expect(q, k, v, half.visibility, True).relative == oracle.expect(q, k, v, half.visibility).relative


def test_long_sequences_in_chunks(monkeypatch):
    q, k, v = (torch.randn(1, 2, 90, 16) for _ in range(3))
    whole = oracle.attention(q, k, v, Visibility(True, 9, 2).mask)
    monkeypatch.setattr(oracle, "CHUNK", 17)
    for a, b in zip(whole, oracle.attention(q, k, v, Visibility(True, 9, 2).mask), strict=True):
        assert torch.allclose(a, b, atol=1e-12)


def test_rows_that_see_nothing_do_not_hide_the_error_of_others():
    """Their lse is -inf; the allowance of the other rows is the one that they have without them."""

    class Below:
        def mask(self, q_pos, k_pos):
            return (q_pos[:, None] >= 4) & (k_pos[None, :] <= q_pos[:, None])

    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 1, 64, 32) * 30 for _ in range(3))
    found = oracle.expect(q, k, v, Below(), tf32=True)
    assert found.lse[0, 0, :4].isinf().all() and (found.o[0, 0, :4] == 0).all()
    alone = oracle.expect(
        q[:, :, 4:], k, v, type("Shifted", (), {"mask": lambda self, i, j: Below().mask(i + 4, j)})(), tf32=True
    )
    assert torch.allclose(found.allowed_lse[0, 0, 4:], alone.allowed_lse[0, 0])
