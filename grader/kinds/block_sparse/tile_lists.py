"""The lists of tiles that x1's kernel walks, made from the map of tiles alone."""

import functools
from dataclasses import dataclass

import numpy as np
import torch

from grader.kinds.block_sparse import tile_map
from grader.kinds.block_sparse.patterns import CAUSAL, FULL, PARTIAL

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


@functools.lru_cache(maxsize=8)
def cut(case):
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
