"""The fast form of X1: run by tests' own means or compiled without a GPU; compared with float64 on a Hopper GPU."""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from grader.tests.support import ROOT, in_interpreter, thorough
from kernels.tests.for_hopper import compile_for_hopper

pytest.importorskip("triton.experimental.gluon.nvidia.hopper")
SPILLS = {"(256, 64, 2, 2, 1)": 20}  # bytes of a thread at the most; of all other forms none
BLOCKS = ((64, 64), (128, 128), (64, 128), (128, 64), (192, 64))
# {name: ((B, Hq, Hkv), bytes of K and V that the L2 cache shall hold, multiprocessors)}: launches of four groups of 64
# queries a head that large masks would need. In one wave, the second program of a multiprocessor comes from the end.
LAUNCHES = {"heads in blocks": ((2, 4, 2), 4e4, 3), "one wave": ((1, 2, 1), 4e7, 5)}


@pytest.fixture(scope="module")
def fast():
    from kernels import fast_block_sparse

    return fast_block_sparse


@pytest.fixture(scope="module")
def x1():
    from solutions import x1_block_sparse

    return x1_block_sparse


# Without a GPU --------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("head_dims", [("16", "32", "64"), ("128", "256")])
def test_it_compiles_for_a_hopper_gpu(head_dims, fast):
    found = compile_for_hopper(*head_dims)
    asked = {str((D, *form[D])) for D in map(int, head_dims) for form in (fast.TOGETHER, fast.ALONE)}
    assert asked <= set(found) and ("64" in head_dims) == ("bfloat16" in found)
    for name, facts in found.items():
        assert facts["kernel"] == "fast_block_sparse_kernel" and facts["tma"] and facts["setmaxnreg"], name
        assert facts["matrix_instructions"] == ("wgmma bf16" if name == "bfloat16" else "wgmma f16"), name
        assert facts["spill_bytes"] <= SPILLS.get(name, 0) and facts["shared_bytes"] <= 227 * 1024, (name, facts)


@pytest.mark.parametrize("D", [16, 32, 64, 128, 256])
def test_as_many_programs_fit_a_multiprocessor_as_its_form_says(fast, D):
    """In registers; for shared memory, 228 KB, 1 KB of each program is the system's."""
    for step, consumers, stages, programs in (fast.TOGETHER[D], fast.ALONE[D]):
        at_launch, registers = fast.registers_for(consumers, programs)
        assert at_launch % 8 == registers % 8 == 0 and programs * at_launch * 128 * (consumers + 1) <= 65536
        assert 128 * (consumers * registers + fast.FOR_PRODUCER.value) <= at_launch * 128 * (consumers + 1)
        assert programs * (2 * D * (64 * consumers + 2 * stages * step) + 2048) <= 228 * 1024


def test_heads_are_taken_in_blocks_whose_keys_stay_in_the_cache(fast):
    limit = int(fast.L2_FOR_KEYS)
    for heads, kv_bytes, blocks in (
        (12, limit, 1),
        (12, limit + 1, 2),
        (12, 5 * limit, 6),
        (7, 2 * limit, 7),
        (1, 9 * limit, 1),
    ):
        assert fast.blocks_of_heads(heads, kv_bytes) == blocks
    assert fast.blocks_of_heads(131_074, 1 << 60) == 2  # 2 x 65,537, a prime: more blocks a grid does not take


def arguments(x1, D=64, Hkv=2, dtype=torch.float16, tiles=(8, 8), maps=(), block=(64, 64)):
    q, k = torch.zeros(1, 4, 8, D, dtype=dtype), torch.zeros(1, Hkv, 8, D, dtype=dtype)
    return q, k, k, x1.tiles_of_mask(torch.ones(*maps, *tiles, dtype=torch.bool), *block)


@pytest.mark.parametrize(
    ("changes", "scale", "words"),
    [
        ({}, None, r"for Hopper GPUs \(9, 0\); got cpu"),
        ({"dtype": torch.float32}, None, "got torch.float32"),
        ({"D": 48}, None, "D=48"),
        ({"Hkv": 3}, None, "Hq=4, Hkv=3"),
        ({"tiles": (9, 8)}, None, "tiles are of 9 queries and 8 keys; q has 8, k 8"),
        ({"maps": (3,)}, None, "of 1 batches and 3 heads; q has 1 and 4"),
        ({}, -0.5, "softmax_scale must be positive; got -0.5"),
        ({}, 0.0, "softmax_scale must be positive; got 0.0"),
        ({}, math.nan, "softmax_scale must be positive; got nan"),
    ],
)
def test_what_it_cannot_do_is_said(fast, x1, changes, scale, words):
    with pytest.raises(ValueError, match=words) as raised:
        fast.block_sparse_attention(*arguments(x1, **changes), scale)
    assert "\n" not in str(raised.value)


def test_what_cannot_be_prepared_is_said(fast, x1):
    with pytest.raises(ValueError, match="multiples of 64; got 32 x 64"):
        fast.prepare(arguments(x1, block=(32, 64))[3], 64)
    with pytest.raises(ValueError, match="D=48"):
        fast.prepare(arguments(x1)[3], 48)
    with pytest.raises(ValueError, match="may have 4194240 queries at the most; got 4194241"):
        fast.prepare(replace(arguments(x1)[3], queries=4194241), 64)


def test_tiles_prepared_for_another_head_dim_are_refused(fast, x1, monkeypatch):
    monkeypatch.setattr(fast, "check_arguments", lambda *given: None)  # of which a CPU is the last
    q, k, v, tiles = arguments(x1, D=128)
    with pytest.raises(ValueError, match="prepared for a head dim of 64; q has 128"):
        fast.block_sparse_attention(q, k, v, fast.Prepared(tiles, 64, None, None))


def test_neighbours_are_together_where_that_wastes_little_and_leaves_programs_enough(fast):
    from kernels.block_sparse_lists import Lists

    alone = Lists(torch.empty(1, 128, 8), None, None, 100)
    for groups, cost, together in ((64, 105, True), (64, 106, False), (63, 105, False)):
        prepared = fast.Prepared(None, 128, Lists(torch.empty(1, groups, 8), None, None, cost), alone)
        wanted = (prepared.together, fast.TOGETHER[128]) if together else (alone, fast.ALONE[128])
        assert fast.choose_lists(prepared, 8, 128) == wanted


@in_interpreter
@pytest.mark.parametrize(
    ("head_dims", "masks"),
    [
        ("128", ["all kinds of 64", "empty neighbour", "a map for each", *LAUNCHES]),
        thorough("64,256", []),
        thorough("128", []),
    ],
)
def test_it_is_right_on_masks_of_all_kinds_without_a_gpu(head_dims, masks):
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "kernels.tests.fast_block_sparse_child", head_dims, *masks]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    found = {name: wrong for line in done.stdout.splitlines() for name, wrong in json.loads(line).items()}
    assert len(found) == 2 * len(head_dims.split(",")) * len(masks or [*cases(), *LAUNCHES])
    assert not {name: wrong for name, wrong in found.items() if wrong}


# On a Hopper GPU ------------------------------------------------------------------------------------------------------


def needs_hopper():
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("needs a Hopper GPU")


def reference(q, k, v, mask, scale):
    """(o, lse, the sum of p * |v|), all of it in float64."""
    shared_by = q.shape[1] // k.shape[1]
    k, v = (tensor.double().repeat_interleave(shared_by, 1) for tensor in (k, v))
    scores = (q.double() @ k.transpose(-1, -2) * scale).masked_fill(~mask, -math.inf)
    lse = scores.logsumexp(-1)
    p = torch.exp(scores - torch.where(lse.isinf(), 0, lse)[..., None])
    return p @ v, lse, p @ v.abs()


def complaints(q, k, v, mask, o, lse, scale=None):
    """What is wrong with o and lse. p and o are each rounded once, by eps / 2; twice that is allowed."""
    expected, expected_lse, size = reference(q, k, v, mask, scale or q.shape[3] ** -0.5)
    nothing = expected_lse.isinf()
    return [
        name
        for name, wrong in {
            "o": (o - expected).abs() > 2 * torch.finfo(q.dtype).eps * size + 1e-4,
            "lse": ~nothing & ((lse - expected_lse).abs() > 1e-3),
            "lse of nothing": nothing & (lse != -math.inf),
            "o of nothing": nothing[..., None] & (o != 0),
            "nan": o.isnan() | lse.isnan()[..., None],
        }.items()
        if wrong.any()
    ]


def inputs(B, Hq, Hkv, Nq, Nk, D, dtype=torch.float16, device="cuda"):
    torch.manual_seed(1)
    shapes = (B, Hq, Nq, D), (B, Hkv, Nk, D), (B, Hkv, Nk, D)
    return [torch.randn(shape).to(device, dtype) for shape in shapes]


def cases():
    """{name: (mask of 2 to 4 dimensions, (B, Hq, Hkv))}; those of the lists' own test, and longer ones."""
    from kernels.tests.block_sparse_lists_child import masks, of_all_kinds

    torch.manual_seed(0)
    cut = of_all_kinds(512, 512, 64, 9, (2, 4)) & of_all_kinds(512, 512, 128, 10)
    short = {name: (mask, heads_for(mask)) for name, mask in masks().items()}
    return short | {
        "causal of 512": (torch.ones(512, 512, dtype=torch.bool).tril(), (1, 2, 2)),
        "all of 512": (torch.ones(512, 512, dtype=torch.bool), (1, 2, 1)),
        "any pairs": (torch.rand(512, 512) < 0.5, (2, 2, 2)),
        "few pairs": (torch.rand(512, 512) < 0.002, (1, 2, 2)),
        "a map for each batch and head": (cut, (2, 4, 2)),
        "more keys than queries": (of_all_kinds(300, 700, 90, 11, (4,)), (2, 4, 1)),
        "more queries than keys": (of_all_kinds(700, 130, 50, 12, (2, 1)), (2, 4, 1)),
    }


def heads_for(mask):
    """(B, Hq, Hkv) for a mask's maps; query heads share K and V."""
    batches, heads = ((1,) * (4 - mask.dim()) + tuple(mask.shape))[:2]
    return max(batches, 2), heads if heads > 1 else 4, 1


def take(fast, monkeypatch, way):
    forms = {"together": fast.TOGETHER, "alone": fast.ALONE}[way]
    monkeypatch.setattr(fast, "choose_lists", lambda prepared, *sizes: (getattr(prepared, way), forms[prepared.D]))


@pytest.mark.gpu
@pytest.mark.parametrize("way", ["together", "alone"])
@pytest.mark.parametrize(
    ("D", "block", "dtype"),
    [(D, block, torch.float16) for D in (64, 128) for block in BLOCKS]
    + [(D, (64, 64), torch.float16) for D in (16, 32, 256)]
    + [(D, (128, 128), torch.bfloat16) for D in (64, 128, 256)],
)
def test_it_is_right_on_masks_of_all_kinds(fast, x1, monkeypatch, way, D, block, dtype):
    needs_hopper()
    take(fast, monkeypatch, way)
    wrong = {}
    for name, (mask, (B, Hq, Hkv)) in cases().items():
        mask = mask.cuda()
        q, k, v = inputs(B, Hq, Hkv, *mask.shape[-2:], D, dtype)
        prepared = fast.prepare(x1.tiles_of_mask(mask, *block), D)
        for scale in (None, 0.3):
            if found := complaints(q, k, v, mask, *fast.block_sparse_attention(q, k, v, prepared, scale), scale):
                wrong[name, scale] = found
    assert not wrong


@pytest.mark.gpu
@pytest.mark.parametrize("way", ["together", "alone"])
def test_inputs_may_have_any_layout(fast, x1, monkeypatch, way):
    """Heads beside tokens, a part of a longer tensor, and rows that do not begin at a multiple of 16 bytes."""
    needs_hopper()
    take(fast, monkeypatch, way)
    mask = torch.ones(200, 200, dtype=torch.bool, device="cuda").tril()
    tiles = x1.tiles_of_mask(mask)
    q, k, v = inputs(2, 4, 2, 201, 201, 65)
    wanted = [tensor[:, :, 1:, 1:].contiguous() for tensor in (q, k, v)]
    layouts = (
        [tensor[:, :, 1:, 1:] for tensor in (q, k, v)],
        [tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in wanted],
        [torch.nn.functional.pad(tensor, (0, 0, 3, 5))[:, :, 3:-5] for tensor in wanted],
    )
    expected = fast.block_sparse_attention(*wanted, tiles)
    assert complaints(*wanted, mask, *expected) == []
    for given in layouts:
        kept = [tensor.clone() for tensor in given]
        assert all(map(torch.equal, fast.block_sparse_attention(*given, tiles), expected))
        assert all(map(torch.equal, given, kept))  # none is written to


@pytest.mark.gpu
@pytest.mark.parametrize("way", ["together", "alone"])
@pytest.mark.parametrize("D", [64, 128])
def test_a_map_that_hides_nothing_gives_dense_attention(fast, x1, monkeypatch, way, D):
    needs_hopper()
    from kernels import fast_attention

    take(fast, monkeypatch, way)
    q, k, v = inputs(1, 8, 2, 1000, 1000, D)
    everything = torch.ones(1000, 1000, dtype=torch.bool, device="cuda")
    o, lse = fast.block_sparse_attention(q, k, v, x1.tiles_of_mask(everything, 128, 128))
    assert complaints(q, k, v, everything, o, lse) == []
    assert complaints(q, k, v, everything, fast_attention.flash_attention_forward(q, k, v, False), lse) == []


SHORT_LISTS = """
import torch
from kernels import fast_block_sparse as fast
from solutions import x1_block_sparse as x1
i = torch.arange(4096, device="cuda")
mask = (i[:, None] >= i) & (i[:, None] - i < 128)
mask[1000:2000] = False
forms = {"together": fast.TOGETHER, "alone": fast.ALONE}
for D in (64, 128):
    q = torch.randn(1, 32, 4096, D, dtype=torch.bfloat16, device="cuda")
    prepared = fast.prepare(x1.tiles_of_mask(mask), D)
    for way in forms:
        fast.choose_lists = lambda prepared, *sizes: (getattr(prepared, way), forms[way][D])
        attend = lambda: fast.block_sparse_attention(q, q[:, :8], q[:, 8:16], prepared)
        first, same = attend(), torch.ones((), dtype=torch.bool, device="cuda")
        for _ in range(250):
            for a, b in zip(attend(), first):
                same &= (a == b).all()
        assert same, (D, way)
"""


@pytest.mark.gpu
def test_it_does_not_hang():
    """A thousand launches of programs of one to three steps, or of nothing; each gives the same bits."""
    needs_hopper()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", SHORT_LISTS], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
