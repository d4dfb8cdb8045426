"""The catalogue of mistakes in x1's kernel: what it gives with lists walked, or a kind masked, wrongly."""

import itertools
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import torch

from grader.engine.mistakes import about
from grader.kinds.attention import known_mistakes, mask_mistakes, softmax_mistakes, tile_visits
from grader.kinds.attention.known_mistakes import SCALE, KnownMistake, with_zeros
from grader.kinds.block_sparse import tile_lists
from grader.kinds.block_sparse.tile_lists import WORD, drop_last_bits, reverse_each_word, reverse_words
from grader.kinds.block_sparse.wrong_rules import LISTS

KINDS = "FULL", "CAUSAL", "PARTIAL"
# A walk over the lists as the kernel does it: each step a function of the place x where it is. A mistake replaces some.
USUAL = {
    "map": lambda x: (x.batch, x.head),
    "line": lambda x: 4 * (x.map * x.rows + x.row),  # where a row's four numbers begin in `starts`
    **{f"{kind} entries": lambda x: x.entries for kind in KINDS},
    "place": lambda x: x.place,  # in `bits`
    "FULL": lambda x: x.every,  # the pairs that a tile shows
    "CAUSAL": lambda x: x.q >= x.k,
    "PARTIAL": lambda x: x.bits,
}
OWN = "a triangle of the tile's own rows and columns: which positions are compared?"
SIGN = "a word has 32 bits, the last of them is the sign: does your test for a 1 see it?"


def has_heads(case):
    return case.maps[1] > 1


def has_batches(case):
    return case.maps[0] > 1


def has_both(case):
    return min(case.maps) > 1


def is_square(case):
    return case.block[0] == case.block[1]


def ask(question, *mistakes):
    """Mistakes with one question: (what attention it is, the steps, when it can show if not always) each."""
    return about(question, LISTS, *((f"attention {words}", *rest) for words, *rest in mistakes))


def shown(kind, words, step, *when):
    return f"whose {kind} tiles {words}", {kind: step}, *when


def loops(kind):
    """Mistakes in the loop over the tiles of one kind."""
    step, leaves_out = f"{kind} entries", f"whose loop over the {kind} tiles leaves out the"
    return ask(
        f"from which number of `starts` to which do the {kind} tiles go?",
        (f"without its {kind} tiles", {step: lambda x: ()}),
        (f"{leaves_out} first of each row", {step: lambda x: x.entries[1:]}),
        (f"{leaves_out} last of each row", {step: lambda x: x.entries[:-1]}),
    )


WALKS = (
    *(mistake for kind in KINDS[1:] for mistake in ask(
        f"what hides a pair in a {kind} tile?", (f"that takes {kind} tiles for FULL ones", {kind: USUAL["FULL"]}))),
    *loops("FULL"), *loops("CAUSAL"), *loops("PARTIAL"),
    *ask("which of its loops does a kind belong to, and which mask belongs to it?",
         ("that masks PARTIAL tiles as CAUSAL ones", {"PARTIAL": USUAL["CAUSAL"]})),
    *ask("which keys of a CAUSAL tile does its first row see, and which its last?",
         shown("CAUSAL", "show the other half", lambda x: x.q <= x.k),
         shown("CAUSAL", "hide their diagonal", lambda x: x.q > x.k),
         shown("CAUSAL", "show one key too many", lambda x: x.q + 1 >= x.k)),
    *ask(OWN, shown("CAUSAL", "compare the positions of tokens", lambda x: x.q + x.q_start >= x.k + x.k_start),
         shown("CAUSAL", "compare a row of the tile with a token", lambda x: x.q >= x.k + x.k_start)),
    *ask("which bit of which word is column c?",
         shown("PARTIAL", "have the bits of each word in the reverse order", lambda x: reverse_each_word(x.bits)),
         shown("PARTIAL", "have their words in the reverse order", lambda x: reverse_words(x.bits)),
         shown("PARTIAL", "all have the words of the first columns",
               lambda x: x.bits[:, :WORD].repeat(1, x.bits.shape[1] // WORD))),
    *ask(SIGN, shown("PARTIAL", "hide the last column of each word", lambda x: drop_last_bits(x.bits))),
    *ask("what does a 1 mean?", shown("PARTIAL", "show what their bits hide", lambda x: ~x.bits)),
    *ask("where do the words of a row begin?",
         shown("PARTIAL", "have the bits of their first row in every row", lambda x: x.bits[:1].expand_as(x.bits))),
    *ask("which axis of the bits are the queries?",
         shown("PARTIAL", "have rows and columns exchanged", lambda x: x.bits.T, is_square)),
    *ask("where in `bits` are those of an entry?",
         *((f"whose PARTIAL tiles take their bits {words}", {"place": place}) for words, place in (
             ("by the number of the entry, not by its place", lambda x: x.entry),
             ("by their turn in the row, not by their place", lambda x: x.turn),
             ("by their column, not by their place", lambda x: x.column),
             ("always those of place 0", lambda x: 0)))),
    *ask("whose list does a program walk?",
         *((f"with the lists of {whose}", {"map": pick}, when) for whose, pick, when in (
             ("head 0", lambda x: (x.batch, 0), has_heads),
             ("the kv head", lambda x: (x.batch, x.head // x.group), has_heads),
             ("the next head", lambda x: (x.batch, x.head + 1), has_heads),
             ("batch 0", lambda x: (0, x.head), has_batches),
             ("batch 0 and head 0", lambda x: (0, 0), has_both),
             ("the map b + h", lambda x: divmod(x.batch + x.head, x.heads), has_both)))),
    *ask("which row of `starts` is a program's own, and where does it begin?",
         ("with the lists of query tile 0 in every row of tiles", {"line": lambda x: 4 * x.map * x.rows}),
         ("with rows of `starts` that begin one number after the other, not four",
          {"line": lambda x: x.map * x.rows + x.row}),
         ("with maps in `starts` that begin one row after the other, not all rows of a map",
          {"line": lambda x: 4 * (x.map + x.row)})),
)  # fmt: skip


def every(problem, case, placed, spec, records, sizes, order=None):
    """Every mistake that makes sense for a SparseCase; the arguments are those of attention's catalogue.every."""
    yield from known_mistakes.scales(spec)
    if case.softmax_scale is not None:
        usual = replace(spec, scale=case.D**-0.5)
        yield KnownMistake("attention scaled by 1 / sqrt(D)", "is softmax_scale used where it is given?", SCALE, usual)
    yield from known_mistakes.heads_and_batches(spec, case)
    yield from known_mistakes.strides(spec, placed)
    yield from softmax_mistakes.whole_softmax(spec)
    yield from softmax_mistakes.half_scores(spec, 2)
    yield from lists_walked_wrongly(spec, case)
    visits, steps = tile_visits.visits_of(case, records), None
    if visits is not None:
        yield from mask_mistakes.by_visits(spec, case, visits, tile_visits.past_the_end(case, records, sizes))
        times = visits[spec.weight.bool()]
        if not times.all():
            return  # keys that were never met are what is wrong
        steps = tile_visits.steps_of(records) if case.maps == (1, 1) and times.max() == 1 else None
    if steps:
        for BLOCK_Q, BLOCK_K in sizes:
            stepping = replace(spec, tiles=steps)
            yield from softmax_mistakes.online_softmax(stepping, BLOCK_K, BLOCK_Q, problem.uses_triton)
            yield from softmax_mistakes.half_precision(stepping, BLOCK_K)


def lists_walked_wrongly(spec, case):
    """A kernel that takes its lists, or the kinds in them, for something else."""
    right, _ = weigh(case)
    for walk in WALKS:
        weight, past = weigh(case, walk.changes) if walk.when(case) else (None, None)
        if weight is None or (torch.equal(weight, right) and not past.any()):
            continue
        if past.any():
            changed, words = with_zeros(spec, past, weight), f"{walk.words}, zeros past the end too"
            yield KnownMistake(words, walk.ask, walk.read, changed, by_nan=True)
        yield KnownMistake(walk.words, walk.ask, walk.read, replace(spec, weight=weight), by_nan=True)


def weigh(case, changes=None):
    """(weight (B, Hq, Nq, Nk), how often keys past the end count (B, Hq, Nq, 1)) of a walk with these steps changed;
    None, None where it would leave `bits`."""
    lists, steps, (batches, heads) = tile_lists.cut(case), USUAL | (changes or {}), case.maps
    walked, found = {}, []
    for b, h in np.ndindex(case.B, case.Hq):
        x = SimpleNamespace(batch=b % batches, head=h % heads, heads=heads, group=case.Hq // case.kv_heads)
        batch, head = steps["map"](x)
        number = batch % batches * heads + head % heads
        if number not in walked:
            walked[number] = walk_map(lists, number, steps)
        if walked[number] is None:
            return None, None
        found.append(walked[number])
    both = torch.stack(found).unflatten(0, (case.B, case.Hq))
    return both[..., : case.num_keys], both[..., case.num_keys :].sum(-1, keepdim=True)


def walk_map(lists, number, steps):
    """(Nq, keys in whole tiles), how often each pair of one map counts."""
    (block_q, block_k), numbers, rows = lists.case.block, lists.starts.flatten().tolist(), lists.starts.shape[1]
    x = SimpleNamespace(map=number, rows=rows, every=torch.ones(block_q, block_k))
    x.q, x.k = torch.arange(block_q)[:, None], torch.arange(block_k)[None, :]
    counted = torch.zeros(rows, block_q, lists.kinds.shape[1] * block_k, dtype=torch.double)
    for row in range(rows):
        x.row, x.q_start = row, row * block_q
        line = steps["line"](x)
        for kind, (first, after) in zip(KINDS, itertools.pairwise(numbers[line : line + 4]), strict=True):
            x.entries = range(first, after)
            for turn, entry in enumerate(steps[f"{kind} entries"](x)):
                x.turn, x.entry, x.column, x.place = turn, entry, int(lists.columns[entry]), int(lists.places[entry])
                x.k_start, place = x.column * block_k, steps["place"](x)
                if kind == "PARTIAL":
                    if not 0 <= place < len(lists.bits):
                        return None
                    x.bits = tile_lists.unpacked(lists.bits[place])
                counted[row, :, x.k_start : x.k_start + block_k] += steps[kind](x)
    return counted.flatten(0, 1)[: lists.case.N]
