"""A wrong case with one thing about it changed: where it then comes out right, that is what the mistake depends on."""

from dataclasses import replace

import torch

from grader.kinds import contrast
from grader.kinds.attention import inputs
from grader.kinds.attention.known_mistakes import HEADS, POINTERS, SOFTMAX, TAILS

WHOLE = 128  # tokens: a multiple of every tile


def find(kind, submission, case, seed):
    """[Measured]: the first change of the case that makes its outputs right; the numbers are the case's own."""
    q, k, v = (placed.tensor for placed in inputs.make(case, seed))

    def make(changed):
        if changed.values != case.values:
            return inputs.make(changed, seed)
        copies = changed.kv_heads // case.kv_heads or 1
        heads, keys = (changed.Hq, changed.N), (changed.kv_heads, changed.num_keys)
        parts = ((q, heads), (k.repeat_interleave(copies, 1), keys), (v.repeat_interleave(copies, 1), keys))
        own = (each[: changed.B, :H, :N].to(getattr(torch, changed.dtype)) for each, (H, N) in parts)
        return [inputs.place(each, changed.layout, name) for name, each in zip("qkv", own, strict=True)]

    return contrast.find(kind, submission, case, changes(case), make)


def changes(case):
    """(the changed case, kind of mistake, words, question, section) of each change."""
    yield replace(case, dtype="float32"), *contrast.DTYPE, SOFTMAX
    yield replace(case, layout="contiguous"), *contrast.LAYOUT, POINTERS
    words, question = {
        "zero row": ("where no query is all zeros", "is a visible score of exactly 0 taken for a hidden one?"),
    }.get(case.values, (
        "with scores of ordinary size",
        "what is subtracted from a score before exp, and when is what was summed before rescaled?",
    ))  # fmt: skip
    yield replace(case, values="normal"), "values", words, question, SOFTMAX
    if not case.one_mask:
        return  # lists are made for the case's own heads and tokens
    if case.shares_heads:
        words = "where each query head has its own copy of K and V"
        yield replace(case, Hkv=case.Hq), "groups", words, "which kv head is read?", HEADS
    question = "what moves from one head, or batch, to the next?"
    yield replace(case, B=1, Hq=1, Hkv=case.Hkv and 1), "heads", "with its first batch and head alone", question, HEADS
    tokens, keys = case.N // WHOLE * WHOLE, case.num_keys // WHOLE * WHOLE
    if tokens and keys:
        cut, words = replace(case, N=tokens, Nk=case.Nk and keys), f"cut to {tokens} tokens, whole tiles"
        yield cut, "tail", words, "what lies past the end of the last tile?", TAILS
