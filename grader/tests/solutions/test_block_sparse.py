"""The lab of block-sparse attention: its lists against the map of tiles, its kernel against what is right."""

import importlib.util
import itertools
import json
import os
import subprocess
import sys

import pytest
import torch

from grader.kinds.attention.masks import Visibility
from grader.kinds.block_sparse import patterns, tile_map
from grader.kinds.block_sparse.patterns import EMPTY, PARTIAL
from grader.tests.support import ROOT, SOLUTIONS

pytest.importorskip("triton")
CHILD = ROOT / "grader" / "tests" / "solutions" / "block_sparse_child.py"
MASKS = (
    patterns.Documents((40, 23, 37)), patterns.Interleaved((33, 40, 27)), Visibility(True), Visibility(True, 20, 3),
    patterns.random_blocks(4, 32, (0, 1, 2, 3), 1), patterns.Blocks(((0, 0, 0, 0),) * 4, 32),
)  # fmt: skip


@pytest.fixture(scope="module")
def x1():
    spec = importlib.util.spec_from_file_location("x1_block_sparse", SOLUTIONS / "x1_block_sparse.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.thorough
def test_the_kernel_is_right_on_masks_of_all_kinds():
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(CHILD), str(SOLUTIONS)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    found = {name: errors for line in done.stdout.splitlines() for name, errors in json.loads(line).items()}
    wrong = {n: e for n, e in found.items() if not (e["o"] <= 0 and e["lse"] <= 0 and e["nothing"])}
    assert not wrong and len(found) == 14


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("queries, keys", [(128, 128), (100, 100), (70, 128), (1, 33)])
def test_the_lists_are_the_map(x1, mask, queries, keys):
    tiles = x1.tiles_of_predicate(mask.mask, queries, keys, 32, 32)
    kinds = tile_map.cut(mask, queries, keys, 32, 32).kinds
    for row, (starts, expected) in enumerate(zip(tiles.starts[0].tolist(), kinds, strict=True)):
        for kind, (begin, end) in enumerate(itertools.pairwise(starts), start=1):
            assert tiles.columns[begin:end].tolist() == (expected == kind).nonzero().flatten().tolist(), (row, kind)
    assert len(tiles.columns) == int((kinds != EMPTY).sum()) and len(tiles.bits) == int((kinds == PARTIAL).sum())
    assert tiles.density == pytest.approx(tile_map.cut(mask, queries, keys, 32, 32).density)


@pytest.mark.parametrize("mask", MASKS)
def test_the_bits_are_the_mask(x1, mask):
    tiles = x1.tiles_of_predicate(mask.mask, 100, 100, 32, 64)
    dense = torch.nn.functional.pad(mask.mask(torch.arange(100), torch.arange(100)), (0, 28, 0, 28))
    for row, (_, _, begin, end) in enumerate(tiles.starts[0].tolist()):
        for i in range(begin, end):
            words = tiles.bits[tiles.places[i]]
            unpacked = (words[:, :, None] >> torch.arange(32)) & 1
            column = tiles.columns[i] * 64
            assert torch.equal(unpacked.flatten(1).bool(), dense[row * 32 : row * 32 + 32, column : column + 64])


def test_a_dense_mask_gives_the_lists_of_its_predicate(x1):
    for mask in MASKS:
        dense = mask.mask(torch.arange(90), torch.arange(110))
        a, b = x1.tiles_of_mask(dense, 32, 32), x1.tiles_of_predicate(mask.mask, 90, 110, 32, 32)
        assert all(torch.equal(getattr(a, name), getattr(b, name)) for name in ("starts", "columns", "places", "bits"))


def test_a_mask_that_heads_share_is_kept_once(x1):
    """Never B x H x N x N: 16 heads of 2048 tokens take as much as one, and the predicate sees a strip at a time."""
    asked = []

    def see(q_pos, k_pos):
        asked.append(len(q_pos) * len(k_pos))
        return q_pos[:, None] >= k_pos[None, :]

    tiles = x1.tiles_of_predicate(see, 2048, 2048, 64, 64)
    assert max(asked) == 64 * 2048 and tiles.starts.shape == (1, 32, 4) and len(tiles.bits) == 0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda x: x.tiles_of_predicate(Visibility(True).mask, 8, 8, 16, 48), "multiple of 32; got 48"),
        (lambda x: x.tiles_of_predicate(Visibility(True).mask, 0, 8), "0 queries, 8 keys"),
        (lambda x: x.tiles_of_mask(torch.ones(8, 8)), "float32"),
        (lambda x: attend(x, tiles=(9, 8)), "tiles are of 9 queries and 8 keys; q has 8, k 8"),
        (lambda x: attend(x, maps=(3,)), "1 batches and 3 heads; q has 2 and 4"),
        (lambda x: attend(x, Hkv=3), "Hq=4, Hkv=3"),
    ],
)
def test_what_does_not_fit_is_said_with_both_numbers(x1, make, words):
    with pytest.raises(ValueError, match=words):
        make(x1)


def attend(x1, Hkv=2, tiles=(8, 8), maps=()):
    q, k = torch.zeros(2, 4, 8, 16), torch.zeros(2, Hkv, 8, 16)
    x1.block_sparse_attention(q, k, k, x1.tiles_of_mask(torch.ones(*maps, *tiles, dtype=torch.bool), 16, 32))
