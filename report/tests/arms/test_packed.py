"""The arms of packed attention: their patterns, what is hidden, and that a peer's views are the same tensors."""

import pytest
import torch

from grader.kinds.block_sparse import tile_map
from grader.tests.support import thorough_but
from report.arms import packed
from report.studies import packed as names

pytest.importorskip("triton")


OURS = [kernel for kernel in names.WHOLE[0].kernels if kernel not in names.DENSE]


@pytest.mark.parametrize("name", thorough_but(OURS[::5], OURS))
@pytest.mark.parametrize("tokens", [197, 577])
def test_what_is_hidden_is_what_the_mask_hides(name, tokens):
    arms = packed.StudyArms(names.point(tokens, 1, 2, 16), "cpu")
    pattern, block = names.parts(name)
    found = tile_map.cut(arms.grid(name), tokens, tokens, block, block)
    facts = arms.facts(name)
    assert facts["sparsity"] == pytest.approx(found.sparsity) and facts["block_sparsity"] == 1 - found.density
    assert bool((found.kinds.diagonal() != 0).all()), "each token sees itself"
    assert arms.work(name).visible == found.visible
    if pattern == "dense" or (tokens == 197 and ("global" in pattern or pattern == "local")):
        assert facts["sparsity"] == 0


def test_images_are_views_of_the_packed_tensors():
    arms = packed.StudyArms(names.point(5, 3, 2, 16), "cpu")
    q, _, v = arms.draw(torch.Generator().manual_seed(0))
    assert q.shape == (15, 2, 16) and q.stride(0) == 3 * 2 * 16
    image = arms.by_image(v)
    assert image.shape == (3, 2, 5, 16) and image.data_ptr() == v.data_ptr()
    assert torch.equal(image[1, 0, 2], v[7, 0])
