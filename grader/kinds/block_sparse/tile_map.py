"""A mask cut into tiles: which are empty, full, a triangle, or anything else; as a map in text, and in numbers."""

from dataclasses import dataclass

import torch

from grader.kinds.block_sparse.patterns import CAUSAL, EMPTY, FULL, LETTERS, PARTIAL


@dataclass(frozen=True)
class TileMap:
    """kinds: (query tiles, key tiles) of EMPTY, FULL, CAUSAL, PARTIAL. visible: elements that the mask shows."""

    kinds: torch.Tensor
    block_q: int
    block_k: int
    queries: int
    keys: int
    visible: int

    @property
    def sparsity(self):
        """The part of all pairs that the mask hides."""
        return 1 - self.visible / (self.queries * self.keys)

    @property
    def density(self):
        """The part of all tiles that must be visited."""
        return float((self.kinds != EMPTY).double().mean())

    def text(self):
        """A line a row of tiles: `  q_block=4:         F P`."""
        lines = (" ".join(LETTERS[kind] for kind in row) for row in self.kinds.tolist())
        return "\n".join(f"  q_block={i}: {line}".rstrip() for i, line in enumerate(lines))


def cut(visibility, queries, keys, block_q, block_k, device="cpu"):
    """The TileMap of a mask; one row of tiles of it is held at a time, on that device.

    A tile is FULL only where all of its keys exist. CAUSAL is the triangle of the tile's own rows and columns, wherever
    the tile stands; it hides keys past the end by itself. Rows past the last query do not count.
    Raises ValueError where a size is not positive.
    """
    if min(queries, keys, block_q, block_k) < 1:
        raise ValueError(
            f"sizes must be at least 1; got queries={queries}, keys={keys}, block_q={block_q}, block_k={block_k}"
        )
    k_pos = torch.arange(keys, device=device)
    tiles = -(-keys // block_k)
    rows, visible = [], 0
    for start in range(0, queries, block_q):
        q_pos = torch.arange(start, min(start + block_q, queries), device=device)
        strip = visibility.mask(q_pos, k_pos)
        visible += strip.sum()  # no int yet: a GPU would be waited for
        padded = torch.nn.functional.pad(strip, (0, tiles * block_k - keys))
        rows.append(kinds_of(padded.view(len(q_pos), tiles, block_k).transpose(0, 1)))
    return TileMap(torch.stack(rows), block_q, block_k, queries, keys, int(visible))


def kinds_of(tiles):
    """The kind of each of (tiles, rows, block_k) booleans."""
    _, rows, columns = tiles.shape
    triangle = torch.ones(rows, columns, dtype=torch.bool, device=tiles.device).tril()
    some, every = tiles.flatten(1).any(1), tiles.flatten(1).all(1)
    causal = (tiles == triangle).flatten(1).all(1)
    kinds = torch.where(some, PARTIAL, EMPTY)
    kinds = torch.where(causal & some, CAUSAL, kinds)
    return torch.where(every, FULL, kinds)
