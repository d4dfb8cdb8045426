"""What must hold of a builder's lists: the first thing that does not, as a Finding."""

import itertools
from dataclasses import dataclass

import torch

from grader.kinds.block_sparse import tile_lists, wrong_rules
from grader.kinds.block_sparse.patterns import CAUSAL, EMPTY, FULL, PARTIAL
from grader.kinds.block_sparse.tile_lists import NAMES, WORD

KINDS = {EMPTY: "empty", FULL: "FULL", CAUSAL: "CAUSAL", PARTIAL: "PARTIAL"}


@dataclass(frozen=True)
class Finding:
    """sentence: what is wrong and where. mistake: its kind, the same in all cases. question: leads to the fix."""

    sentence: str
    mistake: str = ""
    question: str = ""


def wrong_fields(case, outputs, plain):
    """A Finding where the fields are not those of these Tiles. outputs: starts, columns, places and bits, described."""
    right = tile_lists.cut(case)
    for name, output in zip(NAMES, outputs, strict=True):
        if not output.plain or output.dtype != "int32":
            what = output.dtype if output.plain else output.type
            return Finding(f"{name} of the Tiles must be a tensor of int32; it is {what}.")
    for name, value in right.plain.items():
        if plain[name] != value:
            return Finding(f"{name} of the Tiles is {plain[name]}; it must be {value}.")
    shapes = {name: tuple(output.shape) for name, output in zip(NAMES, outputs, strict=True)}
    if shapes["starts"] != tuple(right.starts.shape):
        return Finding(f"starts of the Tiles has the shape {shapes['starts']}; it must be {tuple(right.starts.shape)}.")
    if len(shapes["columns"]) != 1 or shapes["places"] != shapes["columns"]:
        both = f"{shapes['columns']} and {shapes['places']}"
        return Finding(f"columns and places of the Tiles must have one number for each entry; their shapes are {both}.")
    if shapes["bits"][1:] != tuple(right.bits.shape[1:]):
        words = f"each PARTIAL tile has {tuple(right.bits.shape[1:])} words"
        return Finding(f"bits of the Tiles has the shape {shapes['bits']}; {words}.")
    return None


def wrong_kinds(case, starts, columns):
    """A Finding where a tile is in no list, or in another than its own."""
    right = tile_lists.cut(case).kinds.flatten(0, 1)
    got = torch.zeros_like(right)
    for row, numbers in enumerate(starts.flatten(0, 1).tolist()):
        where = place_of(case, row)
        if sorted(numbers) != numbers or numbers[0] < 0 or numbers[3] > len(columns):
            return Finding(
                f"starts of {where} is {numbers}: the four must rise, from 0 to {len(columns)}, the entries."
            )
        for kind, (begin, end) in zip((FULL, CAUSAL, PARTIAL), itertools.pairwise(numbers), strict=True):
            for column in columns[begin:end].tolist():
                if not 0 <= column < got.shape[1]:
                    return Finding(f"{where.capitalize()} lists key tile {column}; there are {got.shape[1]}.")
                if got[row, column] != EMPTY:
                    return Finding(f"{where.capitalize()} lists key tile {column} twice.")
                got[row, column] = kind
    wrong = (got != right).nonzero()
    if not len(wrong):
        return None
    row, column = wrong[0].tolist()
    is_, as_ = KINDS[int(right[row, column])], KINDS[int(got[row, column])]
    listed = f"is {is_}, and " + ("in no list" if as_ == "empty" else f"listed as {as_}")
    more = f"; {len(wrong)} of {got.numel()} tiles are wrong" if len(wrong) > 1 else ""
    last_keys = (column + 1) * case.block[1] > case.num_keys
    last_rows = case.N % case.block[0] and row % len(starts[0]) == len(starts[0]) - 1
    sentence = f"Key tile {column} of {place_of(case, row)} {listed}{more}."
    if rule := wrong_rules.find(case, got):
        words, question = rule
        return Finding(f"{sentence} All are as they are where {words}.", listed, question)
    return Finding(sentence, listed, question_on(is_, as_, last_keys, last_rows))


def question_on(is_, as_, last_keys, last_rows):
    """last_keys, last_rows: where some keys of the tile, or some rows, do not exist."""
    if last_keys and as_ in ("FULL", "CAUSAL"):
        return "which kinds may a tile have in which some keys do not exist?"
    if last_rows and is_ == "FULL":
        return "which rows of the last query tile count: those that exist, or block_q of them?"
    if as_ == "FULL":
        return "what must hold of all pairs of a FULL tile?"
    if "CAUSAL" in (is_, as_):
        return (
            "the triangle of a tile's own rows and columns: which half, with its diagonal, and for the rows that exist?"
        )
    if last_keys:
        return "which kinds may a tile have in which some keys do not exist?"
    return "all pairs, none of them, or some: which of the three is asked first?"


def place_of(case, row):
    """`query tile 3`, and of which map, where there are several."""
    this_map, tile = divmod(row, -(-case.N // case.block[0]))
    batches, heads = case.maps
    return f"query tile {tile}" + (
        f" of batch {this_map // heads}, head {this_map % heads}" if batches * heads > 1 else ""
    )


def wrong_bits(case, starts, columns, places, bits):
    """A Finding where the bits of a PARTIAL tile are not its pairs; rows past the last query may hold anything."""
    masks = [tile_lists.padded_mask(case, *divmod(m, case.maps[1])) for m in range(len(starts))]
    for row, (_, _, begin, end) in enumerate(starts.flatten(0, 1).tolist()):
        this_map, i = divmod(row, starts.shape[1])
        rows = min(case.block[0], case.N - i * case.block[0])
        for column, place in zip(columns[begin:end].tolist(), places[begin:end].tolist(), strict=True):
            where = f"key tile {column} of {place_of(case, row)}"
            if not 0 <= place < len(bits):
                return Finding(f"places of {where} is {place}; there are {len(bits)} tiles of bits.")
            right = tile_lists.tile_of(masks[this_map], i, column, case.block)[:rows]
            got = tile_lists.unpacked(bits[place])[:rows]
            if not torch.equal(right, got):
                r, c = (right != got).nonzero()[0].tolist()
                equals, question = cause_of_bits(right, got)
                seen = "visible" if right[r, c] else "hidden"
                sentence = f"The bits of {where} {equals}: row {r}, column {c} is {seen}, its bit is {int(got[r, c])}."
                return Finding(sentence, f"bits that {equals}", question)
    return None


def cause_of_bits(right, got):
    """(words, question) for what the bits are instead."""
    by_word = right.unflatten(1, (-1, WORD))
    order, sign = "which bit of a word is column 0?", "a word has 32 bits, the last of them is the sign: is it lost?"
    others = [
        ("stand in each word in the reverse order", order, by_word.flip(2).flatten(1)),
        ("stand in words of the reverse order", "which word holds the first columns?", by_word.flip(1).flatten(1)),
        ("are in the reverse order throughout", order, right.flip(1)),
        ("stand in each byte in the reverse order", order, by_word.unflatten(2, (4, 8)).flip(3).flatten(1)),
        ("are dealt to the words in turn", "bit c % 32 of word c // 32: which columns share a word?", dealt(right)),
        ("are 1 where a pair is hidden", "what does a 1 mean?", ~right),
        ("lack the last column of each word", sign, (by_word & (torch.arange(WORD) < WORD - 1)).flatten(1)),
    ]
    if right.shape[0] == right.shape[1]:
        others.append(("have rows and columns exchanged", "which axis is packed?", right.T))
    found = (words for *words, other in others if torch.equal(other, got))
    return next(found, ("are not its pairs", "which bit of which word is column c, and are all 32 of them exact?"))


def dealt(pairs):
    """Column c in word c % words, where it belongs in word c // 32."""
    return pairs.unflatten(1, (WORD, -1)).transpose(1, 2).flatten(1)
