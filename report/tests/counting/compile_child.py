"""Compile the kernels of block_sparse_steps.py, and the lab X2's in each order, for a Hopper GPU that is not here.

A JSON line {name: facts of the kernel} each; run without TRITON_INTERPRET, in a folder of its own.
"""

import json
import os

import torch
from msgspec.structs import asdict

from grader.gpu.gpus import GPUS
from report.counting import compiling

GPU = GPUS["sm_90"]


def compiled(call, *tensors):
    with compiling.launches(GPU) as found, torch.no_grad():
        call(*tensors)
    (facts,) = found.report()
    return asdict(facts)


if __name__ == "__main__":
    compiling.get_ready(os.getcwd())
    from grader.kinds.block_sparse import patterns
    from kernels import block_sparse_steps as steps
    from report.arms.orders import forward
    from report.studies.orders import ORDERS
    from solutions import x1_block_sparse as x1

    for block in (64, 128):
        tiles = x1.tiles_of_predicate(patterns.Interleaved((261, 600, 163)).mask, 1024, 1024, block, block)
        for kv_heads in (8, 4):
            q, k, v = (torch.zeros(1, heads, 1024, 64, dtype=torch.float16) for heads in (8, kv_heads, kv_heads))
            for name, attend in steps.KERNELS.items():
                facts = compiled(lambda q, k, v, attend=attend, tiles=tiles: attend(q, k, v, tiles), q, k, v)
                print(json.dumps({f"{name} {block} 8/{kv_heads}": facts}), flush=True)
    for order in ORDERS:
        q = torch.zeros(1, 4, 1024, 128, dtype=torch.float16)
        print(json.dumps({order: compiled(forward(order), q, q, q)}), flush=True)
