"""What measured weights tell of functions whose mistake is known, and that right ones are told nothing."""

import math

import pytest
import torch

from grader.kinds.attention import weight_facts, weights
from grader.kinds.attention.cases import Case
from grader.kinds.attention.masks import Visibility
from grader.result import Outcome
from grader.tests.support import grade_text, solution

CAUSAL = Case("causal", B=2, Hq=4, Hkv=2, N=70, D=16, causal=True)
WINDOW = Case("window", Hq=2, N=70, D=16, causal=True, window=9)
SINKS = Case("sinks", Hq=2, N=70, D=16, causal=True, window=9, sinks=3)
FULL = Case("full", B=2, Hq=2, N=40, Nk=70, D=16)


def by_group(head, group):
    return head // group


def by_modulo(head, group):
    return head % 2


def not_itself(q, k):
    return k[None] < q[:, None] + (q[:, None] == 0)


def not_the_first(q, k):
    return (q[:, None] > 2) | (k[None] > 0)


def either_side(q, k):
    return (q[:, None] - k[None]).abs() < 9


def turned_round(q, k):
    return (k[None] >= q[:, None]) & (k[None] - q[:, None] < 9)


def both(q, k):
    age = q[:, None] - k[None]
    return (age >= 0) & (age < 9) & (k[None] < 3)


def attention(case, tile=32, seen=None, hide=-math.inf, scale=1.0, head=by_group, v_head=None,
              again=1.0, stale=False, add=0.0, dtype=None):  # fmt: skip
    """A function of q, k and v like the case's right one, but for what is named. stale: acc is not rescaled."""

    def run(q, k, v):
        group, heads = case.Hq // case.kv_heads, torch.arange(case.Hq)
        k, v = k[:, head(heads, group)].double(), v[:, (v_head or head)(heads, group)].double()
        s = scale * (q.double() @ k.mT) / math.sqrt(case.D)
        mask = (seen or case.visibility.mask)(torch.arange(case.N), torch.arange(case.num_keys))
        s = torch.where(mask, s, hide)
        p = torch.exp(s - s.amax(-1, keepdim=True))
        if stale:  # each tile has its own maximum
            p = torch.cat([torch.exp(t - t.amax(-1, keepdim=True)).nan_to_num(0.0) for t in s.split(tile, -1)], -1)
        p[..., :4] *= again
        p = p.to(dtype).double() if dtype else p
        return (p / (p.sum(-1, keepdim=True) + add)) @ v

    return run


def facts(monkeypatch, case, **wrong):
    function = attention(case, **wrong)
    monkeypatch.setattr(
        weights, "run_sets", lambda kind, submission, case, sets, output=0: [function(*each) for each in sets]
    )
    return weight_facts.tell(weights.measure(None, None, case, 0))


@pytest.mark.parametrize("case", [CAUSAL, WINDOW, FULL])
def test_a_right_function_is_told_nothing(case, monkeypatch):
    assert facts(monkeypatch, case) == []


@pytest.mark.parametrize(
    ("case", "wrong", "kind", "words"),
    [
        (CAUSAL, {"seen": not_itself}, "mask", "no weight to visible keys: the query's own key, for query rows 1-69"),
        (CAUSAL, {"seen": Visibility().mask}, "mask", "to hidden keys: keys i+1 to 69 for each query row i of 0-68"),
        (WINDOW, {"seen": Visibility(True, 10).mask}, "mask", "to hidden keys: key i-9 for each query row i of 9-69"),
        (WINDOW, {"seen": Visibility(True, 7).mask}, "mask", "to visible keys: keys i-8 to i-7 for each query row"),
        (WINDOW, {"seen": Visibility(True, 7).mask}, "mask", "exactly what window 7 shows; the case has window 9."),
        (WINDOW, {"seen": either_side}, "mask", "exactly the keys less than 9 tokens away on either side;"),
        (WINDOW, {"seen": turned_round}, "mask", "exactly the 9 keys from the query's own on, in place of"),
        (SINKS, {"seen": Visibility(True, 3, 9).mask}, "mask", "what window 3, 9 sinks shows; the case has window 9"),
        (SINKS, {"seen": both}, "mask", "exactly the sinks that lie inside the window (window 9, 3 sinks);"),
        (WINDOW, {"hide": -20.0}, "finite", "still get 2^-28.8"),
        (FULL, {"again": 2.0}, "double", "some keys 2 times as much as the others: keys 0-3 for query rows 0-39"),
        (FULL, {"add": 70.0}, "divisor", "add up to 0.5, not to 1: your code divides by 140 where 70 keys are visible"),
        (FULL, {"scale": math.log(2.0)}, "scale", "Your scores are the right ones times 0.6931."),
        (FULL, {"scale": 0.0}, "scale", "All visible keys weigh alike, whatever their scores are"),
        (CAUSAL, {"v_head": by_modulo}, "v head", "head 1 of batch 0 reads V of batch 0, kv head 1, not of"),
        (CAUSAL, {"head": by_modulo, "v_head": by_group}, "k head", "head 1 of batch 0 reads K of batch 0, kv head 1"),
        (FULL, {"stale": True}, "rescale", "Within tiles of 32 keys the weights are right, between tiles they are not"),
        (FULL, {"again": 1.5}, "rescale", "some keys 1.5 times as much as the others"),
        (FULL, {"dtype": torch.bfloat16}, "precision", "as if some numbers were rounded to bfloat16"),
        (FULL, {"hide": math.nan, "seen": not_the_first}, "nan", "rows 0-2 of your output are NaN"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_as_what_it_does(case, wrong, kind, words, monkeypatch):
    found = facts(monkeypatch, case, **wrong)
    assert found[0].kind == kind and words in " ".join(fact.sentence for fact in found[:2]), found


def test_a_wrong_case_without_a_known_cause_is_told_what_was_measured(tmp_path):
    text = solution("p3").replace("p.to(v.dtype), v,", "p.to(tl.float16).to(v.dtype), v,")
    (result,) = grade_text(tmp_path, "p3", text, names=["fewer tokens than a tile"])
    assert "rounded to float16 before the end" in result.sentence and result.facts.measured


@pytest.mark.thorough
def test_the_line_of_the_first_nan_is_told(tmp_path):
    text = solution("p4").replace("    row_max = new_max\n", "    pass\n").replace("acc * alpha[:, None])", "acc)")
    (result,) = grade_text(tmp_path, "p4", text, names=["whole tiles"])
    line = next(i for i, words in enumerate(text.splitlines(), 1) if "alpha = tl.exp2" in words)
    assert any(f"number that is NaN is made in line {line}," in said for said in result.facts.measured), result.facts


@pytest.mark.thorough
def test_what_a_mistake_depends_on_is_told(tmp_path):
    text = solution("p1").replace(
        "row_max = scores.amax(dim=-1, keepdim=True)", "row_max = torch.zeros_like(scores[..., :1])"
    )
    (result,) = grade_text(tmp_path, "p1", text, names=["scores falling along the keys"])
    line = next(i for i, words in enumerate(text.splitlines(), 1) if "p = torch.exp(scores - row_max)" in words)
    said = result.facts.measured
    assert "The same case comes out right with numbers of ordinary size." in said
    assert any(f"number that is infinite is made in line {line}," in each for each in said)


@pytest.mark.thorough
def test_an_unsafe_kernel_is_told_the_line_of_its_address(tmp_path):
    """The load is told by the fault; where its address comes from, by what the lines before add to it."""
    text = solution("p5").replace("kv_head * stride_vh", "head * stride_vh")
    line = next(i for i, words in enumerate(text.splitlines(), 1) if words.strip().startswith("V += "))
    results = grade_text(tmp_path, "p5", text, names=["whole tiles", "no sharing"])
    (unsafe,) = [result for result in results if result.outcome is Outcome.UNSAFE]
    assert "outside V" in unsafe.sentence and f"Line {line} adds " in unsafe.sentence, unsafe.sentence
