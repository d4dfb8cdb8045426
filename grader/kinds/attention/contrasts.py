"""A wrong case with one thing about it changed: where it then comes out right, that is what the mistake depends on."""

from dataclasses import replace

import torch

from grader.diagnosis.cause import Measured
from grader.kinds.attention import inputs, weights
from grader.kinds.attention.known_mistakes import HEADS, POINTERS, SOFTMAX, TAILS

WHOLE = 128  # tokens: a multiple of every tile


def find(kind, problem, submission, case, seed):
    """[Measured]: the first change of the case that makes its outputs right; the numbers are the case's own."""
    q, k, v = (placed.tensor for placed in inputs.make(case, seed))
    for changed, given, kind_of_mistake, words, question, section in changes(case, q, k, v, seed):
        if changed != case and is_right(kind, problem, submission, changed, given):
            return [Measured(kind_of_mistake, f"The same case comes out right {words}.", question, section)]
    return []


def changes(case, q, k, v, seed):
    """(the changed case, its q, k and v, kind of mistake, words, question, section) of each change."""
    own = q, k, v
    yield (replace(case, dtype="float32"), tuple(each.float() for each in own), "dtype", "in float32",
           "which numbers are rounded to the input's dtype?", SOFTMAX)  # fmt: skip
    yield (replace(case, layout="contiguous"), own, "layout", "with dense tensors",
           "which stride of which tensor is taken?", POINTERS)  # fmt: skip
    ordinary = replace(case, values="normal")
    words, question = {
        "zero row": ("where no query is all zeros", "is a visible score of exactly 0 taken for a hidden one?"),
    }.get(case.values, (
        "with scores of ordinary size",
        "what is subtracted from a score before exp, and when is what was summed before rescaled?",
    ))  # fmt: skip
    yield (ordinary, tuple(placed.tensor for placed in inputs.make(ordinary, seed)), "values", words, question,
           SOFTMAX)  # fmt: skip
    if not case.one_mask:
        return  # lists are made for the case's own heads and tokens
    if case.shares_heads:
        group = case.Hq // case.kv_heads
        yield (replace(case, Hkv=case.Hq), (q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)), "groups",
               "where each query head has its own copy of K and V", "which kv head is read?", HEADS)  # fmt: skip
    yield (replace(case, B=1, Hq=1, Hkv=case.Hkv and 1), tuple(each[:1, :1] for each in own), "heads",
           "with its first batch and head alone", "what moves from one head, or batch, to the next?",
           HEADS)  # fmt: skip
    tokens, keys = case.N // WHOLE * WHOLE, case.num_keys // WHOLE * WHOLE
    if tokens and keys:
        cut = replace(case, N=tokens, Nk=case.Nk and keys)
        yield (cut, (q[:, :, :tokens], k[:, :, :keys], v[:, :, :keys]), "tail", f"cut to {tokens} tokens, whole tiles",
               "what lies past the end of the last tile?", TAILS)  # fmt: skip


def is_right(kind, problem, submission, case, given):
    """True where all outputs are right for these tensors, of the shapes of `case`."""
    dtype = getattr(torch, case.dtype)
    placed = [inputs.place(each.to(dtype), case.layout, name) for name, each in zip("qkv", given, strict=True)]
    sets = [tuple(each.tensor for each in placed)]
    for output, right in enumerate(kind.right(problem, case, placed, submission.device)):
        found = weights.run_sets(kind, submission, case, sets, output)
        if found is None:
            return False
        near = ((found[0] - right.expected).abs() <= right.allowed) | (found[0] == right.expected)
        if not bool(near.all()):
            return False
    return True
