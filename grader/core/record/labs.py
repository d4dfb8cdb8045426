"""Beside the submission, for the labs: what a call is given beside tensors, and functions whose result is plain data.

The lab of block-sparse attention: its Tiles of the grader's lists, and its builders called. Integers are the case's
own: the lists may be read. The lab on program order: the order as a function, on sizes that the grader draws.
"""

import math
import sys
from pathlib import Path

import torch

from grader.core.inside import replies

NAMES = ("starts", "columns", "places", "bits")
PLAIN = ("block_q", "block_k", "queries", "keys", "batches", "heads")


def loaded_module(loaded):
    return sys.modules[Path(loaded.setup["module"]).stem]


def make_arguments(loaded, request, recorder):
    """What a call is given beside q, k, v and its plain arguments: {"tiles": Tiles} where the request has lists."""
    described = request.get("lists")
    if not described:
        return {}
    tensors = {}
    with open("lists.bin", "rb") as file:
        for name in NAMES:
            shape = described["shapes"][name]
            tensors[name] = torch.empty(shape, dtype=torch.int32, device="cpu")
            if size := 4 * math.prod(shape):
                tensors[name].copy_(torch.frombuffer(bytearray(file.read(size)), dtype=torch.int32).view(shape))
            recorder.given(tensors[name], name)
    plain = {name: described[name] for name in PLAIN}
    try:
        return {"tiles": loaded_module(loaded).Tiles(**tensors, **plain)}
    except (AttributeError, TypeError) as error:
        fields = ", ".join((*NAMES, *PLAIN))
        raise TypeError(f"the grader makes Tiles({fields}), by name, as the skeleton has it: {error}") from None


def build(loaded, request):
    """Call a builder on the mask in mask.bin; returns the parts of its Tiles, described, their bytes in outputs.bin."""
    with open("mask.bin", "rb") as file:
        seen = torch.frombuffer(bytearray(file.read()), dtype=torch.bool).view(request["shape"])
    block_q, block_k = request["block"]
    builder = getattr(loaded_module(loaded), request["builder"])
    with torch.no_grad():
        if request["builder"] == "tiles_of_mask":
            tiles = builder(seen, block_q, block_k)
        else:
            queries, keys = seen.shape
            tiles = builder(lambda q_pos, k_pos: seen[q_pos][:, k_pos], queries, keys, block_q, block_k, device="cpu")
    parts = [getattr(tiles, name, None) for name in NAMES]
    plain = {name: getattr(tiles, name, None) for name in PLAIN}
    return {
        "type": type(tiles).__name__,
        "outputs": replies.write_outputs(parts, "cpu"),
        "plain": {name: value if isinstance(value, int) else str(value) for name, value in plain.items()},
    }


def order(loaded, request):
    """program_order of each of the request's sizes, until the first that is no list of pairs of integers."""
    program_order, found = loaded_module(loaded).program_order, []
    for sizes in request["sizes"]:
        places = program_order(*sizes)
        found.append(as_pairs(places))
        if found[-1] is None:
            return {"orders": found, "came": f"{type(places).__name__} {places!r}"[:80]}
    return {"orders": found}


def as_pairs(places):
    """[[head, tile], ...], or None."""
    try:
        pairs = [list(map(int, place)) for place in places]
    except (TypeError, ValueError):
        return None
    return pairs if all(len(pair) == 2 for pair in pairs) else None
