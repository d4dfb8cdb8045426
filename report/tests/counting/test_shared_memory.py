"""The page on shared memory: formula and compiler stand in the relation that it says, and the kernels refuse by it."""

from dataclasses import replace

import pytest
import torch

from grader.gpu.gpus import GPUS
from report.counting import shared_memory
from report.counting.shared_memory import TARGETS, Shape
from report.pages import tile_shapes
from report.places import load

ROWS = shared_memory.recorded()
COMPILED_AGAIN = (
    Shape("x1", "float16", 64, 64, 64), Shape("x1", "float16", 128, 64, 128), Shape("x1", "float32", 64, 32, 64),
    Shape("packed", "float16", 64, 128, 64), Shape("packed", "float16", 128, 64, 64),
)  # fmt: skip


def test_the_formula_is_exact_with_wgmma_and_short_of_p_at_most_without():
    for row in (row for row in ROWS if row.num_stages == 2):
        formula, most = tile_shapes.formula(row), tile_shapes.most(row)
        if row.target == "sm_90" and row.block_q >= 64:
            assert row.bytes == formula, row
        else:
            assert formula <= row.bytes <= most, row


def test_all_shapes_are_recorded_for_each_gpu_and_triton():
    versions = {row.triton for row in ROWS}
    assert len(ROWS) == len(versions) * len(TARGETS) * len(shared_memory.SHAPES)
    alike = {}
    for row in (row for row in ROWS if row.num_stages == 2):
        alike.setdefault(replace(row, triton="", bytes=0), set()).add(row.bytes)
    assert all(len(figures) == 1 for figures in alike.values()), "the page says that the versions agree"


@pytest.mark.thorough
def test_the_compiler_says_today_what_is_recorded():
    """A few shapes, compiled in a process of their own for each GPU: no other test's patches, no interpreter."""
    triton = pytest.importorskip("triton")
    if triton.__version__ not in {row.triton for row in ROWS}:
        pytest.skip(f"no figures of triton {triton.__version__}")
    found = shared_memory.in_children(COMPILED_AGAIN)
    assert len(found) == len(COMPILED_AGAIN) * len(TARGETS) and set(found) <= set(ROWS)


# The kernels' own check -----------------------------------------------------------------------------------------------


def refusal(kernel, target, dtype, D, tile):
    """What the wrapper says on a GPU that is pretended, before it launches anything; an empty string if nothing."""
    from grader.core.worker import without_gpu

    module = load(f"{shared_memory.MODULES[kernel]}.py")
    q = torch.zeros(8, 1, D, dtype=dtype)
    with without_gpu.pass_for(GPUS[target]):
        try:
            if kernel == "x1":
                module.check_shared_memory(q[None], *tile)
            else:
                module.check_shared_memory(q, tile)
        except ValueError as error:
            return str(error)
    return ""


@pytest.mark.parametrize("kernel", ["x1", "packed"])
def test_what_cannot_fit_is_refused_with_both_numbers(kernel):
    pytest.importorskip("triton")
    needed = {"x1": 198656, "packed": 196608}[kernel]
    words = refusal(kernel, "sm_80", torch.float16, 256, (128, 128))
    assert f"tiles of 128 x 128 at D=256 in torch.float16 take {needed} bytes" in words and "has 166912" in words
    assert "has 232448" in refusal(kernel, "sm_90", torch.float16, 256, (128, 128))
    assert "has 101376" in refusal(kernel, "sm_89", torch.float32, 128, (128, 64))
    assert not refusal(kernel, "sm_90", torch.float16, 256, (128, 64))
    assert not refusal(kernel, "sm_80", torch.float16, 128, (128, 128))
    assert not refusal(kernel, "gfx942", torch.float16, 128, (128, 64)), "fits there: the formula is of other GPUs"


@pytest.mark.parametrize("kernel", ["x1", "packed"])
def test_the_wrapper_asks_before_it_launches(kernel):
    pytest.importorskip("triton")
    from grader.core.worker import without_gpu

    module = load(f"{shared_memory.MODULES[kernel]}.py")
    cu_seqlens = torch.tensor([0, 128], dtype=torch.int32)
    with (
        without_gpu.pass_for(GPUS["sm_80"]),
        pytest.raises(ValueError, match="bytes of shared memory; this GPU has 166912: take smaller tiles"),
    ):
        if kernel == "x1":
            q = torch.zeros(1, 1, 128, 256)
            module.block_sparse_attention(q, q, q, module.tiles_of_mask(torch.ones(128, 128).bool(), 128, 128))
        else:
            q = torch.zeros(128, 1, 256)
            module.packed_block_sparse_attention(q, q, q, cu_seqlens, cu_seqlens, tile=(128, 128))
