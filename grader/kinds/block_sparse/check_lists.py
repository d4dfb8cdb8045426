"""What must hold of a builder's lists: the Verdict on the first thing that does not, or None."""

import itertools

import torch

from grader.kinds.block_sparse import tile_lists, wrong_rules
from grader.kinds.block_sparse.patterns import CAUSAL, EMPTY, FULL, PARTIAL
from grader.kinds.block_sparse.tile_lists import NAMES, drop_last_bits, reverse_each_word, reverse_words
from grader.result import Cause, Facts, Outcome, Verdict

KINDS = {EMPTY: "empty", FULL: "FULL", CAUSAL: "CAUSAL", PARTIAL: "PARTIAL"}
NOT_THERE = "which kinds may a tile have in which some keys do not exist?"


def wrong(sentence, mistake="", question=""):
    """The Verdict on wrong lists. mistake: its kind, the same in all cases. question: leads to the fix."""
    causes = (Cause(mistake, question, wrong_rules.LISTS),) if mistake else ()
    return Verdict(Outcome.WRONG, sentence, Facts(question=question, causes=causes))


def wrong_fields(case, outputs, plain):
    """Whether the fields are those of these Tiles. outputs: starts, columns, places and bits, described."""
    right = tile_lists.cut(case)
    for name, output in zip(NAMES, outputs, strict=True):
        if not output.plain or output.dtype != "int32":
            what = output.dtype if output.plain else output.type
            return wrong(f"{name} of the Tiles must be a tensor of int32; it is {what}.")
    for name, value in right.plain.items():
        if plain.get(name) != value:
            return wrong(f"{name} of the Tiles is {plain.get(name)}; it must be {value}.")
    starts, columns, places, bits = (tuple(output.shape) for output in outputs)
    if starts != right.starts.shape:
        return wrong(f"starts of the Tiles has the shape {starts}; it must be {tuple(right.starts.shape)}.")
    if len(columns) != 1 or places != columns:
        said = f"columns and places of the Tiles must have one number for each entry; their shapes are {columns}"
        return wrong(f"{said} and {places}.")
    if bits[1:] != right.bits.shape[1:]:
        words = f"each PARTIAL tile has {tuple(right.bits.shape[1:])} words"
        return wrong(f"bits of the Tiles has the shape {bits}; {words}.")
    return None


def wrong_kinds(case, starts, columns):
    """Whether each tile is in the list of its kind, and in no other."""
    right = tile_lists.cut(case).kinds
    got = torch.zeros_like(right)
    for row, numbers in enumerate(starts.flatten(0, 1).tolist()):
        where = place_of(case, row)
        if sorted(numbers) != numbers or numbers[0] < 0 or numbers[3] > len(columns):
            return wrong(f"starts of {where} is {numbers}: the four must rise, from 0 to {len(columns)}, the entries.")
        for kind, (begin, end) in zip((FULL, CAUSAL, PARTIAL), itertools.pairwise(numbers), strict=True):
            for column in columns[begin:end].tolist():
                if not 0 <= column < got.shape[1]:
                    return wrong(f"{where.capitalize()} lists key tile {column}; there are {got.shape[1]}.")
                if got[row, column] != EMPTY:
                    return wrong(f"{where.capitalize()} lists key tile {column} twice.")
                got[row, column] = kind
    off = (got != right).nonzero()
    if not len(off):
        return None
    row, column = off[0].tolist()
    is_, as_ = KINDS[int(right[row, column])], KINDS[int(got[row, column])]
    listed = f"is {is_}, and " + ("in no list" if as_ == "empty" else f"listed as {as_}")
    more = f"; {len(off)} of {got.numel()} tiles are wrong" if len(off) > 1 else ""
    sentence = f"Key tile {column} of {place_of(case, row)} {listed}{more}."
    if rule := wrong_rules.find(case, got):
        return wrong(f"{sentence} All are as they are where {rule.words}.", listed, rule.ask)
    last_keys = (column + 1) * case.block[1] > case.num_keys
    last_rows = len(tile_lists.cut(case).tile(row, column)) < case.block[0]
    return wrong(sentence, listed, question_on(is_, as_, last_keys, last_rows))


def question_on(is_, as_, last_keys, last_rows):
    """last_keys, last_rows: where some keys of the tile, or some rows, do not exist."""
    if last_keys and as_ in ("FULL", "CAUSAL"):
        return NOT_THERE
    if last_rows and is_ == "FULL":
        return "which rows of the last query tile count: those that exist, or block_q of them?"
    if as_ == "FULL":
        return "what must hold of all pairs of a FULL tile?"
    if "CAUSAL" in (is_, as_):
        own = "the triangle of a tile's own rows and columns"
        return f"{own}: which half, with its diagonal, and for the rows that exist?"
    return NOT_THERE if last_keys else "all pairs, none of them, or some: which of the three is asked first?"


def place_of(case, row):
    """`query tile 3`, and of which map, where there are several."""
    this_map, tile = divmod(row, -(-case.N // case.block[0]))
    batch, head = divmod(this_map, case.maps[1])
    return f"query tile {tile}" + (f" of batch {batch}, head {head}" if max(case.maps) > 1 else "")


def wrong_bits(case, starts, columns, places, bits):
    """Whether the bits of each PARTIAL tile are its pairs; rows past the last query may hold anything."""
    lists = tile_lists.cut(case)
    for row, (_, _, begin, end) in enumerate(starts.flatten(0, 1).tolist()):
        for column, place in zip(columns[begin:end].tolist(), places[begin:end].tolist(), strict=True):
            where = f"key tile {column} of {place_of(case, row)}"
            if not 0 <= place < len(bits):
                return wrong(f"places of {where} is {place}; there are {len(bits)} tiles of bits.")
            right = lists.tile(row, column)
            got = tile_lists.unpacked(bits[place])[: len(right)]
            if not torch.equal(right, got):
                r, c = (right != got).nonzero()[0].tolist()
                equals, question = cause_of_bits(right, got)
                seen = "visible" if right[r, c] else "hidden"
                sentence = f"The bits of {where} {equals}: row {r}, column {c} is {seen}, its bit is {int(got[r, c])}."
                return wrong(sentence, f"bits that {equals}", question)
    return None


# What bits are instead of a tile's pairs: (words, question, what they are).
OTHER_BITS = (
    ("stand in each word in the reverse order", "which bit of a word is column 0?", reverse_each_word),
    ("stand in words of the reverse order", "which word holds the first columns?", reverse_words),
    ("are in the reverse order throughout", "which bit of a word is column 0?", lambda pairs: pairs.flip(1)),
    ("stand in each byte in the reverse order", "which bit of a word is column 0?",
     lambda pairs: pairs.unflatten(1, (-1, 8)).flip(2).flatten(1)),
    ("are dealt to the words in turn", "bit c % 32 of word c // 32: which columns share a word?",
     lambda pairs: pairs.unflatten(1, (tile_lists.WORD, -1)).transpose(1, 2).flatten(1)),
    ("are 1 where a pair is hidden", "what does a 1 mean?", lambda pairs: ~pairs),
    ("lack the last column of each word", "a word has 32 bits, the last of them is the sign: is it lost?",
     drop_last_bits),
    ("have rows and columns exchanged", "which axis is packed?", lambda pairs: pairs.T),
    ("are not its pairs", "which bit of which word is column c, and are all 32 of them exact?", None),
)  # fmt: skip


def cause_of_bits(right, got):
    """(words, question) for what the bits are instead."""
    return next((words, ask) for words, ask, other in OTHER_BITS if not other or torch.equal(other(right), got))
