"""Run with TRITON_INTERPRET=1: tile lists made by a kernel, beside x1's; JSON lines {case: what differs}.

A process of its own, since Triton decides at its import whether it interprets.
"""

import json

import torch
import triton
import triton.language as tl

from grader.kinds.attention.masks import Visibility
from grader.kinds.block_sparse import patterns
from kernels import tiles_on_gpu
from solutions import x1_block_sparse

SIZES = ((200, 200), (130, 260), (260, 130), (1, 97))  # of tiles of 64 x 64
OTHERS = (((32, 64), (200, 200)), ((16, 32), (97, 1)), ((128, 64), (256, 256)), ((64, 128), (200, 200)))


@triton.jit
def every_third(q_pos, k_pos, Data):
    """A predicate of a student's own, with rows that see nothing: every third key, for queries in the data's range."""
    return ((q_pos >= tl.load(Data)) & (q_pos < tl.load(Data + 1))) & ((q_pos + k_pos) % 3 == 0)


@triton.jit
def first_keys(q_pos, k_pos, Data):
    """One that does not look at the query."""
    return k_pos < tl.load(Data)


@triton.jit
def asked_within(q_pos, k_pos, Data):
    """Causal; it marks its data, which should stay as it is, where it is asked about a position that is not there."""
    tl.store(Data + 2 + q_pos * 0, 1, mask=q_pos >= tl.load(Data))
    tl.store(Data + 2 + k_pos * 0, 1, mask=k_pos >= tl.load(Data + 1))
    return q_pos >= k_pos


@triton.jit
def nothing(q_pos, k_pos, Data):
    return (q_pos < 0) & (k_pos < 0)


@triton.jit
def everything(q_pos, k_pos, Data):
    return (q_pos >= 0) & (k_pos >= 0)


def lengths_for(queries, keys):
    """Three segments, of which none ends with a tile unless the sequence is short."""
    total = max(queries, keys)
    first, second = (total + 2) // 3, total // 4
    return tuple(length for length in (first, second, total - first - second) if length)


def predicates(queries, keys, device="cpu"):
    """{name: (the kernel's predicate, its data, the same mask in torch)}."""
    lengths = lengths_for(queries, keys)
    numbers = tiles_on_gpu.numbers_of(lengths, device)

    def integers(*values):
        return torch.tensor(values, dtype=torch.int32, device=device)

    return {
        "causal": (tiles_on_gpu.causal, integers(0), Visibility(True).mask),
        "window": (tiles_on_gpu.sliding_window, integers(70, 0), Visibility(True, 70).mask),
        "window and sinks": (tiles_on_gpu.sliding_window, integers(40, 3), Visibility(True, 40, 3).mask),
        "documents": (tiles_on_gpu.documents, numbers, patterns.Documents(lengths).mask),
        "interleaved": (tiles_on_gpu.interleaved, numbers, patterns.Interleaved(lengths).mask),
        "every third": (
            every_third, integers(10, 70),
            lambda i, j: ((i >= 10) & (i < 70))[:, None] & ((i[:, None] + j[None]) % 3 == 0),
        ),
        "first keys": (first_keys, integers(64), lambda i, j: (j < 64)[None].expand(len(i), -1)),
        "asked within": (asked_within, integers(queries, keys, 0), Visibility(True).mask),
        "nothing": (nothing, integers(0), lambda i, j: (i < 0)[:, None] & (j < 0)),
        "everything": (everything, integers(0), lambda i, j: (i >= 0)[:, None] & (j >= 0)),
    }  # fmt: skip


def differences(found, expected):
    """The names of what is not the same in two Tiles, bit for bit; dtypes and shapes too."""
    tensors = ("starts", "columns", "places", "bits")
    return [
        name
        for name in vars(expected)
        if (name not in tensors and getattr(found, name) != getattr(expected, name))
        or (name in tensors and not identical(getattr(found, name), getattr(expected, name)))
    ]


def identical(a, b):
    return a.dtype == b.dtype and a.is_contiguous() and torch.equal(a, b)


def compare(queries, keys, block, device="cpu"):
    """{case: the names of what differs}."""
    found = {}
    for name, (visible, data, mask) in predicates(queries, keys, device).items():
        before = data.clone()
        tiles = tiles_on_gpu.tiles_of(visible, data, queries, keys, *block)
        wrong = differences(tiles, x1_block_sparse.tiles_of_predicate(mask, queries, keys, *block, device))
        wrong += [] if torch.equal(data, before) else ["data"]
        found[f"{name}, {queries} x {keys}, tiles {block[0]} x {block[1]}"] = wrong
    return found


if __name__ == "__main__":
    for sizes in SIZES:
        print(json.dumps(compare(*sizes, (64, 64))))
    for block, sizes in OTHERS:
        print(json.dumps(compare(*sizes, block)))
