"""How many keys' scores of a row P2 holds at once: the same each time, wherever memory is given out again."""

import sys
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).resolve().parents[2] / "runner"))
from spans import Scores

TILE = 64


def walk(tiles, keep):
    """The keys held at once by a loop over tiles of scores; keep: how many tiles it does not let go of."""
    scores, held = Scores({}, 16), []
    for _ in range(tiles):
        scores.number += 1
        q, k = torch.rand(1, 1, 4, 16), torch.rand(1, 1, TILE, 16)
        tile = q @ k.mT
        scores.note(tile, TILE, [q, k])
        scaled = tile * 2
        scores.note(scaled, TILE, [tile])
        held = [*held, scaled][-keep:] if keep else []
        del tile, scaled
    return scores.most


def test_what_was_freed_leaves_no_keys_behind():
    assert walk(200, keep=0) == TILE


def test_what_is_kept_is_counted():
    assert walk(20, keep=3) == 4 * TILE
