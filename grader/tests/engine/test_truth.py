"""What is said of a cause is true: all that fit are named, nothing is read from no numbers, a case says one thing."""

import math
from dataclasses import replace

import pytest
import torch

from grader.engine import compare_values, cross_case, wrong_rows
from grader.engine.cause import Diagnosis
from grader.engine.grading import grade
from grader.engine.kind import AXES
from grader.engine.request import Request
from grader.kinds.attention import answer_cache, causes, inputs, weight_facts
from grader.kinds.attention.cases import Case
from grader.registry import EVERY
from grader.result import Aspect, Cause, Facts, Outcome, Result
from grader.tests.support import grade_text, solution

P1 = EVERY["p1"]
CASE = Case("small", Hq=2, N=9, D=16, dtype="float32")


def found(got):
    """The words of every cause that gives `got` (1, 2, 9, 16), the same for the two heads exchanged."""
    placed = inputs.make(CASE, 0)
    right = answer_cache.expect(P1, CASE, placed, "cpu")
    return [cause.equals for cause in causes.find(P1, CASE, placed, got(right.o), right, P1.kind.known_mistakes)]


def test_two_explanations_that_fit_are_both_named():
    q, k, v = (placed.tensor for placed in inputs.make(CASE, 0))

    def of_the_other_head(o):
        scores = q @ k.flip(1).mT / 4.0
        return scores.softmax(-1) @ v.flip(1)

    named = found(of_the_other_head)
    assert "attention with the kv head after the right one" in named  # of two heads both are the same one
    assert "attention with the kv head before the right one" in named


@pytest.mark.parametrize("value", [0.0, float("nan")])
def test_nothing_is_read_from_an_output_without_numbers(value):
    assert found(lambda o: torch.full(o.shape, value)) == []


def said_of_rows(change, axes=AXES, of=lambda o: o):
    """What is measured on an output that is `change` of the right one."""
    right = answer_cache.expect(P1, CASE, inputs.make(CASE, 0), "cpu")
    o, allowed = of(right.o), of(right.allowed_o)
    return " ".join(fact.sentence for fact in wrong_rows.tell(change(o).float(), o, allowed, "o", axes, ""))


@pytest.mark.parametrize("many", [18, 9])
def test_what_rows_are_is_told(many, monkeypatch):
    """Of a large output in the head that has most wrong ones."""
    monkeypatch.setattr(wrong_rows, "MANY", many)
    said = said_of_rows(lambda o: torch.stack([o[:, 0], o[:, 1].roll(2, dims=1)], 1))
    one, other = "batch 0, head 1, row 0", "batch 0, head 1, row 7"
    assert said == f"o of {one} is the right one of {other}, and 8 more rows are those of others."
    said = said_of_rows(lambda o: o.flip(0), ("row",), lambda o: o[0, 0, :, 0])
    assert said == "o of element 0 is the right one of element 8, and 7 more rows are those of others."
    assert said_of_rows(lambda o: 2.5 * o).endswith("row of o is the right one times a number, the first times 2.5.")
    said = said_of_rows(lambda o: o + 0.005 * o.abs().max())
    assert said.startswith("The largest error is 5e-03 of the largest number in o: nearly right, ")
    assert said_of_rows(lambda o: o + 1.0) == said_of_rows(lambda o: o + math.nan) == ""


def test_an_lse_of_rounded_probabilities_is_told():
    case = replace(CASE, dtype="float16")
    placed = inputs.make(case, 0)
    q, k, _ = (each.tensor.double() for each in placed)
    scores = q @ k.mT * case.scale
    row_max, expected = scores.amax(-1, keepdim=True), scores.logsumexp(-1)
    rounded = (scores - row_max).exp().half().sum(-1).float()
    (cause,) = causes.find_lse_causes(case, placed, row_max.squeeze(-1) + rounded.log(), expected)
    assert cause.equals == "that of probabilities rounded to float16 before their sum is taken"
    assert causes.find_lse_causes(case, placed, expected + 1e-3, expected) == []


@pytest.mark.parametrize(("divisors", "words"), [
    ((5, 7), "beside the sums of the tiles: it is 1 too"), ((1, 1), "over all tiles"), ((2, 3), "the last tile alone"),
])  # fmt: skip
def test_what_a_row_is_divided_by_leads_to_the_sum(divisors, words):
    assert words in weight_facts.question_on_sum(torch.tensor(divisors).double(), torch.tensor([4, 6]))


def wrong(name, *equals, nan=0):
    diagnosis = Diagnosis("output", "Every row is wrong.", [Cause(words, "why?", "") for words in equals])
    got = torch.ones(1, 1, 4)
    got[..., :nan] = math.nan
    facts = Facts(mismatch=compare_values.mismatch(got, torch.zeros(1, 1, 4), torch.zeros(1, 1, 4)))
    return Result("p1", name, Aspect.CORRECT, Outcome.WRONG, facts=facts, diagnosis=diagnosis)


def check(results, explains_all=lambda kind: False):
    cross_case.check(results, {}, lambda *_: (), explains_all)


def test_a_case_without_a_cause_names_the_one_that_shows_it():
    first, second = wrong("long row"), wrong("ragged tail", "a window of 33")
    check([first, second])
    assert first.diagnosis.sentence == 'Every row is wrong. Case "ragged tail" says more: look at it first.'
    assert second.diagnosis.sentence == "Your output equals a window of 33. Every row is wrong."


def test_an_output_without_numbers_refutes_nothing():
    """What must fit every failure need not fit one that is all NaN: no cause is read from that."""
    for nan, stands in ((4, True), (3, False)):
        some, none = wrong("rows of very different size", "no maximum"), wrong("rising", nan=nan)
        check([some, none], explains_all=lambda kind: True)
        assert bool(some.diagnosis.causes) is stands


def test_a_case_that_was_not_asked_refutes_nothing():
    for asked in (True, False):
        some, long = wrong("whole tiles", "no maximum"), wrong("long row")
        long.diagnosis.evidence["asked"] = asked
        check([some, long], explains_all=lambda kind: True)
        assert bool(some.diagnosis.causes) is not asked


def test_nan_alone_is_no_witness_where_another_case_has_wrong_numbers():
    for nan, stands in ((4, True), (0, False)):
        some, other = wrong("long row", "the last tile alone", nan=4), wrong("ragged tail", nan=nan)
        check([some, other])
        assert bool(some.diagnosis.causes) is stands


def test_a_cause_of_hardly_any_of_many_cases_is_chance():
    for count, stands in ((19, True), (20, False)):
        some = wrong("bfloat16", "log2(e) missing from the scale")
        check([some, *(wrong(f"case {number}") for number in range(1, count))])
        assert bool(some.diagnosis.causes) is stands


def test_a_rare_cause_stands_unless_another_wrong_case_would_show_it():
    case = replace(P1.cases[0], name="other")
    for shown, stands in (({"a scale"}, False), (set(), True)):
        results = [wrong("one", "a scale"), wrong("other"), *(wrong(f"case {number}") for number in range(10))]
        cross_case.check(results, {"other": case}, lambda *_, shown=shown: shown, lambda kind: False)
        assert bool(results[0].diagnosis.causes) is stands


def test_one_case_alone_says_what_it_says_among_all(tmp_path):
    source = solution("p1").replace("q.float() @ k.float()", "q.float() @ k.float().roll(1, 1)")
    assert source != solution("p1")
    problem = replace(P1, memory_cases=(), cases=tuple(case for case in P1.cases if case.N < 50 or case.Hq > 1))
    (tmp_path / problem.module).write_text(source, "utf-8")
    whole = Request(tmp_path, (problem,), None, "cpu", 0, hints=False)
    among_all = {result.case: result.sentence for result in grade(whole, 1) if result.outcome is Outcome.WRONG}
    for name in ("whole tiles", "ragged tail"):
        (alone,) = grade(replace(whole, names=frozenset([name]), hear_others=True), 1)
        assert alone.sentence == among_all[name] and "; or " not in alone.sentence
    (unheard,) = grade(replace(whole, names=frozenset(["whole tiles"])), 1)
    assert "; or " in unheard.sentence  # two heads alone cannot tell which neighbour it is


@pytest.mark.parametrize(
    ("names", "ends"),
    [
        ({"a": "b", "b": "c", "c": ""}, ["c", "c", ""]),
        ({"a": "b", "b": "a", "c": "a"}, ["", "", ""]),
        ({"a": "z"}, ["z"]),
    ],
)
def test_a_case_names_the_last_of_a_chain_and_none_of_a_circle(names, ends):
    results = [
        Result("p1", case, Aspect.CORRECT, Outcome.WRONG, diagnosis=Diagnosis("output", "", shown_by=other))
        for case, other in names.items()
    ]
    cross_case.follow_pointers(results)
    assert [result.diagnosis.shown_by for result in results] == ends


def test_another_default_is_told(tmp_path):
    source = solution("p5").replace("is_causal=True", "is_causal=False")
    names = ["every batch and head its own", "whole tiles"]  # one leaves is_causal out
    wrong = [result for result in grade_text(tmp_path, "p5", source, names=names) if result.outcome is Outcome.WRONG]
    assert [result.facts.question for result in wrong] == ["what is the default of is_causal?"]


@pytest.mark.thorough
def test_what_was_measured_of_a_few_cases_is_pointed_to_by_the_others(tmp_path):
    source = solution("p3").replace('scores, float("-inf"))', 'float("-inf"), scores)')
    results = [result for result in grade_text(tmp_path, "p3", source) if result.outcome is Outcome.WRONG]
    pointed = {result.facts.shown_by for result in results if not result.facts.measured}
    assert len(results) > 40 and pointed == {"fewer tokens than a tile"}


@pytest.mark.thorough
def test_a_case_with_other_tiles_refutes_nothing(tmp_path):
    """With tiles of 64 keys a row of 40 is never rescaled: that it passes says nothing of tiles of 32."""
    source = solution("p4")
    assert source.count("acc * alpha[:, None]") == 1
    (tmp_path / EVERY["p4"].module).write_text(source.replace("acc * alpha[:, None]", "acc"), "utf-8")
    results = grade(Request(tmp_path, (EVERY["p4"],), None, "cpu", 0, hints=False), lanes=1)
    (whole,) = [result for result in results if result.case == "whole tiles"]
    assert "acc is not rescaled when the maximum changes" in whole.sentence
