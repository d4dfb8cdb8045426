"""What is made of a mask before the fast form runs: tile lists made by a kernel, and the lists of what programs visit.

Both are plain Triton: the interpreter runs them, in a process of its own.
"""

import json
import os
import subprocess
import sys

import pytest
import torch

from grader.tests.support import ROOT

pytest.importorskip("triton")


def complaints(child):
    """{case: what is wrong} from a child of this folder."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(ROOT / "kernels" / "tests" / child)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return {name: wrong for line in done.stdout.splitlines() for name, wrong in json.loads(line).items()}


@pytest.mark.thorough
def test_the_lists_of_a_predicate_are_those_of_x1_bit_for_bit():
    found = complaints("tiles_on_gpu_child.py")
    assert not {name: wrong for name, wrong in found.items() if wrong} and len(found) == 10 * (4 + 4)


@pytest.mark.gpu
@pytest.mark.parametrize("block", [(16, 32), (64, 64), (128, 128), (128, 256)])
@pytest.mark.parametrize("queries, keys", [(2048, 2048), (1000, 1300), (1, 1)])
def test_compiled_too(queries, keys, block):
    from kernels.tests.tiles_on_gpu_child import compare

    found = compare(queries, keys, block, "cuda")
    assert found and not {name: wrong for name, wrong in found.items() if wrong}


@pytest.mark.thorough
def test_what_programs_visit_is_the_mask():
    found = complaints("block_sparse_lists_child.py")
    assert not {name: wrong for name, wrong in found.items() if wrong} and len(found) == 14 * 2


def test_numbers_of_segments():
    from kernels import tiles_on_gpu

    numbers = tiles_on_gpu.numbers_of((3, 1, 2), device="cpu")
    assert numbers.dtype == torch.int32 and numbers.tolist() == [0, 0, 0, 1, 2, 2]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0, 64), "0 queries, 64 keys"),
        ((64, -1), "64 queries, -1 keys"),
        ((64, 64, 64, 48), "block_k must be a multiple of 32; got 48"),
        ((64, 64, 64, 96), "block_k must be a power of two, at least 32; got 96"),
        ((64, 64, 48, 64), "block_q must be a power of two, at least 16; got 48"),
        ((64, 64, 8, 64), "block_q must be a power of two, at least 16; got 8"),
        ((64, 64, 256, 256), "at most 32768 pairs; got 256 x 256"),
    ],
)
def test_sizes_that_cannot_be_are_refused(arguments, words):
    from kernels import tiles_on_gpu

    with pytest.raises(ValueError, match=words):
        tiles_on_gpu.tiles_of(tiles_on_gpu.causal, torch.zeros(1, dtype=torch.int32), *arguments)


@pytest.mark.parametrize("block", [(32, 64), (64, 32), (96, 64)])
def test_tiles_that_are_no_multiples_of_a_unit_are_refused(block):
    from kernels import block_sparse_lists
    from solutions import x1_block_sparse

    tiles = x1_block_sparse.tiles_of_mask(torch.ones(64, 64, dtype=torch.bool), *block)
    with pytest.raises(ValueError, match=f"multiples of 64; got {block[0]} x {block[1]}"):
        block_sparse_lists.prepare_lists(tiles, 64, (64, 2), (64, 1))


def test_more_bits_than_a_code_can_point_at_are_refused():
    """17 GB of bits; here none of it is touched: the tensor has a row of them, and says that it has all."""
    from dataclasses import replace

    from kernels import block_sparse_lists
    from solutions import x1_block_sparse

    tiles = x1_block_sparse.tiles_of_mask(torch.rand(64, 64) < 0.5)
    many = replace(tiles, bits=tiles.bits.expand(1 << 26, -1, -1))
    with pytest.raises(ValueError, match="67108864 PARTIAL tiles of 64 x 64"):
        block_sparse_lists.prepare_lists(many, 64, (64, 2), (64, 1))
