"""Run with TRITON_INTERPRET=1: the lab's reference kernel on masks of all kinds; a JSON line {name: errors} each.

A process of its own, since Triton decides at its import whether it interprets.
"""

import json
import sys
from dataclasses import dataclass

import torch

sys.path.insert(0, sys.argv[1])
import x1_block_sparse as x1

from grader.kinds.attention import oracle
from grader.kinds.attention.masks import Visibility
from grader.kinds.block_sparse import patterns
from grader.kinds.block_sparse.patterns import CAUSAL, EMPTY, FULL, PARTIAL

SHAPE = {"B": 2, "Hq": 4, "Hkv": 2, "Nq": 96, "Nk": 96, "D": 16, "dtype": "float16", "block": (32, 32)}
CASES = {
    "documents": (patterns.Documents((40, 23, 33)), {}),
    "images between text": (patterns.Interleaved((33, 40, 23)), {}),
    "causal": (Visibility(True), {}),
    "window and sinks": (Visibility(True, 20, 3), {}),
    "every kind of tile": (patterns.random_blocks(3, 32, (EMPTY, FULL, CAUSAL, PARTIAL), 1), {}),
    "rows that see nothing": (patterns.Blocks(((EMPTY,) * 3, (PARTIAL, EMPTY, EMPTY), (FULL,) * 3), 32), {}),
    "ragged": (patterns.Documents((40, 23, 20)), {"Nq": 83, "Nk": 83}),
    "fewer keys than queries": (patterns.random_blocks(3, 32, (FULL, PARTIAL), 2), {"Nq": 90, "Nk": 70}),
    "one token": (Visibility(True), {"Nq": 1, "Nk": 1}),
    "tiles that are not square": (Visibility(True), {"block": (16, 64), "Nq": 100, "Nk": 100}),
    "vision transformer": (patterns.local_and_global(4, 16), {"Nq": 50, "Nk": 50, "Hkv": 4}),
    "float32": (patterns.Interleaved((33, 40, 23)), {"dtype": "float32"}),
}


def run(visibility, changes):
    case = SHAPE | changes
    q_shape, k_shape = ((case["B"], case[h], case[n], case["D"]) for h, n in (("Hq", "Nq"), ("Hkv", "Nk")))
    dtype = getattr(torch, case["dtype"])
    q, k, v = (torch.randn(shape).to(dtype) for shape in (q_shape, k_shape, k_shape))
    tiles = x1.tiles_of_predicate(visibility.mask, case["Nq"], case["Nk"], *case["block"])
    return judged(q, k, v, visibility, *x1.block_sparse_attention(q, k, v, tiles))


def judged(q, k, v, visibility, o, lse):
    """By how much o and lse exceed what a careful kernel may be off by; 0 or less is right."""
    expected = oracle.expect(q, k, v, visibility)
    nothing = expected.lse.isinf()
    return {
        "o": float(((o.double() - expected.o).abs() - expected.allowed_o).max()),
        "lse": float(((lse.double() - expected.lse).abs() - expected.allowed_lse)[~nothing].max()),
        "nothing": bool((lse[nothing] == -torch.inf).all() and (o[nothing] == 0).all() and not o.isnan().any()),
    }


@dataclass(frozen=True)
class Dense:
    """A mask that is given element by element."""

    seen: torch.Tensor

    def mask(self, q_pos, k_pos):
        return self.seen[q_pos][:, k_pos]


def one_map_a_head(batches):
    """A map for each head, and for each batch too where there are two; each head is compared with its own mask."""
    masks = torch.rand(batches, 4, 64, 96) < 0.3
    masks[..., :32, :64] = torch.rand(batches, 4, 1, 1) < 0.5
    q, k, v = torch.randn(2, 4, 64, 16).half(), torch.randn(2, 2, 96, 16).half(), torch.randn(2, 2, 96, 16).half()
    o, lse = x1.block_sparse_attention(q, k, v, x1.tiles_of_mask(masks if batches > 1 else masks[0], 32, 32))
    parts = []
    for b in range(2):
        for h in range(4):
            mask = masks[b % batches, h]
            one = (q[b : b + 1, h : h + 1], k[b : b + 1, h // 2][:, None], v[b : b + 1, h // 2][:, None])
            parts.append(judged(*one, Dense(mask), o[b : b + 1, h : h + 1], lse[b : b + 1, h : h + 1]))
    return {
        "o": max(p["o"] for p in parts),
        "lse": max(p["lse"] for p in parts),
        "nothing": all(p["nothing"] for p in parts),
    }


if __name__ == "__main__":
    torch.manual_seed(0)
    for name, (visibility, changes) in CASES.items():
        print(json.dumps({name: run(visibility, changes)}))
    for batches in (1, 2):
        print(json.dumps({f"a map for each head, {batches} batches of maps": one_map_a_head(batches)}))
