"""What is changed of a wrong case: where it then comes out right, that is what the mistake depends on."""

from dataclasses import replace

from grader.engine import contrast
from grader.engine.contrast import Contrast
from grader.kinds.attention.known_mistakes import HEADS, POINTERS, SOFTMAX, TAILS

WHOLE = 128  # tokens: a multiple of every tile
ZEROS = "is a visible score of exactly 0 taken for a hidden one?"
LARGE = "what is subtracted from a score before exp, and when is what was summed before rescaled?"


def whole(tokens):
    return max(1, tokens // WHOLE) * WHOLE


# Of cases with lists, which are made for their own heads and tokens, the first four alone.
CONTRASTS = (
    replace(contrast.DTYPE, read=SOFTMAX),
    replace(contrast.LAYOUT, read=POINTERS),
    Contrast("where no query is all zeros", ZEROS, SOFTMAX,
             {"values": lambda case: "normal" if case.values == "zero row" else case.values}),
    Contrast("with numbers of ordinary size", LARGE, SOFTMAX, {"values": "normal"}),
    Contrast("where each query head has its own copy of K and V", "which kv head is read?", HEADS,
             {"Hkv": lambda case: case.Hq if case.one_mask and case.shares_heads else case.Hkv}),
    Contrast("with its first batch and head alone", "what moves from one head, or batch, to the next?", HEADS,
             {name: lambda case, name=name: 1 if case.one_mask and getattr(case, name) else getattr(case, name)
              for name in ("B", "Hq", "Hkv")}),
    Contrast("with whole tiles", "what lies past the end of the last tile?", TAILS,
             {"N": lambda case: whole(case.N) if case.one_mask else case.N,
              "Nk": lambda case: case.Nk and (whole(case.Nk) if case.one_mask else case.Nk)}),
)  # fmt: skip
