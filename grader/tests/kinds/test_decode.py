"""x4's kind: its right answer beside a loop over rows, its known mistakes, its cases, and what is said of reads."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from grader.core.protocol.reports import AddressTable, BlockAddress, Fault
from grader.engine import reads as engine
from grader.kinds.decode import addresses, contract, inputs, mistakes, reads, same_bits
from grader.kinds.decode.cases import CASES, PROBLEM, DecodeCase
from grader.kinds.decode.kind import KIND
from grader.kinds.decode.reference import REFERENCE
from grader.render import drawing, strips
from grader.result import Outcome
from grader.tests.support import grade_text, solution

NAMES = {case.name: case for case in CASES}


def expected_of(case, seed=0):
    placed = inputs.make(case, seed)
    return KIND.expect(PROBLEM, case, placed, "cpu"), placed


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
    o = expected.values["o"]
    for b in range(case.B):
        for h in range(case.Hq):
            for i in range(case.Nq):
                assert torch.allclose(o[b, h, i], attend_row(case, placed, b, h, i), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("piece", [16, 64, 512])
def test_the_length_of_a_piece_changes_no_value(piece):
    expected, _ = expected_of(DecodeCase("paged", lengths=(70, 100, 45), Nq=4, page=12, window=40, sink="normal"))
    o = REFERENCE.run(expected.given, {"piece": lambda x: piece}).o
    assert torch.allclose(o, expected.values["o"], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["bfloat16", "head dim 128", "values with a large offset"])
def test_a_sum_in_the_dtype_is_beyond_the_allowance(name):
    case = replace(NAMES[name], dtype="bfloat16", Nq=1, lengths=(300,), room=None)
    expected, _ = expected_of(case)
    o, allowed = expected.values["o"], expected.allowed["o"]
    x = REFERENCE.run(expected.given)
    p = (x.scores - x.scores.amax(-1, keepdim=True)).exp()
    acc = torch.zeros(x.q.shape, dtype=torch.bfloat16)
    for key in range(case.N):
        acc += p[..., key : key + 1].bfloat16() * x.values[:, :, key : key + 1].bfloat16()
    assert ((acc.double() / p.sum(-1, keepdim=True) - o).abs() > allowed).any()


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
    first, second = (KIND.expect(PROBLEM, *of, "cpu").values["o"] for of in ((case, placed), (other, again)))
    _, _, sequences = same_bits.CALLS[case.like]
    for at, b in enumerate(sequences(case)):
        assert torch.allclose(second[at], first[b], rtol=1e-12, atol=1e-14)
    assert (other.tokens, other.B, other.page) != (case.tokens, case.B, case.page)
    rounded = [x.to(getattr(torch, case.dtype)) for x in (first, second)]
    same, allowed = rounded[0][list(sequences(case))], torch.full(first.shape, 0.1)
    assert same_bits.compare(case, rounded[0], same, allowed) is None
    assert "other bits" in same_bits.compare(case, rounded[0], same + 0.1, allowed).sentence
    assert "gets wrong values" in same_bits.compare(case, rounded[0], same + 1.0, allowed).sentence


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

CASE = DecodeCase("reads", lengths=(30, 60), Hkv=1, window=20, rest="NaN")


def rows(*parts, case=CASE):
    """(first, last, 1) in memory of (sequence, kv head, first token, last token) of a dense cache."""
    starts = ((b * case.Hkv + h) * case.tokens for b, h, _, _ in parts)
    return [(start + first, start + last, 1) for start, (_, _, first, last) in zip(starts, parts, strict=True)]


def line(parts, name="v_cache", number=7, place=(0, 0, 0), case=CASE):
    return engine.Line("kernel", number, name, [(place, rows(*parts, case=case))])


def log(*lines, case=CASE, loads=()):
    shapes = dict(zip(PROBLEM.tensors, KIND.shapes(case), strict=True))
    return engine.Log(reads.READS, case, KIND.axes, shapes, lines, dict(loads))


@pytest.mark.parametrize(
    ("parts", "words", "question"),
    [
        ([(0, 0, 10, 31)], "Line 7 reads values 30-31 of sequence 0, where values 10-29 are needed.", reads.PAST),
        ([(1, 0, 38, 59)], "Line 7 reads values 38-39 of sequence 1, where values 40-59 are needed.", reads.BEFORE),
    ],
)
def test_what_is_read_and_not_seen_is_told_by_its_line(parts, words, question):
    (fact,) = engine.facts(log(line(parts)), nan=True)
    assert fact.sentence == words and fact.line == 7 and fact.question == question
    stale = engine.facts(log(line(parts), case=replace(CASE, rest="stale")), nan=True)  # numbers: no NaN comes of them
    assert all("No program reads" in fact.sentence for fact in stale)


def test_a_page_that_no_sequence_has_is_told_by_its_place_in_memory():
    case = NAMES["a window in pages, NaN in all others"]
    table = inputs.block_table(case)
    unused = int(table[0, -1])
    first = unused * case.page * case.Hkv
    (fact,) = engine.facts(
        log(engine.Line("kernel", 7, "v_cache", [((0, 0, 0), [(first, first, 1)])]), case=case), True
    )
    assert fact.sentence == f"Line 7 reads v_cache[{unused}, 0, 0], which belongs to nothing that is needed."
    assert fact.question == reads.WHOSE


def test_what_is_seen_and_never_read_is_told():
    lines = [line([(0, 0, 10, 29), (1, 0, 40, 58)], name) for name in reads.CACHES]
    (fact,) = engine.facts(log(*lines), nan=False)
    assert fact.sentence == "No program reads key 59 of sequence 1, where keys 40-59 are needed."
    whole = [line([(0, 0, 10, 29), (1, 0, 40, 59)], name) for name in reads.CACHES]
    assert engine.facts(log(*whole), nan=False) == []


@pytest.mark.parametrize(
    ("keys", "values", "question"),
    [
        ([(0, 0, 10, 29), (1, 0, 40, 50)], [(0, 0, 10, 29), (1, 0, 40, 50)], reads.LOST),
        ([(0, 0, 12, 29), (1, 0, 40, 59)], [(0, 0, 12, 29), (1, 0, 40, 59)], reads.OLDEST),
        ([(0, 0, 10, 29), (1, 0, 40, 59)], [(0, 0, 10, 29)], reads.EITHER),
    ],
)
def test_what_is_asked_of_lost_keys_depends_on_which_they_are(keys, values, question):
    (fact,) = engine.missing(log(line(keys, "k_cache"), line(values)))
    assert fact.question == question


def test_a_head_that_is_never_read_and_rows_of_pages_ask_their_own_questions():
    two = replace(CASE, Hkv=2)
    parts = [(0, 0, 10, 29), (1, 0, 40, 59), (1, 1, 40, 59)]
    (head,) = engine.missing(log(*(line(parts, name, case=two) for name in reads.CACHES), case=two))
    assert "kv head 1" in head.sentence and head.question == mistakes.GROUP
    assert reads.asks(replace(CASE, page=8))["scattered"][0] == mistakes.IN_PAGES and "scattered" not in reads.asks(
        CASE
    )


def test_keys_of_pages_are_found_by_the_table():
    case = NAMES["a window in pages, NaN in all others"]
    k, _ = inputs.dense(case, inputs.make(case, 0))
    flat = inputs.make(case, 0)[1].tensor.flatten(0, 2).double()
    found = reads.index(case, "k_cache", np.arange(len(flat)))
    for row, (sequence, head, token) in zip(flat, found.tolist(), strict=True):
        assert sequence == engine.NOWHERE or torch.equal(row.nan_to_num(), k[sequence, head, token].nan_to_num())
    for b, length in enumerate(case.lengths):
        assert set(range(case.first_key(length), length)) <= set(found[found[:, 0] == b, 2].tolist())


def test_keys_that_two_programs_read_count_twice_where_a_tile_has_all_rows():
    twice = [line([(0, 0, 10, 20)], "k_cache"), line([(0, 0, 20, 29), (1, 0, 40, 59)], "k_cache", place=(1, 0, 0))]
    values = line([(0, 0, 10, 29), (1, 0, 40, 59)])
    loads = {name: 41 * CASE.D for name in reads.CACHES}
    (fact,) = engine.facts(log(*twice, values, loads=loads), nan=False)
    assert fact.sentence == "Two programs read key 20 of sequence 0."
    many = replace(CASE, Hq=20)
    assert engine.facts(log(*twice, values, case=many, loads=loads), nan=False) == []
    halves = {name: 40 * CASE.D for name in reads.CACHES}  # each program half of key 20
    assert engine.facts(log(*twice, values, loads=halves), nan=False) == []


def test_a_row_of_a_sequence_without_tokens_is_told_as_such():
    case = NAMES["lengths below the new tokens"]
    found = SimpleNamespace(unwritten=1, first=(1, 0, 0, 0))
    (fact,) = reads.unwritten(case, None, found)
    assert fact.question == reads.SEES_NONE
    (fact,) = reads.unwritten(case, None, SimpleNamespace(unwritten=1, first=(2, 0, 0, 0)))
    assert fact.question == reads.GRID


def test_the_picture_shows_the_strip_that_tells_most():
    lines = [line([(0, 0, 10, 29)], "k_cache"), line([(1, 0, 30, 55)], "k_cache", place=(1, 0, 1))]
    drawn = engine.draw(log(*lines))["strips"]
    assert drawn["of"] == "sequence 1, kv head 0" and drawn["needed"] == [40, 59]
    assert drawn["rows"][-1] == ["no program", [["missing", 56, 59]]]
    shown = strips.in_text(drawn)
    assert shown[1].endswith("x" * 5 + "o" * 8 + "..") and shown[2].endswith("!!") and len(shown) == 4
    (one,) = drawing.draw({"strips": drawn})
    assert one.layers.keys() == {"seen", "extra", "missing"} and "keys 40 to 59" in one.description


def test_a_further_call_is_judged_for_what_it_touches(tmp_path):
    text = solution("x4").replace("    return o\n", "    if q.shape[0] == 1:\n        q.mul_(2)\n    return o\n")
    (result,) = grade_text(tmp_path, "x4", text, names=["the same bits alone"])
    assert result.outcome is Outcome.UNSAFE
    assert result.sentence.startswith("In a further call of this case: Your code wrote into its input q")
