"""What the report's studies add to the masks of grader/kinds/block_sparse/patterns.py."""

from dataclasses import dataclass

import torch

from grader.kinds.block_sparse.patterns import EMPTY, FULL, Blocks, as_rows, drawn


@dataclass(frozen=True)
class PublishedBlocks(Blocks):
    """The same grid as published studies of such patterns fill it: little is hidden within a block.

    One causal line runs through the whole sequence, so that a CAUSAL block off the diagonal shows everything; a PARTIAL
    block shows nearly everything, here 15 of 16 pairs, with which the sparsity is the published one, about 0.49.
    """

    def causal(self, q_pos, k_pos):
        return q_pos >= k_pos

    def partial(self, q_pos, k_pos):
        return drawn(q_pos, k_pos, self.seed) & 15 != 0


def document_lengths(n):
    """256, 68 and 188 of 512; longer ones in proportion, their ends at the same places within a tile."""
    second = 68 * n // 512 // 64 * 64 + 4
    return n // 2, second, n - n // 2 - second


def interleaved_lengths(n):
    """133, 309 and 70 of 512; longer ones likewise."""
    first, second = 133 * n // 512 // 64 * 64 + 5, 309 * n // 512 // 64 * 64 + 53
    return first, second, n - first - second


def scattered(count, block, density, seed=0, diagonal=False):
    """FULL blocks at random places of the whole square: that part of all blocks, as nearly as can be.

    diagonal: whether the blocks on it are among them in any case.
    """
    order = torch.randperm(count * count, generator=torch.Generator().manual_seed(seed)).view(count, count)
    most = round(density * count * count)
    if diagonal:
        order = order.fill_diagonal_(-1).flatten().argsort(stable=True).argsort().view(count, count)
        most = max(most, count)
    return Blocks(as_rows(torch.where(order < most, FULL, EMPTY)), block)


def base_mask(grids):
    """Booleans (images, 1, blocks, blocks) of the largest; what is past the end of a smaller one is empty."""
    most = max(len(one.kinds) for one in grids)
    mask = torch.zeros(len(grids), 1, most, most, dtype=torch.bool)
    for image, one in enumerate(grids):
        mask[image, 0, : len(one.kinds), : len(one.kinds)] = one.table == FULL
    return mask


def density(grid):
    """The part of all blocks in which something is visible."""
    return float((grid.table != EMPTY).double().mean())


def sparsity(grid, tokens):
    """The part of all pairs of that many tokens that FULL blocks leave hidden; for grids of FULL and EMPTY."""
    ends = (torch.arange(len(grid.kinds) + 1) * grid.block).clamp(max=tokens).diff().double()
    return 1 - float(ends @ (grid.table == FULL).double() @ ends) / tokens**2
