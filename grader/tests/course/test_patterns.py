"""Masks past the ladder: what each shows, element by element, and the maps that their tiles make."""

import pytest
import torch

from grader.kinds.attention.masks import Visibility
from grader.kinds.block_sparse import patterns, tile_map
from grader.kinds.block_sparse.patterns import CAUSAL, EMPTY, FULL, PARTIAL, Blocks, Documents, Interleaved

DOCUMENT_MAP = """\
  q_block=0: F F F F
  q_block=1: F F F F
  q_block=2: F F F F
  q_block=3: F F F F
  q_block=4:         F P
  q_block=5:         P P P P
  q_block=6:           P F F
  q_block=7:           P F F"""
INTERLEAVED_MAP = """\
  q_block=0: C
  q_block=1: F C
  q_block=2: F F P P P P P
  q_block=3: F F F F F F P
  q_block=4: F F F F F F P
  q_block=5: F F F F F F P
  q_block=6: F F F F F F P
  q_block=7: F F F F F F F C"""


def mask_of(visibility, queries, keys=None):
    return visibility.mask(torch.arange(queries), torch.arange(keys or queries))


@pytest.mark.parametrize(
    ("visibility", "text", "sparsity"),
    [(Documents((256, 68, 188)), DOCUMENT_MAP, 0.5975), (Interleaved((133, 309, 70)), INTERLEAVED_MAP, 0.3175)],
)
def test_the_maps_of_two_known_examples(visibility, text, sparsity):
    found = tile_map.cut(visibility, 512, 512, 64, 64)
    assert found.text() == text and round(found.sparsity, 4) == sparsity


def test_the_map_of_the_causal_mask():
    found = tile_map.cut(Visibility(causal=True), 512, 512, 64, 64)
    assert found.text().splitlines()[2] == "  q_block=2: F F C" and round(found.sparsity, 4) == 0.4990
    assert found.density == 36 / 64


def test_documents_see_themselves():
    seen = mask_of(Documents((2, 3)), 5)
    assert seen.int().tolist() == [[1, 1, 0, 0, 0]] * 2 + [[0, 0, 1, 1, 1]] * 3


def test_text_is_causal_and_images_see_themselves_and_all_before():
    seen = mask_of(Interleaved((2, 2, 2)), 6)
    assert seen.int().tolist() == [
        [1, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 0],
        [1, 1, 1, 1, 1, 1],
    ]  # fmt: skip


def test_a_predicate_says_the_same_in_parts_as_as_a_whole():
    for visibility in (Interleaved((7, 30, 11)), Blocks(((PARTIAL, CAUSAL), (FULL, PARTIAL)), 24, 3)):
        whole = mask_of(visibility, 48)
        rows, columns = torch.randperm(48), torch.randperm(48)
        assert torch.equal(visibility.mask(rows, columns), whole[rows][:, columns])


def test_kinds_of_blocks_come_back_as_tiles():
    kinds = ((FULL, CAUSAL, EMPTY), (PARTIAL, FULL, CAUSAL), (EMPTY, PARTIAL, PARTIAL))
    for seed in range(5):
        found = tile_map.cut(Blocks(kinds, 32, seed), 96, 96, 32, 32)
        assert found.kinds.tolist() == [list(row) for row in kinds]


@pytest.mark.parametrize("block_q, block_k", [(16, 16), (32, 16), (16, 48), (64, 64)])
@pytest.mark.parametrize("queries, keys", [(64, 64), (50, 70), (1, 1), (65, 33)])
def test_tiles_are_what_their_elements_are(queries, keys, block_q, block_k):
    """Against the plain reading of each tile: kept elements alone decide, and a key that is not there is hidden."""
    for visibility in (Visibility(True), Visibility(True, 20, 3), Documents((9, 30, 40)), Interleaved((5, 33, 40))):
        found, dense = tile_map.cut(visibility, queries, keys, block_q, block_k), mask_of(visibility, queries, keys)
        assert found.visible == int(dense.sum())
        for i, row in enumerate(found.kinds.tolist()):
            for j, kind in enumerate(row):
                tile = dense[i * block_q : (i + 1) * block_q, j * block_k : (j + 1) * block_k]
                past_the_end = block_k - tile.shape[1]
                tile = torch.nn.functional.pad(tile, (0, past_the_end))
                if not tile.any():
                    expected = EMPTY
                elif tile.all():
                    expected = FULL
                elif torch.equal(tile, torch.ones_like(tile).tril()):
                    expected = CAUSAL
                else:
                    expected = PARTIAL
                assert kind == expected, (visibility, i, j)


def test_random_elements_are_a_fair_coin():
    positions = torch.arange(1000)
    seen, other_seed = (patterns.drawn(positions[:, None], positions[None, :], seed) & 1 == 0 for seed in (0, 1))
    assert abs(float(seen.double().mean()) - 0.5) < 0.005
    for other in (seen.roll(1, 0), seen.roll(1, 1), other_seed):
        assert abs(float((seen == other).double().mean()) - 0.5) < 0.01


def test_grids_of_blocks():
    found = {name: make() for name, make in {
        "local": lambda: patterns.local(4, 8), "global": lambda: patterns.local_and_global(4, 8, 0, 1),
        "strided": lambda: patterns.strided(4, 8, stride=2), "dense": lambda: patterns.dense(2, 8),
    }.items()}  # fmt: skip
    assert found["local"].kinds[0] == (1, 1, 0, 0) and found["local"].kinds[2] == (0, 1, 1, 1)
    assert found["global"].kinds == ((1, 1, 1, 1), (1, 1, 0, 0), (1, 0, 1, 0), (1, 0, 0, 1))
    assert found["strided"].kinds[1] == (0, 1, 0, 1) and found["dense"].kinds == ((1, 1), (1, 1))
    random = patterns.random_blocks(8, 16, (FULL, CAUSAL, PARTIAL), seed=2)
    assert random == patterns.random_blocks(8, 16, (FULL, CAUSAL, PARTIAL), seed=2)
    assert {kind for row in random.kinds for kind in row} == {EMPTY, FULL, CAUSAL, PARTIAL}
    assert all(kind == EMPTY for i, row in enumerate(random.kinds) for kind in row[i + 1 :])


def test_sizes_must_be_positive():
    with pytest.raises(ValueError, match="block_k=0"):
        tile_map.cut(Visibility(), 4, 4, 4, 0)
