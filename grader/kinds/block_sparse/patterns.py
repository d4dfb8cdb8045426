"""Masks past the ladder, for the lab of block-sparse attention: who sees whom, by token position or by block.

Each is a predicate with the methods of `masks.Visibility`: `mask(q_pos, k_pos)` gives booleans for any positions, so
that nobody needs the whole N x N at once. Positions may lie on any device; the booleans lie there too.
"""

from dataclasses import dataclass
from functools import cached_property

import torch

EMPTY, FULL, CAUSAL, PARTIAL = range(4)  # kinds of tiles
LETTERS = " FCP"


@dataclass(frozen=True)
class Documents:
    """Packed documents of these lengths: each sees all of itself and nothing else."""

    lengths: tuple[int, ...]

    def mask(self, q_pos, k_pos):
        return segment_of(q_pos, self.lengths)[:, None] == segment_of(k_pos, self.lengths)[None, :]

    def __str__(self):
        return f"documents of {', '.join(map(str, self.lengths))}"


@dataclass(frozen=True)
class Interleaved:
    """Text and images by turns, text first: text is causal, an image sees all of itself; both see all before."""

    lengths: tuple[int, ...]

    def mask(self, q_pos, k_pos):
        q_segment, k_segment = segment_of(q_pos, self.lengths)[:, None], segment_of(k_pos, self.lengths)[None, :]
        inside = (q_segment % 2 == 1) | (q_pos[:, None] >= k_pos[None, :])
        return (k_segment < q_segment) | ((k_segment == q_segment) & inside)

    def __str__(self):
        return f"text and images of {', '.join(map(str, self.lengths))}"


@dataclass(frozen=True)
class Blocks:
    """A grid of blocks, each of one kind: nothing, everything, a triangle within the block, or elements at random.

    kinds: rows of EMPTY, FULL, CAUSAL or PARTIAL. block: its size in tokens. seed: of the elements of PARTIAL blocks,
    drawn by position, so that they do not depend on how the mask is asked for.
    """

    kinds: tuple[tuple[int, ...], ...]
    block: int
    seed: int = 0

    @cached_property
    def table(self):
        return torch.tensor(self.kinds)

    def mask(self, q_pos, k_pos):
        kinds = self.table.to(q_pos.device)[q_pos // self.block][:, k_pos // self.block]
        seen = kinds == FULL
        if (kinds == CAUSAL).any():
            seen |= (kinds == CAUSAL) & self.causal(q_pos[:, None], k_pos[None, :])
        if (kinds == PARTIAL).any():  # what is drawn takes longest
            seen |= (kinds == PARTIAL) & self.partial(q_pos[:, None], k_pos[None, :])
        return seen

    def causal(self, q_pos, k_pos):
        """What a CAUSAL block shows: the triangle of its own rows and columns, wherever it stands."""
        return q_pos % self.block >= k_pos % self.block

    def partial(self, q_pos, k_pos):
        """What a PARTIAL block shows: about half of its pairs."""
        return drawn(q_pos, k_pos, self.seed) & 1 == 0

    def __str__(self):
        return f"{len(self.kinds)}x{len(self.kinds[0])} blocks of {self.block}"


@dataclass(frozen=True)
class LookAlikes:
    """A row of PARTIAL tiles, each of which a wrong rule calls FULL, CAUSAL or empty; no two rules the same ones."""

    block: int = 32

    def mask(self, q_pos, k_pos):
        row, column = (q_pos % self.block)[:, None], (k_pos % self.block)[None, :]
        at_top, at_left = row % (self.block - 1) == 0, column % (self.block - 1) == 0  # or at the other end
        hole = (row == self.block - 8) & (column == 8)
        tiles = (
            ~hole, at_top, at_left, at_top & at_left, row <= column, row > column, row < column,
            (row >= column) & ~hole, row == column, row + 1 >= column,
        )  # fmt: skip
        at = (k_pos // self.block % len(tiles))[None, :]
        return torch.stack(torch.broadcast_tensors(*(tile & (at == i) for i, tile in enumerate(tiles)))).any(0)

    def __str__(self):
        return "tiles that look alike"


@dataclass(frozen=True)
class Maps:
    """Several masks, in rows of batches: one for each batch and head; a batch alone, or a head alone, is for all.

    Its `mask` is (batches, heads, len(q_pos), len(k_pos)), for tensors (B, H, ...) to be broadcast with.
    """

    masks: tuple[tuple, ...]

    def mask(self, q_pos, k_pos):
        return torch.stack([torch.stack([one.mask(q_pos, k_pos) for one in row]) for row in self.masks])

    def at(self, batch, head):
        return self.masks[batch % len(self.masks)][head % len(self.masks[0])]

    def __str__(self):
        return f"masks {len(self.masks)}x{len(self.masks[0])} by batch and head"


def segment_of(positions, lengths):
    """The number of the segment in which each position lies; what is after the last is a segment of its own."""
    ends = torch.tensor(lengths, device=positions.device).cumsum(0)
    return torch.searchsorted(ends, positions, right=True)


def drawn(q_pos, k_pos, seed):
    """31 random bits for each pair, by a hash of the two positions and the seed alone.

    Only the low 31 bits of any product count, so that int32, where products wrap, gives what int64 gives: a kernel may
    compute the same.
    Source: Steele et al., "Fast splittable pseudorandom number generators", 2014: the mixing of SplitMix, in 31 bits.
    """
    of_seed = seed * 0xC2B2AE3D & 0x7FFFFFFF
    mixed = (q_pos * 0x1E3779B1 + k_pos * 0x05EBCA77 + of_seed) & 0x7FFFFFFF
    for shift, factor in ((15, 0x2C1B3C6D), (12, 0x297A2D39), (15, 1)):
        mixed = ((mixed ^ (mixed >> shift)) * factor) & 0x7FFFFFFF
    return mixed


# Grids of blocks -----------------------------------------------------------------------------------------------------


def random_blocks(count, block, kinds, seed=0, made_of=Blocks):
    """Blocks drawn from `kinds` with equal chances in the lower triangle of count x count, the diagonal included.

    made_of: Blocks, or a class derived from it.
    """
    draw = torch.randint(len(kinds), (count, count), generator=torch.Generator().manual_seed(seed))
    lower = torch.ones(count, count).tril().bool()
    return made_of(as_rows(torch.where(lower, torch.tensor(kinds)[draw], EMPTY)), block, seed)


def local(count, block, radius=1):
    """Each block sees those at most `radius` blocks away."""
    row, column = grid(count)
    return Blocks(as_rows(torch.where((row - column).abs() <= radius, FULL, EMPTY)), block)


def local_and_global(count, block, radius=1, everywhere=1):
    """Local; the first `everywhere` blocks see all and are seen by all: a vision transformer's CLS token is there."""
    row, column = grid(count)
    seen = ((row - column).abs() <= radius) | (row < everywhere) | (column < everywhere)
    return Blocks(as_rows(torch.where(seen, FULL, EMPTY)), block)


def strided(count, block, radius=0, stride=3):
    """Local, and every `stride`-th block from the query's own, on both sides."""
    row, column = grid(count)
    seen = ((row - column).abs() <= radius) | ((row - column) % stride == 0)
    return Blocks(as_rows(torch.where(seen, FULL, EMPTY)), block)


def dense(count, block):
    return Blocks(((FULL,) * count,) * count, block)


def grid(count):
    return torch.arange(count)[:, None], torch.arange(count)[None, :]


def as_rows(kinds):
    return tuple(map(tuple, kinds.tolist()))
