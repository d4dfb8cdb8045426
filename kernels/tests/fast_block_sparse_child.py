"""Run with TRITON_INTERPRET=1 and head dims, masks: the fast form on a CPU; a JSON line {case: complaints} each.

A process of its own, since Triton decides at its import whether it interprets the kernels that make the lists.
"""

import json
import sys
from functools import partial

import pytest
import torch

from kernels.tests.block_sparse_lists_child import of_all_kinds
from kernels.tests.gluon_on_cpu import kernels
from kernels.tests.test_fast_block_sparse import BLOCKS, LAUNCHES, cases, complaints, inputs, take
from solutions import x1_block_sparse


def complaints_about(fast, mask, heads, D, block, scale, multiprocessors=3):
    q, k, v = inputs(*heads, *mask.shape[-2:], D, device="cpu")
    prepared = fast.prepare(x1_block_sparse.tiles_of_mask(mask, *block), D)
    attend = partial(kernels.run, fast.block_sparse_attention, multiprocessors=multiprocessors)
    return complaints(q, k, v, mask, *attend(q, k, v, prepared, scale), scale)


if __name__ == "__main__":
    torch.set_num_threads(1)
    head_dims, names = sys.argv[1].split(","), sys.argv[2:]
    fast = kernels.import_on_cpu()["fast_block_sparse"]
    with pytest.MonkeyPatch.context() as monkeypatch:
        for number, (name, (mask, heads)) in enumerate(cases().items()):
            for D in map(int, head_dims) if name in names or not names else ():
                for way, scale in (("together", None), ("alone", 0.3)):
                    take(fast, monkeypatch, way)
                    found = complaints_about(fast, mask, heads, D, BLOCKS[number % len(BLOCKS)], scale)
                    print(json.dumps({f"{name}, D = {D}, {way}": found}), flush=True)
        for name, (heads, bytes_of_keys, multiprocessors) in LAUNCHES.items():
            for D in map(int, head_dims) if name in names or not names else ():
                monkeypatch.setattr(fast, "L2_FOR_KEYS", bytes_of_keys)
                for way in ("together", "alone"):
                    take(fast, monkeypatch, way)
                    found = complaints_about(
                        fast, of_all_kinds(256, 256, 64), heads, D, (64, 64), None, multiprocessors
                    )
                    print(json.dumps({f"{name}, D = {D}, {way}": found}), flush=True)
