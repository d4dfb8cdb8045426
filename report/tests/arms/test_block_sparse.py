"""The masks of block-sparse attention: of what size they are, and that each peer is told the same."""

import pytest
import torch

from grader.kinds.block_sparse import tile_map
from report.arms import block_sparse
from report.arms import block_sparse_kernels as kernels
from report.counting import masks
from report.studies import block_sparse as names


@pytest.mark.parametrize(("pattern", "hidden"), [("documents", 0.5975), ("interleaved", 0.3175), ("causal", 0.4990)])
def test_at_512_tokens_the_patterns_are_the_issue_s(pattern, hidden):
    found = tile_map.cut(kernels.visibility(pattern, 512, 64), 512, 512, 64, 64)
    assert found.sparsity == pytest.approx(hidden, abs=5e-5)


@pytest.mark.parametrize("n", [1024, 16384])
def test_longer_segments_end_within_a_tile_too(n):
    for lengths in (masks.document_lengths(n), masks.interleaved_lengths(n)):
        ends = torch.tensor(lengths).cumsum(0)
        assert ends[-1] == n and min(lengths) > 0 and ends[1] % 64 not in (0, 32)


@pytest.mark.parametrize("pattern", [*names.PATTERNS, "window"])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_what_flex_attention_is_told_is_the_mask(pattern, dtype):
    from torch.nn.attention.flex_attention import create_mask

    point = names.point(pattern, 256, 32)
    scene = kernels.Scene(kernels.visibility(pattern, 256, 32), point, "cpu")
    mask = torch.cat(list(scene.strips()))
    found = kernels.mask_mod(scene)
    cast = lambda b, h, q, k: found(b, h, q.to(dtype), k.to(dtype))  # noqa: E731
    assert torch.equal(create_mask(cast, None, None, 256, 256, "cpu")[0, 0], mask)


@pytest.mark.parametrize("pattern", ["interleaved", "random FCP"])
def test_the_mask_of_a_map_is_the_mask(pattern):
    scene = kernels.Scene(kernels.visibility(pattern, 256, 32), names.point(pattern, 256, 32), "cpu")
    assert torch.equal(block_sparse.mask_of(scene.tiles), torch.cat(list(scene.strips())))


def test_the_rows_that_are_looked_at_stand_in_tiles_of_each_kind():
    point = names.point("random FCP", 4096, 64)
    scene = kernels.Scene(kernels.visibility(point.pattern, 4096, 64), point, "cpu")
    found = block_sparse.telling_rows(scene)
    assert {0, 4095} <= set(found.tolist()) and len(found) < 500
    for kind in (1, 2, 3):
        assert any(bool((scene.map.kinds[row // 64] == kind).any()) for row in found.tolist())
