"""Run with TRITON_INTERPRET=1: the fast form's lists, and the mask that they mean; a JSON line {case: complaints} each.

A process of its own, since Triton decides at its import whether it interprets.
"""

import json
from dataclasses import replace

import torch

from solutions import x1_block_sparse
from solutions.block_sparse_lists import ALL, BITS, NOTHING, TRIANGLE, prepare_lists

BLOCKS = ((64, 64), (128, 128), (64, 128), (128, 64), (192, 64))
WAYS = {"together": (64, 2), "together, long steps": (128, 2), "alone": (64, 1), "alone, long steps": (128, 1)}
ROW, COLUMN = torch.arange(64)[:, None], torch.arange(64)[None, :]


def of_all_kinds(queries, keys, block, seed=0, maps=()):
    """Booleans (*maps, queries, keys): each block empty, full, the block's triangle, or at random."""
    torch.manual_seed(seed)
    rows, columns = -(-queries // block), -(-keys // block)
    kinds = torch.randint(0, 4, (*maps, rows, columns)).repeat_interleave(block, -2).repeat_interleave(block, -1)
    kinds = kinds[..., :queries, :keys]
    i, j = torch.arange(queries)[:, None], torch.arange(keys)[None, :]
    triangle = i % block >= j % block
    return (kinds == 1) | ((kinds == 2) & triangle) | ((kinds == 3) & (torch.rand(kinds.shape) < 0.5))


def masks():
    """{name: booleans of 2 to 4 dimensions}."""
    alone = torch.zeros(200, 330, dtype=torch.bool)
    alone[70, 329] = True
    empty_rows = of_all_kinds(320, 384, 64, 1)
    empty_rows[64:256] = False
    upper_only = of_all_kinds(256, 256, 64, 2)
    upper_only[64:128] = False  # the second of two neighbours sees nothing
    return {
        "all kinds of 64": of_all_kinds(384, 384, 64),
        "all kinds of 128": of_all_kinds(384, 512, 128, 3),
        "ragged": of_all_kinds(333, 270, 64, 4),
        "ragged causal": torch.ones(300, 300, dtype=torch.bool).tril(),
        "fewer queries": of_all_kinds(70, 520, 64, 5),
        "one token": torch.ones(1, 1, dtype=torch.bool),
        "nothing": torch.zeros(130, 200, dtype=torch.bool),
        "everything": torch.ones(320, 320, dtype=torch.bool),
        "one pair": alone,
        "empty rows": empty_rows,
        "empty neighbour": upper_only,
        "a map for each head": of_all_kinds(200, 256, 64, 6, (3,)),
        "a map for each batch": of_all_kinds(130, 130, 64, 7, (2, 1)),
        "a map for each": of_all_kinds(200, 128, 64, 8, (2, 2)),
    }


def places_in_any_order(tiles):
    """The same tiles, their bits in reverse behind a tile's worth of ones that nobody may read."""
    count = len(tiles.bits)
    unread = torch.full_like(tiles.bits[:1], -1) if count else tiles.bits
    return replace(tiles, bits=torch.cat([unread, tiles.bits.flip(0)]), places=(count - tiles.places).int())


def unpacked(code, words, words_a_row):
    """Booleans (64, 64) of a unit's code; words: the mask's bits, one after the other."""
    if code < BITS:
        return {NOTHING: ROW < 0, ALL: ROW >= 0, TRIANGLE: ROW >= COLUMN}[code].expand(64, 64)
    at = (code - BITS) * 2 + ROW * words_a_row + COLUMN // 32
    return (words[at] >> (COLUMN % 32)) & 1 == 1


class Checked:
    """What is wrong with one way to divide one mask."""

    def __init__(self, lists, mask, tiles, keys_in_step, neighbours):
        self.lists, self.tiles, self.neighbours = lists, tiles, neighbours
        self.per_step, self.complaints = keys_in_step // 64, []
        self.words = tiles.bits.flatten()
        strips, self.units = -(-tiles.queries // 64), -(-tiles.keys // 64)
        self.groups = -(-strips // neighbours)
        padded = (self.groups * neighbours * 64 - tiles.queries, self.units * 64 - tiles.keys)
        self.masks = mask.reshape(-1, *mask.shape[-2:])
        self.padded = torch.nn.functional.pad(self.masks, (0, padded[1], 0, padded[0]))
        form = (lists.records.shape, lists.units.shape, lists.codes.shape)
        maps = len(self.masks)
        units = (maps, self.groups, self.units)
        self.expect(form == ((maps, self.groups, 8), units, (*units, neighbours)), f"shapes {form}")
        steps = sum(self.look_at(one) for one in range(maps))
        self.expect(lists.cost == steps * keys_in_step * neighbours * 64, f"cost {lists.cost}, {steps} steps")

    def expect(self, right, words):
        if not right:
            self.complaints.append(words)

    def look_at(self, this_map):
        """The steps of all its groups."""
        records = self.lists.records[this_map].tolist()
        steps = [record[1] for record in records]
        self.expect(sorted(record[0] for record in records) == list(range(self.groups)), f"groups {records}")
        self.expect(steps == sorted(steps, reverse=True), f"order {steps}")
        for record in records:
            self.look_at_group(this_map, *record[:4], record[4:])
        return sum(steps)

    def look_at_group(self, this_map, group, steps, masked, length, first_four):
        units = self.lists.units[this_map, group, :length].tolist()
        codes = self.lists.codes[this_map, group, :length].tolist()
        height = self.neighbours * 64
        right = self.padded[this_map, group * height : (group + 1) * height]
        rows = min(height, self.tiles.queries - group * height)
        rebuilt = torch.zeros_like(right)
        for unit, of_neighbours in zip(units, codes, strict=True):
            tiles = [unpacked(code, self.words, self.tiles.block_k // 32) for code in of_neighbours]
            rebuilt[:, unit * 64 : unit * 64 + 64] = torch.cat(tiles)
        there = [n for n in range(self.neighbours) if n * 64 < rows]
        needs_no_mask = [all(of_neighbours[n] == ALL for n in there) for of_neighbours in codes]
        at = f"map {this_map} group {group}"
        self.expect(torch.equal(rebuilt[:rows], right[:rows]), f"{at}: another mask")
        self.expect(len(set(units)) == len(units), f"{at}: a unit twice in {units}")
        self.expect(all(any(of_neighbours) for of_neighbours in codes), f"{at}: a unit that nobody sees")
        self.expect(needs_no_mask == sorted(needs_no_mask, reverse=True), f"{at}: not those without a mask first")
        self.expect(steps == max(-(-length // self.per_step), 1), f"{at}: {steps} steps for {length} units")
        self.expect(masked == sum(needs_no_mask) // self.per_step, f"{at}: the first mask at {masked}")
        self.expect(first_four == [*units[:4], *[self.units] * 4][:4], f"{at}: {first_four} first of {units}")


def complaints_about(mask, block):
    tiles = places_in_any_order(x1_block_sparse.tiles_of_mask(mask, *block))
    before = [getattr(tiles, name).clone() for name in ("starts", "columns", "places", "bits")]
    found = []
    for together, alone in (("together", "alone"), ("together, long steps", "alone, long steps")):
        prepared = prepare_lists(tiles, 64, WAYS[together], WAYS[alone])
        for name, lists in ((together, prepared.together), (alone, prepared.alone)):
            found += [f"{name}: {words}" for words in Checked(lists, mask, tiles, *WAYS[name]).complaints]
        assert prepared.tiles is tiles and prepared.D == 64
    unchanged = zip(before, (tiles.starts, tiles.columns, tiles.places, tiles.bits), strict=True)
    return found if all(torch.equal(a, b) for a, b in unchanged) else [*found, "the tiles were changed"]


if __name__ == "__main__":
    for name, mask in masks().items():
        for block in BLOCKS:
            print(json.dumps({f"{name}, tiles {block[0]} x {block[1]}": complaints_about(mask, block)}))
