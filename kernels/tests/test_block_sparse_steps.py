"""The four plain kernels of block-sparse attention: right on all that the lab is tested on."""

import json
import os
import subprocess
import sys

import pytest
import torch

from grader.kinds.block_sparse import patterns
from grader.tests.support import ROOT, SOLUTIONS

pytest.importorskip("triton")
CHILD = ROOT / "kernels" / "tests" / "block_sparse_steps_child.py"


@pytest.fixture(scope="module")
def steps():
    from kernels import block_sparse_steps

    return block_sparse_steps


@pytest.fixture(scope="module")
def x1():
    from solutions import x1_block_sparse

    return x1_block_sparse


@pytest.mark.thorough
@pytest.mark.parametrize("kernel", ["simple", "prefetch", "row_pairs", "longest_first"])
def test_the_kernel_is_right_on_masks_of_all_kinds(kernel):
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(CHILD), str(SOLUTIONS), kernel]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    found = {name: errors for line in done.stdout.splitlines() for name, errors in json.loads(line).items()}
    wrong = {n: e for n, e in found.items() if not (e["o"] <= 0 and e["lse"] <= 0 and e["nothing"])}
    assert not wrong and len(found) == 16


def test_a_union_holds_each_tile_once_with_the_kind_of_each_row(steps, x1):
    mask = patterns.random_blocks(5, 32, (0, 1, 2, 3), 1)
    tiles = x1.tiles_of_predicate(mask.mask, 150, 160, 32, 32)
    found = steps.unions(tiles, 2)
    kinds = torch.tensor([*mask.kinds, (0,) * 5])
    assert found.starts.shape == (1, 3, 3)
    for turn, (full, mixed, end) in enumerate(found.starts[0].tolist()):
        columns = found.columns[full:end].tolist()
        two = kinds[2 * turn : 2 * turn + 2]
        assert sorted(columns) == two.any(0).nonzero().flatten().tolist()
        assert torch.equal(found.kinds[full:end].T, two[:, columns].int())
        assert all(bool((two[:, column] == 1).all()) == (i < mixed - full) for i, column in enumerate(columns))


def test_the_order_of_rows_is_the_longest_first(steps, x1):
    tiles = x1.tiles_of_predicate(patterns.Documents((100, 20, 136)).mask, 256, 256, 32, 32)
    lengths = (tiles.starts[0, :, 3] - tiles.starts[0, :, 0])[steps.rows_by_length(tiles)[0].long()]
    assert sorted(steps.rows_by_length(tiles)[0].tolist()) == list(range(8))
    assert lengths.tolist() == sorted(lengths.tolist(), reverse=True)


def test_members_share_heads_only_where_they_share_the_map(steps, x1):
    shared = x1.tiles_of_mask(torch.ones(32, 32, dtype=torch.bool), 32, 32)
    apart = x1.tiles_of_mask(torch.ones(4, 32, 32, dtype=torch.bool), 32, 32)
    assert steps.members(shared, 2) == (1, 2) and steps.members(shared, 1) == (2, 1)
    assert steps.members(apart, 2) == (2, 1) and steps.members(shared, 3) == (2, 1)


def test_arguments_that_do_not_fit_are_refused(steps, x1):
    tiles = x1.tiles_of_mask(torch.ones(8, 8, dtype=torch.bool), 32, 32)
    q = torch.zeros(1, 1, 9, 16)
    for kernel in steps.KERNELS.values():
        with pytest.raises(ValueError, match="8 queries and 8 keys; q has 9"):
            kernel(q, q, q, tiles)
