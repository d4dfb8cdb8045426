"""Beside the submission: its Tiles, made of the grader's lists, and its builders called. Imports torch alone."""

import math

import torch

NAMES = ("starts", "columns", "places", "bits")
PLAIN = ("block_q", "block_k", "queries", "keys", "batches", "heads")


def arguments(module, about, given, again):
    """{"tiles": the module's Tiles of the lists in lists.bin}. about: {"shapes": of the lists, then PLAIN}.

    Integers are the case's own, in each recording, so that the wrapper may read the lists.
    """
    tensors = {}
    with open("lists.bin", "rb") as file:
        for name in NAMES:
            shape = about["shapes"][name]
            tensors[name] = torch.empty(shape, dtype=torch.int32, device="cpu")
            if size := 4 * math.prod(shape):
                tensors[name].copy_(torch.frombuffer(bytearray(file.read(size)), dtype=torch.int32).view(shape))
            given(tensors[name], name)
    plain = {name: about[name] for name in PLAIN}
    try:
        return {"tiles": module.Tiles(**tensors, **plain)}
    except (AttributeError, TypeError) as error:
        fields = ", ".join((*NAMES, *PLAIN))
        raise TypeError(f"the grader makes Tiles({fields}), by name, as the skeleton has it: {error}") from None


def build(module, about):
    """Call a builder on the mask in mask.bin; returns ({"type", "plain"} of its Tiles, its lists)."""
    with open("mask.bin", "rb") as file:
        seen = torch.frombuffer(bytearray(file.read()), dtype=torch.bool).view(about["shape"])
    block_q, block_k = about["block"]
    builder = getattr(module, about["builder"])
    if about["builder"] == "tiles_of_mask":
        tiles = builder(seen, block_q, block_k)
    else:
        queries, keys = seen.shape
        tiles = builder(lambda q_pos, k_pos: seen[q_pos][:, k_pos], queries, keys, block_q, block_k, device="cpu")
    plain = {name: getattr(tiles, name, None) for name in PLAIN}
    plain = {name: value if isinstance(value, int) else str(value) for name, value in plain.items()}
    return {"type": type(tiles).__name__, "plain": plain}, [getattr(tiles, name, None) for name in NAMES]
