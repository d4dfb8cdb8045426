"""The lists of tiles that x1's kernel walks, made from the map of tiles alone; and a builder's lists beside them."""

import functools
import itertools
from collections import Counter
from dataclasses import dataclass

import numpy as np
import torch

from grader import tile_map
from grader.patterns import CAUSAL, EMPTY, FULL, PARTIAL

KINDS = {EMPTY: "empty", FULL: "FULL", CAUSAL: "CAUSAL", PARTIAL: "PARTIAL"}
WORD = 32
NAMES = ("starts", "columns", "places", "bits")


@dataclass(frozen=True)
class Lists:
    """The lists of a case, as its skeleton's Tiles describes them, and kinds (maps, query tiles, key tiles).

    The bits lie in an order of their own, the last PARTIAL tile first: `places` alone tells where.
    """

    starts: torch.Tensor
    columns: torch.Tensor
    places: torch.Tensor
    bits: torch.Tensor
    kinds: torch.Tensor
    case: object

    @property
    def plain(self):
        """The other fields of Tiles."""
        (block_q, block_k), (batches, heads) = self.case.block, self.case.maps
        sizes = {"block_q": block_q, "block_k": block_k, "queries": self.case.N, "keys": self.case.num_keys}
        return sizes | {"batches": batches, "heads": heads}

    def rows(self, record):
        """The four numbers of `starts` of each tile of queries in which the rows of a record of the trace lie."""
        batches, heads = self.case.maps
        this_map = (record["batch"] % batches) * heads + record["head"] % heads
        first, last = (row // self.case.block[0] for row in record["q"])
        return self.starts[this_map, first : last + 1].tolist()

    def tiles(self, record):
        """The tiles of keys that the record's rows are to load."""
        return {column for first, *_, after in self.rows(record) for column in self.columns[first:after].tolist()}

    def bits_of(self, record):
        """The places of the bits that they are to load."""
        return {place for *_, first, after in self.rows(record) for place in self.places[first:after].tolist()}


@functools.lru_cache(maxsize=8)
def of(case):
    """The Lists of a SparseCase."""
    places_of_maps = [(b, h) for b in range(case.maps[0]) for h in range(case.maps[1])]
    masks = [padded_mask(case, *place) for place in places_of_maps]
    kinds = torch.stack(
        [tile_map.cut(case.seen_at(*place), case.N, case.num_keys, *case.block).kinds for place in places_of_maps]
    )
    starts, columns, places, bits = [], [], [], []
    for seen, grid in zip(masks, kinds.tolist(), strict=True):
        for i, row in enumerate(grid):
            starts.append([len(columns)])
            for kind in (FULL, CAUSAL, PARTIAL):
                found = [j for j, other in enumerate(row) if other == kind]
                columns += found
                places += [len(bits) + n if kind == PARTIAL else None for n in range(len(found))]
                bits += [packed(tile_of(seen, i, j, case.block)) for j in found if kind == PARTIAL]
                starts[-1].append(len(columns))
    places = [0 if place is None else len(bits) - 1 - place for place in places]
    words = torch.stack(bits[::-1]) if bits else torch.empty(0, case.block[0], case.block[1] // WORD)
    return Lists(
        torch.tensor(starts, dtype=torch.int32).view(len(masks), -1, 4), torch.tensor(columns, dtype=torch.int32),
        torch.tensor(places, dtype=torch.int32), words.to(torch.int32), kinds, case,
    )  # fmt: skip


def padded_mask(case, batch, head):
    """The mask of one batch and head up to whole tiles: nothing sees or is seen past the ends."""
    seen = case.seen_at(batch, head).mask(torch.arange(case.N), torch.arange(case.num_keys))
    return torch.nn.functional.pad(seen, (0, -case.num_keys % case.block[1], 0, -case.N % case.block[0]))


def tile_of(seen, i, j, block):
    return seen[i * block[0] : (i + 1) * block[0], j * block[1] : (j + 1) * block[1]]


def packed(tile):
    """(rows, columns / 32) words: bit c % 32 of word c // 32 is column c."""
    return torch.from_numpy(np.packbits(tile.numpy(), axis=1, bitorder="little").view("<i4").copy())


def unpacked(words):
    """(..., 32 * words) booleans of (..., words)."""
    as_bytes = np.ascontiguousarray(words.numpy()).view(np.uint8)
    return torch.from_numpy(np.unpackbits(as_bytes, axis=-1, bitorder="little")).bool()


# A builder's lists ---------------------------------------------------------------------------------------------------


def wrong_fields(case, reply):
    """A sentence where what a builder returned has not the fields of these Tiles, else None."""
    right = of(case)
    wanted = {name: tuple(getattr(right, name).shape) for name in NAMES}
    for name, output in zip(NAMES, reply["outputs"], strict=True):
        if not output["plain"] or output["dtype"] != "int32":
            what = output.get("dtype") or output["type"]
            return (
                f"{name} of the Tiles must be a tensor of int32; it is {what if output['plain'] else output['type']}."
            )
    for name, value in right.plain.items():
        if reply["plain"][name] != value:
            return f"{name} of the Tiles is {reply['plain'][name]}; it must be {value}."
    for name in ("starts", "columns", "places"):
        shape = tuple(reply["outputs"][NAMES.index(name)]["shape"])
        if (name == "starts" and shape != wanted[name]) or len(shape) != len(wanted[name]):
            return f"{name} of the Tiles has the shape {shape}; it must be {wanted[name]}."
    shape = tuple(reply["outputs"][3]["shape"])
    if len(shape) != 3 or shape[1:] != wanted["bits"][1:]:
        return f"bits of the Tiles has the shape {shape}; each PARTIAL tile has {wanted['bits'][1:]} words."
    return None


def wrong_kinds(case, starts, columns):
    """(sentence, question) where a tile is in no list, or in another than its own, else None."""
    right = of(case)
    flat = starts.flatten(0, 1).tolist()
    for row, (begin, *_, end) in enumerate(flat):
        if not 0 <= begin <= flat[row][1] <= flat[row][2] <= end <= len(columns):
            where = place_of(case, row)
            return f"starts of {where} is {flat[row]}: its four numbers must rise, up to the {len(columns)} columns", ""
    got = torch.zeros_like(right.kinds).flatten(0, 1)
    listed = Counter()
    for row, numbers in enumerate(flat):
        for kind, (begin, end) in zip((FULL, CAUSAL, PARTIAL), itertools.pairwise(numbers), strict=True):
            for column in columns[begin:end].tolist():
                if not 0 <= column < got.shape[1]:
                    return f"{place_of(case, row)} lists key tile {column}; there are {got.shape[1]}", ""
                got[row, column] = kind
                listed[row, column] += 1
    if again := next((place for place, times in listed.items() if times > 1), None):
        return f"{place_of(case, again[0])} lists key tile {again[1]} {listed[again]} times", ""
    wrong = (got != right.kinds.flatten(0, 1)).nonzero()
    if not len(wrong):
        return None
    row, column = wrong[0].tolist()
    kinds = [KINDS[int(grid[row, column])] for grid in (right.kinds.flatten(0, 1), got)]
    mixed = f"Key tile {column} of {place_of(case, row)} is {kinds[0]}, and listed as {kinds[1]}"
    mixed = mixed.replace("listed as empty", "in no list")
    more = f"; {len(wrong)} of {got.numel()} tiles are wrong" if len(wrong) > 1 else ""
    return mixed + more, question_on(case, kinds, column)


def question_on(case, kinds, column):
    ragged = (column + 1) * case.block[1] > case.num_keys
    if ragged and "CAUSAL" not in kinds:
        return "which kinds may a tile have in which some keys do not exist?"
    if "CAUSAL" in kinds:
        return "the triangle of a tile's own rows and columns: with its diagonal, and for the rows that exist?"
    return "all pairs, none of them, or some: which of the three is asked first?"


def place_of(case, row):
    """`query tile 3`, and of which map, where there are several."""
    per_map = -(-case.N // case.block[0])
    this_map, tile = divmod(row, per_map)
    batches, heads = case.maps
    where = f" of batch {this_map // heads}, head {this_map % heads}" if batches * heads > 1 else ""
    return f"query tile {tile}{where}"


def wrong_bits(case, starts, columns, places, bits):
    """(sentence, question) where the bits of a PARTIAL tile are not its pairs, else None."""
    per_map = -(-case.N // case.block[0])
    masks = {}
    for row, (_, _, begin, end) in enumerate(starts.flatten(0, 1).tolist()):
        this_map, i = divmod(row, per_map)
        batch, head = divmod(this_map, case.maps[1])
        if this_map not in masks:
            masks[this_map] = padded_mask(case, batch, head)
        rows = min(case.block[0], case.N - i * case.block[0])  # rows past the last query may hold anything
        for entry in range(begin, end):
            column, place = int(columns[entry]), int(places[entry])
            if not 0 <= place < len(bits):
                where = f"key tile {column} of {place_of(case, row)}"
                return f"places of {where} is {place}; there are {len(bits)} tiles of bits", ""
            right, got = tile_of(masks[this_map], i, column, case.block)[:rows], unpacked(bits[place])[:rows]
            if not torch.equal(right, got):
                r, c = (right != got).nonzero()[0].tolist()
                equals, question = cause_of_bits(right, got)
                said = (
                    f"The bits of key tile {column} of {place_of(case, row)} {equals}"
                    if equals
                    else (f"The bits of key tile {column} of {place_of(case, row)} are not its pairs")
                )
                seen = "visible" if right[r, c] else "hidden"
                return f"{said}: row {r}, column {c} is {seen}, and its bit is {int(got[r, c])}", question
    return None


def cause_of_bits(right, got):
    """(words, question) for what the bits are instead, or empty strings."""
    by_word = right.unflatten(1, (-1, WORD))
    order = "which bit of a word is column 0?"
    candidates = (
        ("stand in each word in the reverse order", order, by_word.flip(2).flatten(1)),
        ("stand in words of the reverse order", "which word holds the first columns?", by_word.flip(1).flatten(1)),
        ("are in the reverse order throughout", order, right.flip(1)),
        ("stand in each byte in the reverse order", order, by_word.unflatten(2, (4, 8)).flip(3).flatten(1)),
        ("are 1 where a pair is hidden", "what does a 1 mean?", ~right),
        (
            "lack the last column of each word", "a word has 32 bits, the last of them is the sign: is it lost?",
            (by_word & (torch.arange(WORD) < WORD - 1)).flatten(1),
        ),
    )  # fmt: skip
    if right.shape[0] == right.shape[1]:
        candidates += (("are those of the tile with its rows and columns exchanged", "which axis is packed?", right.T),)
    return next(((words, ask) for words, ask, other in candidates if torch.equal(other, got)), ("", ""))
