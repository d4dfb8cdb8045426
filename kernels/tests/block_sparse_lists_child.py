"""Run with TRITON_INTERPRET=1: the fast form's lists, and the mask that they mean; a JSON line {case: complaints} each.

A process of its own, since Triton decides at its import whether it interprets.
"""

import json
from dataclasses import replace

import torch

from kernels.block_sparse_lists import prepare_lists
from solutions import x1_block_sparse

BLOCKS = ((64, 64), (128, 128), (64, 128), (128, 64), (192, 64))
WAYS = {"together": (64, 2), "together, long steps": (128, 2), "alone": (64, 1), "alone, long steps": (128, 1)}


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


class Checked:
    """What is wrong with one way to divide one mask."""

    def __init__(self, lists, mask, tiles, keys_in_step, neighbours):
        self.lists, self.tiles, self.neighbours = lists, tiles, neighbours
        self.height, self.units, self.parts = neighbours * 64, -(-tiles.keys // 64), keys_in_step // 64
        self.masked = 0  # units of steps that need words
        self.groups, self.complaints = -(-tiles.queries // self.height), []
        past_the_end = (0, self.units * 64 - tiles.keys, 0, self.groups * self.height - tiles.queries)
        self.masks = torch.nn.functional.pad(mask.reshape(-1, *mask.shape[-2:]), past_the_end)
        maps = len(self.masks)
        form = (lists.records.shape, lists.units.shape, lists.words.shape[1:])
        self.expect(form == ((maps, self.groups, 8), (maps, self.groups, self.units), (neighbours, 64, 2)), form)
        lengths = [length for one in range(maps) for length in self.look_at(one)]
        steps = sum(max(-(-length * 64 // keys_in_step), 1) for length in lengths)
        self.expect(lists.cost == steps * keys_in_step * self.height, f"cost {lists.cost}, {steps} steps")
        self.expect(len(lists.words) == self.masked, f"words of {len(lists.words)} units, {self.masked} need some")

    def expect(self, right, words):
        if not right:
            self.complaints.append(words)

    def look_at(self, this_map):
        """The lengths of all its groups' lists."""
        records = self.lists.records[this_map].tolist()
        lengths = [record[2] for record in records]
        self.expect(sorted(record[0] for record in records) == list(range(self.groups)), f"groups {records}")
        self.expect(lengths == sorted(lengths, reverse=True), f"order {lengths}")
        for record in records:
            self.look_at_group(this_map, *record[:4], record[4:])
        return lengths

    def look_at_group(self, this_map, group, unmasked, length, first_words, first_four):
        units = self.lists.units[this_map, group, :length].tolist()
        rows = min(self.height, self.tiles.queries - group * self.height)
        right = self.masks[this_map, group * self.height :][:rows]
        of_units = right.view(rows, self.units, 64).transpose(0, 1)
        first, end = unmasked // self.parts * self.parts, max(-(-length // self.parts), 1) * self.parts
        words = self.lists.words[first_words : first_words + end - first]
        bits = ((words[..., None] >> torch.arange(32)) & 1 == 1).reshape(-1, self.height, 64)[:, :rows]
        self.masked += end - first
        rebuilt = torch.zeros_like(of_units)
        rebuilt[units[:first]] = True
        rebuilt[units[first:]] = bits[: length - first]
        of_these = of_units[units].flatten(1)
        at = f"map {this_map} group {group}"
        self.expect(not bits[length - first :].any(), f"{at}: words of no unit show something")
        self.expect(torch.equal(rebuilt, of_units), f"{at}: another mask")
        self.expect(len(set(units)) == len(units), f"{at}: a unit twice in {units}")
        last_second = unmasked > 0 or length < 2 or units[1] == max(units)
        self.expect(last_second, f"{at}: the last unit is not the second of {units}")
        self.expect(bool(of_these.any(1).all()), f"{at}: a unit that nobody sees")
        # Of a unit that ends past the last query its bits do not show that it needs no words.
        needless = rows % 64 == 0 and bool(of_these[unmasked:].all(1).any())
        self.expect(not needless, f"{at}: words where all is visible")
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
    once = prepare_lists(tiles, 64, WAYS["alone"], WAYS["alone"])
    found += [] if once.together is once.alone else ["one way to divide, two lists"]
    unchanged = zip(before, (tiles.starts, tiles.columns, tiles.places, tiles.bits), strict=True)
    return found if all(torch.equal(a, b) for a, b in unchanged) else [*found, "the tiles were changed"]


if __name__ == "__main__":
    for number, (name, mask) in enumerate(masks().items()):
        for block in (BLOCKS[number % 5], BLOCKS[(number + 2) % 5]):
            print(json.dumps({f"{name}, tiles {block[0]} x {block[1]}": complaints_about(mask, block)}))
