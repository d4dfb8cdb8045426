"""The lists of tiles that x1's kernel walks, made from the map of tiles alone."""

import functools
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import pad

from grader.kinds.block_sparse import tile_map
from grader.kinds.block_sparse.patterns import CAUSAL, FULL, PARTIAL

WORD = 32
NAMES = ("starts", "columns", "places", "bits")


@dataclass(frozen=True)
class Lists:
    """The lists of a case, as its skeleton's Tiles describes them.

    The bits lie in an order of their own, the last PARTIAL tile first: `places` alone tells where. kinds, and pairs in
    booleans (block_q, block_k): of every tile, (query tiles of all maps, key tiles).
    """

    starts: torch.Tensor
    columns: torch.Tensor
    places: torch.Tensor
    bits: torch.Tensor
    kinds: torch.Tensor
    pairs: torch.Tensor
    case: object

    @property
    def plain(self):
        """The other fields of Tiles."""
        (block_q, block_k), (batches, heads) = self.case.block, self.case.maps
        sizes = {"block_q": block_q, "block_k": block_k, "queries": self.case.N, "keys": self.case.num_keys}
        return sizes | {"batches": batches, "heads": heads}

    def tile(self, row, column):
        """The pairs of a tile, of the queries that exist alone."""
        start = row % self.starts.shape[1] * self.case.block[0]
        return self.pairs[row, column, : self.case.N - start]


@functools.lru_cache(maxsize=8)
def cut(case):
    """The Lists of a SparseCase."""
    masks, (block_q, block_k) = [case.seen_at(*place) for place in np.ndindex(case.maps)], case.block
    kinds = torch.cat([tile_map.cut(mask, case.N, case.num_keys, *case.block).kinds for mask in masks])
    seen = pad(
        torch.stack([mask.mask(*case.positions) for mask in masks]), (0, -case.num_keys % block_k, 0, -case.N % block_q)
    )
    pairs = seen.unflatten(2, (-1, block_k)).unflatten(1, (-1, block_q)).flatten(0, 1).transpose(1, 2)
    starts, columns, partial = [], [], []
    for row, of_row in enumerate(kinds):
        starts.append([len(columns)])
        for kind in (FULL, CAUSAL, PARTIAL):
            found = (of_row == kind).nonzero().flatten().tolist()
            partial += [(len(columns) + n, row, column) for n, column in enumerate(found) if kind == PARTIAL]
            columns += found
            starts[-1].append(len(columns))
    places = torch.zeros(len(columns), dtype=torch.int32)
    bits = torch.empty(len(partial), block_q, block_k // WORD, dtype=torch.int32)
    for place, (entry, row, column) in enumerate(reversed(partial)):
        places[entry], bits[place] = place, packed(pairs[row, column])
    starts, columns = (torch.tensor(numbers, dtype=torch.int32) for numbers in (starts, columns))
    return Lists(starts.view(len(masks), -1, 4), columns, places, bits, kinds, pairs, case)


def packed(tile):
    """(rows, columns / 32) words: bit c % 32 of word c // 32 is column c."""
    return torch.from_numpy(np.packbits(tile.numpy(), axis=1, bitorder="little").view("<i4").copy())


def unpacked(words):
    """(..., 32 * words) booleans of (..., words)."""
    as_bytes = np.ascontiguousarray(words.numpy()).view(np.uint8)
    return torch.from_numpy(np.unpackbits(as_bytes, axis=-1, bitorder="little")).bool()


# Bits in another order than that of the columns: of the pairs of a tile, (rows, columns).


def reverse_each_word(pairs):
    return pairs.unflatten(1, (-1, WORD)).flip(2).flatten(1)


def reverse_words(pairs):
    return pairs.unflatten(1, (-1, WORD)).flip(1).flatten(1)


def drop_last_bits(pairs):
    return (pairs.unflatten(1, (-1, WORD)) & (torch.arange(WORD) < WORD - 1)).flatten(1)
