"""x3's kind: its gradients against autograd, its known mistakes told apart, and what is measured of its loops."""

from dataclasses import replace

import pytest
import torch

from grader.kinds.attention import naive
from grader.kinds.backward import causes, gradients, inputs, mistakes
from grader.kinds.backward.cases import CASES, OUTPUTS, PROBLEM, BackwardCase
from grader.kinds.backward.kind import KIND
from grader.kinds.kind import Kind
from grader.result import Outcome
from grader.tests.submissions.broken.mistakes import read
from grader.tests.support import SUBMISSIONS, grade_text, solution, thorough, thorough_but

NAMES = {case.name: case for case in CASES}
GROUPED = BackwardCase("groups", B=2, Hq=4, Hkv=2, N=24, D=16, dtype="float32", window=7, sinks=2)
FULL = BackwardCase("full", B=2, Hq=2, N=20, D=16, dtype="float32", causal=False)
PLAIN = BackwardCase("plain", B=2, Hq=3, N=24, D=16, dtype="float32", window=9, sinks=1)


def expected_of(case, seed=0):
    placed = inputs.make(case, seed)
    return gradients.expect(case, [each.tensor for each in placed[:4]]), placed


@pytest.mark.parametrize("case", [GROUPED, FULL, NAMES["expanded gradient"], NAMES["window of 1"]])
def test_the_gradients_are_those_of_autograd(case):
    expected, placed = expected_of(case)
    do, q, k, v = (each.tensor.double() for each in placed[:4])
    q, k, v = (each.detach().requires_grad_() for each in (q, k, v))
    group = case.Hq // case.kv_heads
    scores = q @ k.repeat_interleave(group, 1).mT * case.scale
    hidden = ~gradients.seen_of(case, "cpu")
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


@pytest.mark.parametrize("seed", [0, thorough(1), thorough(2)])
@pytest.mark.parametrize("name", ["ragged tail", "bfloat16", "scores falling along the keys", "groups of 3"])
def test_honest_forms_are_within_the_allowance(name, seed):
    expected, placed = expected_of(NAMES[name], seed)
    for form in gradients.HONEST:
        found = gradients.honest(expected.inputs, [each.tensor for each in placed[:4]], form, False)
        for each in OUTPUTS:
            assert ((found[each] - expected.values[each]).abs() <= expected.allowed[each]).all()


@pytest.mark.parametrize("seed", range(5))
def test_a_sum_in_float16_is_not(seed):
    case = NAMES["expanded gradient, a long sum"]
    expected, placed = expected_of(case, seed)
    p, do = gradients.work_out(expected.inputs, wanted=("p",))["p"].half(), placed[0].tensor
    dv = torch.zeros_like(do)
    for row in range(case.N):
        dv += p[:, :, row, :, None] * do[:, :, row, None]
    assert ((dv.double() - expected.values["dv"]).abs() > expected.allowed["dv"]).any()


# The known mistakes ---------------------------------------------------------------------------------------------------


def shown_in(mistake):
    """A case in which the mistake makes a difference."""
    cases = [case for case in (GROUPED, PLAIN, FULL) if mistake.applies(case)]
    return next(case for case in cases if differs(mistake, expected_of(case)[0]))


def differs(mistake, expected):
    values = mistakes.answer(mistake, expected.inputs)
    return any(not expected.fits(name, values[name], expected.values[name]) for name in OUTPUTS)


@pytest.mark.parametrize("number", thorough_but(range(0, len(mistakes.EVERY), 12), range(len(mistakes.EVERY))))
def test_a_known_mistake_is_named_and_its_gradients_are_those_that_it_touches(number):
    mistake = mistakes.EVERY[number]
    case = shown_in(mistake)
    expected, _ = expected_of(case)
    values = mistakes.answer(mistake, expected.inputs)
    off = {name for name in OUTPUTS if not expected.fits(name, values[name], expected.values[name])}
    assert off <= set(mistake.touches) and off
    got = {name: value.float() for name, value in values.items()}
    found, _ = causes.diagnose(case, got, expected).evidence["search"]()
    assert any(cause.equals.endswith(mistake.words) for cause in found), found
    assert len(found) <= 3 and found[0].question


def test_a_mistake_of_each_kernel_is_told_of_each():
    expected, _ = expected_of(GROUPED)
    one = next(m for m in mistakes.EVERY if m.words.startswith("without delta"))
    other = next(m for m in mistakes.EVERY if m.words == "without the sinks")
    got = mistakes.answer(one, expected.inputs) | {"dq": mistakes.answer(other, expected.inputs)["dq"]}
    said = causes.diagnose(GROUPED, {name: got[name].float() for name in OUTPUTS}, expected)
    found, _ = said.evidence["search"]()
    assert {cause.equals for cause in found} == {"dk without delta: ds = p * dp", "dq without the sinks"}
    assert said.where.startswith("dv is right, dq and dk not. In dq: ")


def test_a_case_that_passes_refutes_what_it_would_show():
    expected, _ = expected_of(PLAIN)
    kinds = {"dq without the sinks", "dk and dv without any mask", "dq of the first query head of each group alone"}
    assert causes.would_show(PLAIN, expected, kinds) == {"dq without the sinks", "dk and dv without any mask"}
    without = replace(PLAIN, sinks=None)
    assert causes.would_show(without, expected_of(without)[0], {"dq without the sinks"}) == set()


def test_what_is_wrong_beside_right_sinks_is_told():
    expected, _ = expected_of(PLAIN)
    mistake = next(
        each for each in mistakes.EVERY if each.words == "with its scale missing" and each.touches == ("dk",)
    )
    values = mistakes.answer(mistake, expected.inputs)
    values["dk"][:, :, : PLAIN.sinks] = expected.values["dk"][:, :, : PLAIN.sinks]  # their kernel is given
    found, _ = causes.diagnose(PLAIN, {name: value.float() for name, value in values.items()}, expected).evidence[
        "search"
    ]()
    assert [cause.equals for cause in found] == ["dk with its scale missing"]
    only_sinks = replace(PLAIN, sinks=PLAIN.N)
    assert causes.would_show(only_sinks, expected_of(only_sinks)[0], {"dk with its scale missing"}) == set()


# Kernels --------------------------------------------------------------------------------------------------------------

CHANGES = {
    "delta left out of dk": ("ds = p * (dp - delta[None, :])", "ds = p * dp", "ragged tail",
                             "Your output equals dk without delta: ds = p * dp. dq and dv are right, dk not."),
    "the scale missing": ("dq = dq * scale\n", "pass\n", "groups of 2",
                          "Your output equals dq with its scale missing."),
    "one head of a group": ("for member in range(group):", "for member in range(1):", "groups of 3",
                            "Your output equals dk and dv of the first query head of each group alone."),
    "far queries of sinks left out": (
        "end = tl.minimum(N, part * span + span)", "end = tl.minimum(N, part * span + BLOCK_Q)", "sinks and window",
        "dv and dk get no part from visible pairs: keys 0-2 with query rows 64-199."),
    "a tile skipped": ("diagonal_end = tl.cdiv(k_start + BLOCK_K - 1, BLOCK_Q) * BLOCK_Q",
                       "diagonal_end = k_start // BLOCK_Q * BLOCK_Q", "tiles of 32 x 16",
                       "dv and dk get a part from hidden pairs: key 1"),
    "the strides of q for do": ("*v.stride()[:3], *do.stride()[:3], *lse", "*v.stride()[:3], *q.stride()[:3], *lse",
                                "each tensor with another layout", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", ["delta left out of dk", *map(thorough, list(CHANGES)[1:])])
def test_a_wrong_kernel_is_told_why(name, tmp_path):
    old, new, case, said = CHANGES[name]
    text = solution("x3")
    assert old in text
    results = grade_text(tmp_path, "x3", text.replace(old, new), names=[case])
    (result,) = [each for each in results if each.case == case]
    assert result.outcome in (Outcome.WRONG, Outcome.UNSAFE) and said in result.sentence, result.sentence


FORMS = {form.name: form for form in read(SUBMISSIONS / "honest" / "x3_forms.txt")}
ASKED = (
    "ragged tail", "no mask, ragged tail", "groups of 3", "tiles of 16 x 64", "sinks, tiles of 16 x 64",
    "sinks, groups and batches", "bfloat16", "each tensor with another layout", "scores rising along the keys",
)  # fmt: skip


@pytest.mark.parametrize("name", thorough_but(["dq by atomics"], FORMS))
def test_an_honest_form_is_not_accused(name, tmp_path):
    results = grade_text(tmp_path, "x3", FORMS[name].apply(solution("x3")), names=ASKED)
    assert len(results) == len(ASKED) and len(FORMS) >= 25
    assert not [f"{r.case}: {r.sentence}" for r in results if r.outcome is not Outcome.PASSED]


@pytest.mark.thorough
def test_gaps_can_be_tried_one_by_one(tmp_path):
    """With the first four gaps filled and the later failing lines deleted, dv is right and the others are zero."""
    text = solution("x3")
    for line in (
        "delta = tl.sum(o * do, 1)",
        "dk = tl.dot(ds.to(q.dtype), q, dk)",
        "dq = tl.dot(ds.to(k.dtype), k, dq)",
    ):
        assert line in text
        text = "\n".join("pass".rjust(len(at) - len(at.lstrip()) + 4) if line in at else at for at in text.splitlines())
    (result,) = grade_text(tmp_path, "x3", text, names=["one tile"])
    assert "dv is right, dq and dk not" in result.sentence, result.sentence


def test_the_answer_is_worked_out_once():
    case = NAMES["one token"]
    placed = inputs.make(case, 0)
    assert KIND.expect(case, placed, "cpu") is KIND.expect(case, inputs.make(case, 0), "cpu")
    assert PROBLEM.points == 0 and PROBLEM.keywords == ("is_causal", "window_size", "sink_size")
