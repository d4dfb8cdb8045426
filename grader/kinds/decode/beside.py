"""Beside the submission: the arguments that are not q and the caches. Imports torch alone."""

import torch


def arguments(module, about, given, again):
    """{name: tensor} of lengths, block_table, sink_logits.

    about: {"ints": {name: [elements of its buffer, shape, strides, least, most]}, "sink_logits": Hq or None}. All are
    stand-ins, other ones in each recording: a wrapper that reads one of them back gives two programs.
    """
    found = {}
    for name, (elements, shape, strides, least, most) in about["ints"].items():
        data = torch.full((elements,), most if again else least, dtype=torch.int32, device="cpu")
        found[name] = data.as_strided(shape, strides)
    if about["sink_logits"]:
        found["sink_logits"] = torch.randn(about["sink_logits"], device="cpu")
    for name, tensor in found.items():
        given(tensor, name)
    return found
