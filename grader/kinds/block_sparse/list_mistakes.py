"""The catalogue of mistakes in x1's kernel: what it gives with lists walked, or a kind masked, wrongly."""

import itertools
from dataclasses import replace

import torch

from grader.kinds.attention import known_mistakes, mask_mistakes, softmax_mistakes, tile_visits
from grader.kinds.attention.known_mistakes import SCALE, KnownMistake, with_zeros
from grader.kinds.block_sparse import tile_lists
from grader.kinds.block_sparse.patterns import CAUSAL, FULL, PARTIAL

LISTS = "notebooks/05_block_sparse.ipynb: The lists"
OF_KIND = {FULL: "FULL", CAUSAL: "CAUSAL", PARTIAL: "PARTIAL"}


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
            yield from softmax_mistakes.online_softmax(stepping, BLOCK_K, BLOCK_Q, problem.uses_triton, known=True)
            yield from softmax_mistakes.half_precision(stepping, BLOCK_K)


def lists_walked_wrongly(spec, case):
    """A kernel that takes its lists, or the kinds in them, for something else."""
    lists = tile_lists.cut(case)
    right, _ = Walk(lists).weight(case)
    for equals, question, walk in (*kinds(case, lists), *places(lists), *maps(case, lists)):
        weight, past = walk.weight(case)
        if weight is None or (torch.equal(weight, right) and not past.any()):
            continue
        if past.any():
            changed = with_zeros(spec, past, weight)
            yield KnownMistake(f"{equals}, zeros past the end too", question, LISTS, changed, kind="mask")
        yield KnownMistake(equals, question, LISTS, replace(spec, weight=weight), kind="mask")


def kinds(case, lists):
    """(words, question, Walk) for each kind masked in another way."""
    (block_q, block_k), every = case.block, torch.ones(case.block, dtype=torch.bool)
    row, column = torch.arange(block_q)[:, None], torch.arange(block_k)[None, :]
    not_last = (torch.arange(block_k) + 1) % tile_lists.WORD != 0
    for kind, walk in ((CAUSAL, Walk(lists, triangle=every)), (PARTIAL, Walk(lists, unpack=lambda tile: every))):
        question = f"what hides a pair in a {OF_KIND[kind]} tile?"
        yield f"attention that takes {OF_KIND[kind]} tiles for FULL ones", question, walk
    for kind, name in OF_KIND.items():
        question = f"from which number of `starts` to which do the {name} tiles go?"
        yield f"attention without its {name} tiles", question, Walk(lists, without=kind)
        for which, ends in (("first", (1, 0)), ("last", (0, 1))):
            words = f"attention whose loop over the {name} tiles leaves out the {which} of each row"
            yield words, question, Walk(lists, shorter=(kind, *ends))
    question = "which of its loops does a kind belong to, and which mask belongs to it?"
    yield "attention that masks PARTIAL tiles as CAUSAL ones", question, Walk(lists, unpack=lambda t: row >= column)
    diagonal = "which keys of a CAUSAL tile does its first row see, and which its last?"
    yield "attention whose CAUSAL tiles show the other half", diagonal, Walk(lists, triangle=row <= column)
    yield "attention whose CAUSAL tiles hide their diagonal", diagonal, Walk(lists, triangle=row > column)
    yield "attention whose CAUSAL tiles show one key too many", diagonal, Walk(lists, triangle=row + 1 >= column)
    question = "a triangle of the tile's own rows and columns: which positions are compared?"
    yield "attention whose CAUSAL tiles compare the positions of tokens", question, Walk(lists, rows_from="the first")
    half = "attention whose CAUSAL tiles compare a row of the tile with a token"
    yield half, question, Walk(lists, rows_from="the tile")
    order = "which bit of which word is column c?"
    split = (block_k // tile_lists.WORD, tile_lists.WORD)
    for equals, question, unpack in (
        ("have the bits of each word in the reverse order", order, lambda t: t.unflatten(1, split).flip(2).flatten(1)),
        ("have their words in the reverse order", order, lambda t: t.unflatten(1, split).flip(1).flatten(1)),
        ("all have the words of the first columns", order, lambda t: t[:, : split[1]].repeat(1, split[0])),
        (
            "hide the last column of each word",
            "a word has 32 bits, the last of them is the sign: does your test for a 1 see it?",
            lambda t: t & not_last,
        ),
        ("show what their bits hide", "what does a 1 mean?", lambda t: ~t),
        (
            "have the bits of their first row in every row",
            "where do the words of a row begin?",
            lambda t: t[:1].expand_as(t),
        ),
    ):
        yield f"attention whose PARTIAL tiles {equals}", question, Walk(lists, unpack=unpack)
    if block_q == block_k:
        words = "attention whose PARTIAL tiles have rows and columns exchanged"
        yield words, "which axis of the bits are the queries?", Walk(lists, unpack=lambda tile: tile.T)


def places(lists):
    """The bits of another tile."""
    question = "where in `bits` are those of an entry?"
    for words, place in (
        ("by the number of the entry, not by its place", lambda entry, nth, column: entry),
        ("by their turn in the row, not by their place", lambda entry, nth, column: nth),
        ("by their column, not by their place", lambda entry, nth, column: column),
        ("always those of place 0", lambda entry, nth, column: 0),
    ):
        yield f"attention whose PARTIAL tiles take their bits {words}", question, Walk(lists, place=place)


def maps(case, lists):
    """The lists of another head, batch or row of tiles."""
    batches, heads = case.maps
    group, question = case.Hq // case.kv_heads, "whose list does a program walk?"
    changes = []
    if heads > 1:
        changes += [("head 0", lambda b, h: (b, 0)), ("the kv head", lambda b, h: (b, h // group))]
        changes += [("the next head", lambda b, h: (b, (h + 1) % heads))]
    if batches > 1:
        changes += [("batch 0", lambda b, h: (0, h))]
    if batches > 1 and heads > 1:
        changes += [("batch 0 and head 0", lambda b, h: (0, 0))]
        changes += [("the map b + h", lambda b, h: divmod((b + h) % (batches * heads), heads))]
    for whose, pick in changes:
        yield f"attention with the lists of {whose}", question, Walk(lists, pick=pick)
    tiles, question = lists.starts.shape[1], "which row of `starts` is a program's own, and where does it begin?"
    for words, line in (
        ("the lists of query tile 0 in every row of tiles", lambda m, i: m * tiles * 4),
        ("rows of `starts` that begin one number after the other, not four", lambda m, i: m * tiles + i),
        ("maps in `starts` that begin one row after the other, not all rows of a map", lambda m, i: (m + i) * 4),
    ):
        yield f"attention with {words}", question, Walk(lists, line=line)


class Walk:
    """A walk over the lists as the kernel does it, with one thing changed.

    triangle: pairs that a CAUSAL tile shows; rows_from: where the rows are counted from that a triangle compares with
    the tokens of keys, "the first" query or "the tile".
    unpack: (pairs of a PARTIAL tile) -> what is taken for them. place: (entry, its turn among the PARTIAL ones of its
    row, column) -> a place in `bits`. without: a kind that is left out. shorter: (a kind, entries left out where its
    list begins, and where it ends). pick: (batch, head) -> another. line: (map, row of tiles) -> where its four numbers
    begin in `starts`.
    """

    def __init__(
        self, lists, triangle=None, rows_from=None, unpack=None, place=None, without=None, shorter=(None, 0, 0),
        pick=None, line=None,
    ):  # fmt: skip
        block_q, block_k = lists.case.block
        usual = torch.arange(block_q)[:, None] >= torch.arange(block_k)[None, :]
        self.lists, self.triangle, self.rows_from = lists, usual if triangle is None else triangle, rows_from
        self.unpack, self.place = unpack or (lambda tile: tile), place
        self.without, self.shorter, self.pick = without, shorter, pick or (lambda b, h: (b, h))
        self.line = line or (lambda m, i: (m * lists.starts.shape[1] + i) * 4)

    def weight(self, case):
        """(weight (B, Hq, Nq, Nk), how often keys past the end count (B, Hq, Nq, 1)); None, None where it would leave
        `bits`."""
        batches, heads = case.maps
        by_map, found = {}, []
        for b in range(case.B):
            for h in range(case.Hq):
                batch, head = self.pick(b % batches, h % heads)
                this_map = (batch % batches) * heads + head % heads
                if this_map not in by_map:
                    by_map[this_map] = self.words_for_map(case, this_map)
                if by_map[this_map] is None:
                    return None, None
                found.append(by_map[this_map])
        both = torch.stack(found).unflatten(0, (case.B, case.Hq))
        return both[..., : case.num_keys], both[..., case.num_keys :].sum(-1, keepdim=True)

    def words_for_map(self, case, this_map):
        """(Nq, keys in whole tiles), how often each pair counts."""
        (block_q, block_k), bits = case.block, self.lists.bits
        numbers, tiles = self.lists.starts.flatten().tolist(), self.lists.starts.shape[1]
        counted = torch.zeros(tiles * block_q, -(-case.num_keys // block_k) * block_k, dtype=torch.double)
        for i in range(tiles):
            line = self.line(this_map, i)
            for kind, (first, after) in zip(OF_KIND, itertools.pairwise(numbers[line : line + 4]), strict=True):
                _, at_begin, at_end = self.shorter if kind == self.shorter[0] else (kind, 0, 0)
                for nth, entry in enumerate(range(first + at_begin, after - at_end)):
                    column = int(self.lists.columns[entry])
                    place = int(self.lists.places[entry]) if self.place is None else self.place(entry, nth, column)
                    if kind == PARTIAL and not 0 <= place < len(bits):
                        return None
                    if kind != self.without:
                        tile = self.shown(kind, place, i * block_q, column * block_k)
                        counted[i * block_q : (i + 1) * block_q, column * block_k : (column + 1) * block_k] += tile
        return counted[: case.N]

    def shown(self, kind, place, q_start, k_start):
        block_q, block_k = self.lists.case.block
        if kind == FULL:
            return torch.ones(block_q, block_k)
        if kind == CAUSAL and self.rows_from:
            return (
                q_start * (self.rows_from == "the first") + torch.arange(block_q)[:, None]
                >= k_start + torch.arange(block_k)[None, :]
            )
        return self.triangle if kind == CAUSAL else self.unpack(tile_lists.unpacked(self.lists.bits[place]))
