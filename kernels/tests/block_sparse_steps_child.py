"""Run with TRITON_INTERPRET=1: the four kernels of block_sparse_steps.py on what the lab's own is tested on."""

import json
import sys

import torch

from grader.tests.solutions import block_sparse_child as lab
from kernels import block_sparse_steps as steps

FOUR_HEADS = {"four heads that share K and V": (lab.CASES["every kind of tile"][0], {"Hkv": 1})}
BLOCKS_OF_128 = {"more keys in a tile than in a step": (lab.CASES["images between text"][0], {"block": (32, 128)})}

if __name__ == "__main__":
    for kernel in sys.argv[2:]:
        attend = steps.KERNELS[kernel]
        torch.manual_seed(0)
        lab.x1.block_sparse_attention = attend
        for name, (visibility, changes) in (lab.CASES | FOUR_HEADS | BLOCKS_OF_128).items():
            print(json.dumps({f"{kernel}, {name}": lab.run(visibility, changes)}))
        for batches in (1, 2):
            print(json.dumps({f"{kernel}, {batches} batches of maps": lab.one_map_a_head(batches)}))
