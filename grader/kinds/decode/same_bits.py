"""The same sequences asked in a second call, which may change no bit of what they give."""

from dataclasses import replace

import torch

from grader.engine import values
from grader.kinds.decode import inputs
from grader.result import Cause, Facts, Outcome, Verdict

# What a second call changes: {name: (words, the case of the second call, the sequences that are asked again)}.
CALLS = {
    "alone": ("alone", lambda case: replace(case, lengths=case.lengths[-1:]), lambda case: [case.B - 1]),
    "more room": (
        "in caches with more room", lambda case: replace(case, room=more_room(case)), lambda case: range(case.B),
    ),
    "others": (
        "beside other sequences", lambda case: replace(case, lengths=(*case.lengths, *longer(case))),
        lambda case: range(case.B),
    ),
    "pages": (
        "in pages", lambda case: replace(case, page=16, room=None, layout="contiguous"), lambda case: range(case.B),
    ),
    "dense": ("in a dense cache", lambda case: replace(case, page=None, room=None), lambda case: range(case.B)),
}  # fmt: skip
WORDS = {2: torch.int16, 4: torch.int32}
SECTION = "notebooks/09_decode.ipynb: The same bits in any batch"
QUESTION = (
    "which numbers of the other sequences, of the room or of the batch decide where a piece begins, how many there "
    "are, or how a sum is cut into blocks?"
)


def more_room(case):
    return 3 * case.N + 17 if case.page is None else 3 * (case.tokens // case.page)


def longer(case):
    """Lengths of the sequences that stand beside, among them a much longer one: a batch of another size, too."""
    return 2 * case.N + 5, 1, 3 * case.N


def second(case, placed):
    """(the case of the second call, its q, k_cache and v_cache as Placed)."""
    _, make, again = CALLS[case.like]
    other = replace(make(case), rest="stale", name=f"{case.name}, again")
    q = placed[0].tensor
    k, v = inputs.dense(case, placed)
    source = values.generator(other, "others")
    found = []
    for x, shape in (
        (q.double(), (other.B, case.Hq, case.Nq, case.D)), (k, (other.B, case.Hkv, other.tokens, case.D)),
        (v, (other.B, case.Hkv, other.tokens, case.D)),
    ):  # fmt: skip
        made = torch.randn(shape, generator=source, dtype=torch.float64)
        for at, b in enumerate(again(case)):
            kept = min(made.shape[2], x.shape[2])
            made[at, :, :kept] = x[b, :, :kept].nan_to_num(0.0)
        found.append(made)
    return other, inputs.lay_out(other, *found)


def compare(case, first, again, allowed):
    """The Verdict where the first sequence has other bits, or None; first, again: o of both calls; allowed: how far the
    first may be off."""
    words, _, sequences = CALLS[case.like]
    for at, b in enumerate(sequences(case)):
        whole = WORDS[first.element_size()]
        other = first[b].view(whole) != again[at].view(whole)
        if other.any():
            if not ((first[b].double() - again[at].double()).abs() <= 2 * allowed[b]).all():
                return Verdict(Outcome.WRONG, f"Every value is right, but {words} sequence {b} gets wrong values.")
            place = ", ".join(map(str, other.nonzero()[0].tolist()))
            said = (
                f"Every value is right, but {int(other.sum())} of the {other.numel()} elements of sequence {b} have "
                f"other bits {words}, first at ({place}) of it. A piece is a fixed number of tokens, and the pieces of "
                "a sequence are merged in an order that depends on nothing but the sequence."
            )
            cause = Cause(f"other bits {words}", QUESTION, SECTION)
            return Verdict(Outcome.WRONG, said, Facts(question=QUESTION, causes=(cause,)))
    return None
