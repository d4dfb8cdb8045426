"""x3's kind: its gradients against autograd, its known mistakes told apart, and what is measured of its loops."""

from dataclasses import replace

import pytest
import torch

from grader.engine.kind import Kind
from grader.kinds.attention import naive
from grader.kinds.backward import inputs
from grader.kinds.backward.cases import CASES, PROBLEM, BackwardCase
from grader.kinds.backward.kind import KIND
from grader.kinds.backward.reference import OUTPUTS, REFERENCE, seen_of

NAMES = {case.name: case for case in CASES}
GROUPED = BackwardCase("groups", B=2, Hq=4, Hkv=2, N=24, D=16, dtype="float32", window=7, sinks=2)
FULL = BackwardCase("full", B=2, Hq=2, N=20, D=16, dtype="float32", causal=False)


def expected_of(case, seed=0):
    placed = inputs.make(case, seed)
    return KIND.expect(PROBLEM, case, placed, "cpu"), placed


@pytest.mark.parametrize("case", [GROUPED, FULL, NAMES["expanded gradient"], NAMES["window of 1"]])
def test_the_gradients_are_those_of_autograd(case):
    expected, placed = expected_of(case)
    do, q, k, v = (each.tensor.double() for each in placed[:4])
    q, k, v = (each.detach().requires_grad_() for each in (q, k, v))
    group = case.Hq // case.kv_heads
    scores = q @ k.repeat_interleave(group, 1).mT * case.scale
    hidden = ~seen_of(case, "cpu")
    o = torch.softmax(scores.masked_fill(hidden, -torch.inf), -1) @ v.repeat_interleave(group, 1)
    o.backward(do)
    for name, each in zip(OUTPUTS, (q, k, v), strict=True):
        assert torch.allclose(expected.values[name], each.grad, rtol=1e-9, atol=1e-12)
    assert torch.allclose(placed[4].tensor.double(), o.detach(), atol=1e-6)


@pytest.mark.parametrize("name", ["no mask, ragged tail", "window", "groups of 3", "sinks, groups and batches"])
def test_a_timed_call_gets_the_o_and_lse_of_its_inputs_and_the_naive_arm_is_right(name):
    expected, placed = expected_of(NAMES[name])
    do, q, k, v, o, lse = (each.tensor for each in placed)
    with torch.no_grad():  # as in the runner
        made_o, made_lse = naive.forward(q, k, v, **NAMES[name].arguments)
        found = naive.naive_backward(do, q, k, v, made_o, made_lse, **NAMES[name].arguments)()
    assert made_o.dtype == o.dtype and torch.allclose(made_lse, lse, atol=1e-5)
    assert torch.allclose(made_o.float(), o.float(), atol=2 * torch.finfo(o.dtype).eps)
    for each, got in zip(OUTPUTS, found, strict=True):
        assert ((got.double() - expected.values[each]).abs() <= expected.allowed[each]).all(), each


def test_a_part_of_a_timed_call_is_a_kv_head_with_its_query_heads():
    part, ranges = KIND.parts(PROBLEM, replace(GROUPED, N=8))[3]  # of 2 batches with 2 kv heads each
    assert (part.B, part.Hq, part.kv_heads) == (1, 2, 1) and len(KIND.parts(PROBLEM, GROUPED)) == 4
    queries, keys = [[1, 2], [2, 4]], [[1, 2], [1, 2]]
    assert ranges == [queries, queries, keys, keys, queries, queries, queries, keys, keys]
    assert Kind.parts(KIND, PROBLEM, GROUPED) == [(GROUPED, [[]] * 9)]


@pytest.mark.parametrize("seed", range(5))
def test_a_sum_in_float16_is_beyond_the_allowance(seed):
    case = NAMES["expanded gradient, a long sum"]
    expected, placed = expected_of(case, seed)
    p, do = REFERENCE.run(expected.given).p.half(), placed[0].tensor
    dv = torch.zeros_like(do)
    for row in range(case.N):
        dv += p[:, :, row, :, None] * do[:, :, row, None]
    assert ((dv.double() - expected.values["dv"]).abs() > expected.allowed["dv"]).any()
