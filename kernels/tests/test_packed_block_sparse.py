"""The packed form: its lists against the plain reading of the mask, its kernel and dropout against what is right."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest
import torch

from grader.tests.support import KERNELS, ROOT

pytest.importorskip("triton")
CHILD = ROOT / "kernels" / "tests" / "packed_child.py"
DEVICES = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])


def load(name):
    spec = importlib.util.spec_from_file_location(name, KERNELS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def packed():
    return load("packed_block_sparse")


@pytest.fixture(scope="module")
def dropout():
    return load("dropout_pattern")


def child(what, device):
    """What the child prints of it: {name: facts}; from the machine where the device is the CPU."""
    environment = {**os.environ, "TRITON_INTERPRET": "0", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(CHILD), str(KERNELS), device, what]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return {name: facts for line in done.stdout.splitlines() for name, facts in json.loads(line).items()}


def cu(*lengths):
    return torch.tensor([0, *lengths]).cumsum(0).int()


# The kernel -----------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
@DEVICES
def test_the_kernel_is_right_on_batches_of_all_kinds(device):
    cases = child("cases", device)
    wrong = {n: f for n, f in cases.items() if not (f["o"] <= 0 and f["lse"] <= 0 and f["nothing"])}
    assert not wrong and len(cases) == 25
    for facts in cases.values():
        tokens, heads, D = facts["shape"]
        assert facts["form"] == [[tokens, heads, D], facts["form"][1], [heads, tokens], "torch.float32"]
    assert cases["causal, more queries than keys"]["empty_rows"] >= 4 * (65 + 36 + 64)
    assert cases["causal, no mask"]["empty_rows"] == cases["causal, one query"]["empty_rows"] == 0
    assert all(facts["error"] > 0 for name, facts in cases.items() if name not in SILENT)


SILENT = ("no keys at all", "no queries at all", "nothing at all", "one token")


@DEVICES
def test_what_is_hidden_is_never_loaded(device):
    assert child("poisoned", device)["same"]


@pytest.mark.thorough
@DEVICES
def test_dropout_is_the_same_for_every_shape_of_tiles(device):
    found = child("patterns", device)
    assert len(found) == 6 and all(found.values()), found


@pytest.mark.thorough
@DEVICES
def test_dropout_is_right_on_the_average_and_leaves_lse_alone(device):
    facts = child("expectation", device)
    assert facts["lse"] and facts["largest_z"] < 5 and 0.3 < facts["mean_z2"] < 2.5, facts


@pytest.mark.thorough
@DEVICES
def test_the_published_interface_says_the_same(device):
    facts = child("published", device)
    assert len(facts) == 7 and all(facts.values()), facts


def test_what_the_published_interface_does_not_offer_is_one_sentence():
    said = child("refusals", "cpu")
    assert "streaming heads are not offered: streaming_info must be None" in said["streaming"]
    assert said["a streaming head"].endswith("got [-1, 0]; -1, a streaming head, is not offered")
    assert said["no mask"] == "base_blockmask is missing: head_mask_type has 1 heads under it"
    assert said["too short"] == "max_seqlen_q must be at least the longest sequence, 40; got 39"
    assert said["two modes"] == "head_mask_type must hold 0 or 1 for each of 2 heads; got [0]"
    assert (
        said["maps"]
        == "base_blockmask must have 1 map, one for each of 2 sparse heads or one for each of 2 heads; got 3"
    )
    assert said["rows"] == "base_blockmask must be (B, maps, 1 or more, 1 or more); got (1, 1, 0, 1)"
    assert said["gradients"].startswith("forward only: ") and "torch.no_grad()" in said["gradients"]
    assert "unexpected keyword argument 'window'" in said["unknown"] and len(said) == 9


# The pattern of dropout -----------------------------------------------------------------------------------------------


def test_philox_gives_the_numbers_of_its_authors(dropout):
    """The known answers of the Random123 library, Philox4x32-10."""
    zero, ones = torch.tensor(0), torch.tensor(0xFFFFFFFF)
    pi = [torch.tensor(word) for word in (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)]
    assert dropout.philox((zero,) * 4, 0) == 0x6627E8D5
    assert dropout.philox((ones,) * 4, 0xFFFFFFFFFFFFFFFF) == 0x408F276D
    assert dropout.philox(pi, 0x299F31D0A4093822) == 0xD16CFE09


def test_dropout_differs_by_head_sequence_seed_and_place(dropout):
    one = dropout.kept(200, 300, 3, 0, 0.3, 11).double()
    assert abs(float(one.mean()) - 0.7) < 5 * (0.21 / one.numel()) ** 0.5
    others = {
        "head": (one[1:], one[:-1]), "query": (one[:, 1:], one[:, :-1]), "key": (one[..., 1:], one[..., :-1]),
        "mirrored": (one[:, :200, :200], one[:, :200, :200].mT),
        "sequence": (one, dropout.kept(200, 300, 3, 1, 0.3, 11)), "seed": (one, dropout.kept(200, 300, 3, 0, 0.3, 12)),
        "the seed's high word": (one, dropout.kept(200, 300, 3, 0, 0.3, 11 + (1 << 32))),
    }  # fmt: skip
    for name, (a, b) in others.items():
        correlation = float(((a - 0.7) * (b.double() - 0.7)).mean()) / 0.21
        if name == "mirrored":  # the diagonal is its own mirror
            correlation -= 1 / 200
        assert abs(correlation) < 5 * 2**0.5 / a.numel() ** 0.5, name


def test_a_lower_rate_drops_a_part_of_the_same(dropout):
    few, many = (dropout.kept(50, 50, 2, 0, p, 3) for p in (0.1, 0.5))
    assert not (many & ~few).any() and dropout.kept(50, 50, 2, 0, 0.0, 3).all()


# The lists ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("block, tile", [((64, 64), (32, 32)), ((192, 128), (64, 32)), ((48, 96), (16, 32))])
def test_the_lists_hold_the_tiles_that_are_visible(packed, block, tile, is_causal):
    """Against the dense reading: every tile that shows an element, those that are wholly visible first."""
    torch.manual_seed(0)
    q_lengths, k_lengths, heads = (300, 0, 65, 1, 100), (200, 40, 129, 64, 0), [True, False, True]
    grid = -(-max(q_lengths) // block[0]), -(-max(k_lengths) // block[1])
    mask = torch.randint(2, (5, 3, *grid))
    lists = packed.tile_lists(cu(*q_lengths), cu(*k_lengths), 3, mask, block, heads, is_causal, tile)
    programs = lists.programs.tolist()
    assert programs == [[b, i] for b, n in enumerate(q_lengths) for i in range(-(-n // tile[0]))]
    for h, sparse in enumerate(heads):
        for (b, i), (begin, masked, end) in zip(programs, lists.bounds[lists.maps[h]].tolist(), strict=True):
            q_pos, k_pos = torch.arange(i * tile[0], min((i + 1) * tile[0], q_lengths[b])), torch.arange(k_lengths[b])
            seen = torch.ones(len(q_pos), len(k_pos), dtype=torch.bool)
            if sparse:
                seen = mask[b, h].bool()[q_pos // block[0]][:, k_pos // block[1]]
            if is_causal:
                seen = seen & (k_pos <= q_pos[:, None] + k_lengths[b] - q_lengths[b])
            columns = [seen[:, j : j + tile[1]] for j in range(0, len(k_pos), tile[1])]
            some = [j for j, part in enumerate(columns) if part.any()]
            every = [j for j, part in enumerate(columns) if part.all() and part.shape[1] == tile[1]]
            assert lists.columns[begin:end].tolist() == some, (h, b, i)
            assert lists.columns[begin:masked].tolist() == every, (h, b, i)


def test_tiles_of_a_block_share_one_list(packed):
    """16k tokens under blocks of 128 that show one in ten: a list for each row of blocks, not for each tile."""
    mask = torch.rand(1, 1, 128, 128) < 0.1
    lists = packed.tile_lists(cu(16384), cu(16384), 8, mask)
    assert len(lists.columns) == 2 * int(mask.sum()) and lists.bounds.shape == (1, 256, 3)


# Errors ---------------------------------------------------------------------------------------------------------------


def attend(packed, q=(8, 4, 16), k=(8, 2, 16), cu_q=None, cu_k=None, mask=None, **arguments):
    q, k = torch.zeros(q), torch.zeros(k)
    cu_q, cu_k = (cu(8) if x is None else torch.tensor(x, dtype=torch.int32) for x in (cu_q, cu_k))
    packed.packed_block_sparse_attention(q, k, k, cu_q, cu_k, mask, **arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"q": (1, 8, 4, 16)}, r"q must be \(total_q, Hq, D\); got \(1, 8, 4, 16\)"),
        ({"q": (8, 4, 48), "k": (8, 2, 48)}, "D=48"),
        ({"k": (8, 2, 32)}, r"D of q; got q \(8, 4, 16\), k \(8, 2, 32\)"),
        ({"k": (8, 3, 16)}, "Hq=4, Hkv=3"),
        ({"cu_q": [1, 8]}, "cu_seqlens_q must start at 0; got 1"),
        ({"cu_k": [0, 5, 3, 8]}, "cu_seqlens_k must not decrease; got 5 and then 3 at sequence 1"),
        ({"cu_q": [0, 7]}, "cu_seqlens_q must end at the tokens of q, 8; got 7"),
        ({"cu_k": [0, 9]}, "cu_seqlens_k must end at the tokens of k, 8; got 9"),
        ({"cu_q": [0, 3, 8]}, "2 sequences, cu_seqlens_k of 1"),
        ({"cu_q": [0]}, r"int32 \(B \+ 1,\), B >= 1; got torch.int32, \(1,\)"),
        ({"block": (96, 128), "tile": (64, 64)}, "block_q must be a multiple of the kernel's tile_q=64; got 96"),
        ({"block": (128, 32), "tile": (64, 64)}, "block_k must be a multiple of the kernel's tile_k=64; got 32"),
        ({"block": (96, 96), "tile": (48, 16)}, "tile_q must be a power of two from 16 on; got 48"),
        ({"mask": torch.ones(1, 4, 1, 2)}, "float32"),
        ({"mask": torch.ones(1, 4, 1, 2, dtype=torch.int8)}, r"\(1, 1, 1, 1\) or \(1, 4, 1, 1\); got \(1, 4, 1, 2\)"),
        ({"mask": torch.ones(1, 3, 1, 1, dtype=torch.bool)}, r"got \(1, 3, 1, 1\)"),
        ({"mask": torch.full((1, 1, 1, 1), 2)}, "0 and 1; got values from 2 to 2"),
        ({"mask": torch.ones(1, 1, 1, 1, dtype=torch.bool, device="meta")}, "on cpu; got meta"),
        ({"mask": torch.ones(1, 1, 1, 1, dtype=torch.bool), "sparse_heads": [True]}, "got 1 for Hq=4"),
        ({"sparse_heads": [True] * 3 + [False]}, "got none, and 3 such heads"),
        ({"p_dropout": 1.0}, "less than 1; got 1.0"),
        ({"p_dropout": -0.1}, "at least 0 and less than 1; got -0.1"),
        ({"p_dropout": float("nan")}, "got nan"),
        ({"p_dropout": 0.5, "seed": -3}, "got -3"),
    ],
)
def test_what_does_not_fit_is_said_with_both_numbers(packed, arguments, words):
    with pytest.raises(ValueError, match=words):
        attend(packed, **arguments)


def test_what_the_tensors_must_be(packed):
    q, k = torch.zeros(8, 4, 16), torch.zeros(8, 2, 16)
    for arguments, words in (
        ((q, k, k, cu(8).long(), cu(8)), "cu_seqlens_q must be int32"),
        ((q, k, k.half(), cu(8), cu(8)), "torch.float32, torch.float32, torch.float16"),
        ((q, k, torch.zeros(8, 16, 2).mT, cu(8), cu(8)), "last stride must be 1"),
        ((q.to("meta"), k, k, cu(8), cu(8)), "one device; got meta, cpu, cpu, cpu"),
    ):
        with pytest.raises(ValueError, match=words):
            packed.packed_block_sparse_attention(*arguments)
    with pytest.raises(ValueError, match="lists are of 2 heads; q has 4"):
        packed.attend(q, k, k, packed.tile_lists(cu(8), cu(8), 2))
