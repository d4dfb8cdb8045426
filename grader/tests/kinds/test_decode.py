"""x4's kind: its right answer beside a loop over rows, its known mistakes, its cases, and what is said of reads."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from grader.core.protocol.reports import AddressTable, BlockAddress, Fault
from grader.kinds.decode import addresses, causes, contract, inputs, mistakes, picture, reads, same_bits, steps
from grader.kinds.decode.cases import CASES, LONG, PROBLEM, DecodeCase
from grader.kinds.decode.kind import KIND
from grader.render import drawing, strips
from grader.result import Outcome, mistake_pattern
from grader.tests.submissions.broken.mistakes import read
from grader.tests.support import SUBMISSIONS, grade_text, solution, thorough, thorough_but

NAMES = {case.name: case for case in CASES}
# Cases in which every known mistake that applies makes a difference.
SHOWING = (
    DecodeCase("dense", lengths=(70, 100, 5), Nq=3, sink="normal", scale=0.3),
    DecodeCase("paged", lengths=(70, 100, 45), Nq=4, page=12, window=40, sink="normal", scale=0.3),
    DecodeCase("many pieces", lengths=(600,), Nq=2, Hq=2, Hkv=1, tiles=(16, 16)),
    DecodeCase("long tiles", lengths=(250,), tiles=(128, 64)),
    NAMES["new tokens across two pieces"], NAMES["lengths below the new tokens"], NAMES["pages of 16"],
    NAMES["pages of one token"], NAMES["a window and new tokens"], NAMES["softmax_scale of 0"],
    NAMES["rows of very different size"], NAMES["scores that rise"],
)  # fmt: skip


def expected_of(case, seed=0):
    placed = inputs.make(case, seed)
    return steps.expect(case, placed), placed


def attend_row(case, placed, b, h, i):
    """o of one new token, key by key from where it lies."""
    q, k, v = (each.tensor.double() for each in placed)
    beside = inputs.beside(case)
    position = case.lengths[b] - case.Nq + i
    seen = [j for j in range(position + 1) if case.window is None or position - j < case.window]
    if not seen:
        return torch.zeros(case.D, dtype=torch.float64)

    def entry(cache, j):
        if case.page is None:
            return cache[b, h // case.group, j]
        return cache[beside["block_table"][b, j // case.page], j % case.page, h // case.group]

    scores = torch.stack([q[b, h, i] @ entry(k, j) * case.score_scale for j in seen])
    sinks = beside["sink_logits"][h : h + 1].double() if case.sink else scores[:0]
    p = torch.cat([scores, sinks]).softmax(0)[: len(seen)]
    return sum(weight * entry(v, j) for weight, j in zip(p, seen, strict=True))


@pytest.mark.parametrize("name", ["NaN past the lengths", "a window in pages, NaN in all others", "pages of 12",
                                  "sink logits, window and new tokens", "lengths below the new tokens",
                                  "softmax_scale and sink logits", "sink logits of minus infinity"])  # fmt: skip
def test_the_right_answer_is_that_of_a_loop_over_keys(name):
    case = NAMES[name]
    expected, placed = expected_of(case)
    for b in range(case.B):
        for h in range(case.Hq):
            for i in range(case.Nq):
                assert torch.allclose(expected.o[b, h, i], attend_row(case, placed, b, h, i), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("piece", [16, 64, 512])
def test_the_length_of_a_piece_changes_no_value(piece):
    expected, _ = expected_of(SHOWING[1])
    assert torch.allclose(steps.run(expected.given, {"piece": lambda x: piece}).o, expected.o, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["bfloat16", "head dim 128", "values with a large offset"])
def test_careful_kernels_are_within_the_allowance_and_a_sum_in_the_dtype_is_not(name):
    case = replace(NAMES[name], dtype="bfloat16", Nq=1, lengths=(300,), room=None)
    expected, _ = expected_of(case)
    for form in steps.CAREFUL:
        got = steps.careful_kernel(expected.given, *form, torch.bfloat16, False).bfloat16()
        assert ((got.double() - expected.o).abs() <= expected.allowed).all()
    x = steps.run(expected.given)
    p = (x.scores - x.scores.amax(-1, keepdim=True)).exp()
    acc = torch.zeros(x.q.shape, dtype=torch.bfloat16)
    for key in range(case.N):
        acc += p[..., key : key + 1].bfloat16() * x.values[:, :, key : key + 1].bfloat16()
    off = (acc.double() / p.sum(-1, keepdim=True) - expected.o).abs()
    assert (off > expected.allowed).any()


# Cases ----------------------------------------------------------------------------------------------------------------


def test_no_pair_of_classes_is_missing_and_each_pair_is_looked_for():
    assert contract.missing(contract.graded()) == []
    added = next(case for case in reversed(contract.graded()) if case.name.startswith("pairs "))
    assert contract.missing([case for case in contract.graded() if case is not added])


def test_what_may_not_be_read_is_nan_where_the_case_says_so():
    for case in (case for case in contract.graded() if case.rest == "NaN"):
        k, v = inputs.dense(case, inputs.make(case, 0))
        for b, length in enumerate(case.lengths):
            first = case.first_key(length)
            for cache in (k, v):
                assert cache[b, :, first:length].isfinite().all()
                assert cache[b, :, length:].isnan().all() and cache[b, :, :first].isnan().all()


def test_a_page_belongs_to_one_sequence_and_unused_entries_lead_to_none():
    case = NAMES["a window in pages, NaN in all others"]
    table = inputs.block_table(case)
    used = {(b, e): int(table[b, e]) for b, n in enumerate(case.lengths) for e in inputs.used(case, n)}
    rest = {int(table[b, e]) for b in range(case.B) for e in range(table.shape[1]) if (b, e) not in used}
    assert len(set(used.values())) == len(used) and len(rest) == 1 and not rest & set(used.values())


def test_the_table_of_caches_in_a_larger_buffer_is_part_of_a_wider_one():
    case = NAMES["pages in a slice of a larger buffer"]
    placed = inputs.placed_beside(case)["block_table"]
    assert torch.equal(placed.tensor, inputs.block_table(case)) and placed.strides[0] > placed.shape[1]
    assert inputs.placed_beside(NAMES["pages of 16"])["block_table"].tensor.is_contiguous()


def test_integers_and_logits_do_not_depend_on_the_seed_and_the_caches_do():
    case = NAMES["sink logits, window and new tokens"]
    assert torch.equal(inputs.sink_logits(case), inputs.sink_logits(replace(case, lengths=(5,), room=None)))
    one, other = inputs.make(case, 0), inputs.make(case, 1)
    assert not torch.equal(one[0].tensor, other[0].tensor)


@pytest.mark.parametrize("name", [case.name for case in CASES if case.like and not case.gpu])
def test_a_second_call_has_the_same_numbers_for_the_same_sequences(name):
    case = NAMES[name]
    placed = inputs.make(case, 0)
    other, again = same_bits.second(case, placed)
    first, second = steps.expect(case, placed).o, steps.expect(other, again).o
    _, _, sequences = same_bits.CALLS[case.like]
    for at, b in enumerate(sequences(case)):
        assert torch.allclose(second[at], first[b], rtol=1e-12, atol=1e-14)
    assert (other.tokens, other.B, other.page) != (case.tokens, case.B, case.page)
    rounded = [x.to(getattr(torch, case.dtype)) for x in (first, second)]
    same, allowed = rounded[0][list(sequences(case))], torch.full(first.shape, 0.1)
    assert same_bits.compare(case, rounded[0], same, allowed) == ""
    assert "other bits" in same_bits.compare(case, rounded[0], same + 0.1, allowed)
    assert "gets wrong values" in same_bits.compare(case, rounded[0], same + 1.0, allowed)


# The known mistakes ---------------------------------------------------------------------------------------------------

KINDS = list(dict.fromkeys(mistake_pattern(each.words) for each in causes.EVERY))


@pytest.mark.parametrize("kind", thorough_but(KINDS[::12], KINDS))
def test_a_known_mistake_is_named(kind):
    for mistake in (each for each in causes.EVERY if mistake_pattern(each.words) == kind):
        for case in (case for case in SHOWING if mistake.applies(case)):
            expected, _ = expected_of(case)
            values = next(iter(causes.answers(mistake, case, expected.given)))
            if not causes.right(expected, values):
                found = causes.find(case, values.float(), expected)
                assert kind in {cause.kind for cause in found}, mistake.words
                assert all(cause.question.endswith("?") and cause.section for cause in found)
                break
        else:
            raise AssertionError(f"{mistake.words}: no case of {len(SHOWING)} shows it")


def test_a_case_that_passes_refutes_what_it_would_show():
    case = NAMES["sink logits"]
    expected, _ = expected_of(case)
    kinds = {"attention without the sink logits", "attention without the window"}
    assert causes.would_show(case, expected, kinds) == {"attention without the sink logits"}
    none = replace(case, Hq=1, Hkv=1, sink="-inf")  # a logit of minus infinity is none
    assert causes.would_show(none, expected_of(none)[0], kinds) == set()


def test_a_row_that_is_the_right_one_times_a_number_is_told():
    expected, _ = expected_of(NAMES["two new tokens"])
    ((fact, *_), none) = causes.scaled_rows(2.5 * expected.o, expected), causes.scaled_rows(expected.o + 0.5, expected)
    assert "the first times 2.5" in fact.sentence and none == []


def fault(argument="K", kind="out-of-bounds load", first=0):
    at = BlockAddress(first, [32, 16], [16, 1])
    return Fault(kind, "kernel", argument, 7, 4, "k = tl.load(k_ptrs)", shape=[19, 16, 2, 16], at=at)


@pytest.mark.parametrize(
    ("of", "case", "words"),
    [
        (fault("PartO", "element written twice by one store"), "one piece", "two rows of the tile have the same place"),
        (fault("PartO"), "one piece", "how many pieces of a row does the merge load"),
        (fault(first=-48), "one piece", "the tile begins before the first key of K"),
        (fault(), "pages of 16", "which page has key j, which row of the page is it"),
        (fault(), "one piece", ""),
        (fault("Q"), "pages of 16", ""),
        (fault("PartO", "out-of-bounds store"), "one piece", ""),
    ],
)
def test_the_addresses_of_a_fault_are_told_in_the_words_of_decode(of, case, words):
    inputs_of = {"Q": "q", "K": "k_cache", "PartO": None}
    tables = [AddressTable(name, of, "load", [], [], []) for name, of in inputs_of.items()]
    said = addresses.explain(NAMES[case], SimpleNamespace(addresses=tables), of)
    assert words in said if words else said == ""


# Reads ----------------------------------------------------------------------------------------------------------------


def line(stretches, name="v_cache", number=7, place=(0, 0, 0)):
    return reads.Line("kernel", number, name, [(place, stretches)])


CASE = DecodeCase("reads", lengths=(30, 60), Hkv=1, window=20)


@pytest.mark.parametrize(
    ("stretches", "words"),
    [
        ([(0, 0, 10, 31)], "Line 7 reads values 30-31 of sequence 0, which has 30 tokens."),
        ([(1, 0, 38, 59)], "Line 7 reads values 38-39 of sequence 1; the first key that a new token sees is 40."),
        ([(reads.NOBODY, 0, 4, 4)], "Line 7 reads values of page 4, where nothing is that a new token sees."),
    ],
)
def test_what_is_read_and_not_seen_is_told_by_its_line(stretches, words):
    (fact,) = reads.facts(CASE, [line(stretches)], nan=True)
    assert fact.sentence == words and fact.line == 7


def test_what_is_seen_and_never_read_is_told():
    lines = [line([(0, 0, 10, 29), (1, 0, 40, 58)], name) for name in reads.NAMES]
    (fact,) = reads.facts(CASE, lines, nan=False)
    assert fact.sentence == "No program reads the keys 59 of sequence 1; a new token sees keys 40 to 59."
    whole = [line([(0, 0, 10, 29), (1, 0, 40, 59)], name) for name in reads.NAMES]
    assert reads.facts(CASE, whole, nan=False) == []


@pytest.mark.parametrize(
    ("keys", "values", "question"),
    [
        ([(0, 0, 10, 29), (1, 0, 40, 50)], [(0, 0, 10, 29), (1, 0, 40, 50)], reads.LOST),
        ([(0, 0, 12, 29), (1, 0, 40, 59)], [(0, 0, 12, 29), (1, 0, 40, 59)], reads.OLDEST),
        ([(0, 0, 10, 29), (1, 0, 40, 59)], [(0, 0, 10, 29)], reads.EITHER),
    ],
)
def test_what_is_asked_of_lost_keys_depends_on_which_they_are(keys, values, question):
    (fact,) = reads.missing(CASE, [line(keys, "k_cache"), line(values, "v_cache")])
    assert fact.question == question


def test_a_head_that_is_never_read_and_rows_of_pages_ask_their_own_questions():
    two = replace(CASE, Hkv=2)
    (head,) = reads.missing(two, [line([(0, 0, 10, 29), (1, 0, 40, 59), (1, 1, 40, 59)], name) for name in reads.NAMES])
    assert "kv head 1" in head.sentence and head.question == mistakes.GROUP
    paged = replace(CASE, page=8)
    parts = [(0, 0, 12, 15), (0, 0, 20, 29), (1, 0, 40, 59)]
    (page,) = reads.missing(paged, [line(parts, name) for name in reads.NAMES])
    assert page.question == mistakes.IN_PAGES


def test_a_row_of_a_sequence_without_tokens_is_told_as_such():
    case = NAMES["lengths below the new tokens"]
    found = SimpleNamespace(unwritten=1, first=(1, 0, 0, 0))
    (fact,) = reads.unwritten(case, None, found)
    assert fact.question == reads.SEES_NONE
    (fact,) = reads.unwritten(case, None, SimpleNamespace(unwritten=1, first=(2, 0, 0, 0)))
    assert fact.question == reads.GRID


def test_the_picture_shows_the_strip_that_tells_most():
    lines = [line([(0, 0, 10, 29)], "k_cache"), line([(1, 0, 30, 55)], "k_cache", place=(1, 0, 1))]
    drawn = picture.draw(CASE, lines, {})["strips"]
    assert drawn["place"] == [1, 0] and drawn["missing"] == [[56, 59]] and drawn["seen"] == [40, 59]
    shown = strips.in_text(drawn)
    assert shown[1].endswith("x" * 5 + "o" * 8 + "..") and shown[2].endswith("!!") and len(shown) == 4
    (one,) = drawing.draw({"strips": drawn})
    assert one.layers.keys() == {"seen", "extra", "missing"} and "keys 40 to 59" in one.description


# Kernels --------------------------------------------------------------------------------------------------------------

FORMS = {form.name: form for form in read(SUBMISSIONS / "honest" / "x4_forms.txt")}
ASKED = (
    "lengths that differ", "eight new tokens, groups of 4", "more rows than a tile", "new tokens across two pieces",
    "lengths below the new tokens", "pages of 12", "pages of 64", "a window in pages, NaN in all others", "many pieces",
    "sink logits, window and new tokens", "sink logits of minus infinity", "bfloat16", "float16", "scores that rise",
    "a long sum in one piece",
    "q and the caches each with another layout", "the same bits alone, window and sink logits",
    "the same bits with more room", "the same bits beside others, in pages", "the same bits in a dense cache", LONG,
    "a short window in long caches",
)  # fmt: skip
QUICK = ("natural exponentials", "one kernel, the keys in order")


@pytest.mark.parametrize("name", thorough_but(QUICK, FORMS))
def test_an_honest_form_passes(name, tmp_path):
    results = grade_text(tmp_path, "x4", FORMS[name].apply(solution("x4")), names=ASKED)
    wrong = [f"{r.case}: {r.outcome.value}: {r.sentence}" for r in results if r.outcome is not Outcome.PASSED]
    assert wrong == [] and len(results) == len(ASKED)


@pytest.mark.parametrize("seed", [thorough(seed) for seed in range(1, 4)])
def test_the_solution_passes_with_other_numbers(seed, tmp_path):
    results = grade_text(tmp_path, "x4", solution("x4"), seed=seed)
    assert [r.sentence for r in results if r.outcome is not Outcome.PASSED] == []


def test_the_answer_is_worked_out_once():
    case = NAMES["one token"]
    assert KIND.expect(case, inputs.make(case, 0), "cpu") is KIND.expect(case, inputs.make(case, 0), "cpu")
    assert PROBLEM.points == 0 and PROBLEM.keywords[0] == "lengths"
