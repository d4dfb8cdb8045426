"""What the studies' masks show."""

import torch

from grader.kinds.block_sparse import patterns, tile_map
from grader.kinds.block_sparse.patterns import CAUSAL, FULL, PARTIAL
from report.counting import masks


def test_published_blocks_hide_little():
    """Of the same draw: one causal line for the whole mask, and PARTIAL blocks nearly all visible."""
    found = {}
    for made_of in (patterns.Blocks, masks.PublishedBlocks):
        grid = patterns.random_blocks(16, 64, (FULL, CAUSAL, PARTIAL), 0, made_of)
        found[made_of] = tile_map.cut(grid, 1024, 1024, 64, 64)
        kinds = torch.tensor(grid.kinds)
        off = torch.ones(16, 16).tril(-1).bool() & (kinds == CAUSAL)
        assert (found[made_of].kinds[off] == (CAUSAL if made_of is patterns.Blocks else FULL)).all()
    ours, published = found.values()
    assert 0.56 <= ours.sparsity <= 0.66 and 0.47 <= published.sparsity <= 0.51


def test_random_blocks_may_keep_the_diagonal():
    kinds = torch.tensor(masks.scattered(8, 16, 0.25, diagonal=True).kinds)
    assert int((kinds == FULL).sum()) == 16 and bool((kinds.diagonal() == FULL).all())
    for count in (1, 2, 3, 8):
        few = torch.tensor(masks.scattered(count, 16, 0.05, diagonal=True).kinds)
        assert torch.equal(few == FULL, torch.eye(count).bool())
