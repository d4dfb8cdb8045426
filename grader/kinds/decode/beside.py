"""Beside the submission: the arguments that are not q and the caches. Imports torch alone."""

import math

import torch


def arguments(module, about, given):
    """{name: tensor} of lengths, block_table, sink_logits. about: {"ints": {name: shape}, "sink_logits": Hq or None}.

    Integers are the case's own, from ints.bin, so that the wrapper may read them. Logits are stand-ins, other ones in
    each call.
    """
    found = {}
    with open("ints.bin", "rb") as file:
        for name, shape in about["ints"].items():
            data = bytearray(file.read(4 * math.prod(shape)))
            found[name] = torch.frombuffer(data, dtype=torch.int32).view(shape).clone()
    if about["sink_logits"]:
        found["sink_logits"] = torch.randn(about["sink_logits"], device="cpu")
    for name, tensor in found.items():
        given(tensor, name)
    return found
