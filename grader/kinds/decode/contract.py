"""The contract as a table: the classes of each parameter of decode_attention, and which pairs of them may meet.

A test asks that every pair which may meet is in some case: `python -m grader.kinds.decode.contract` proposes cases for
those that are missing.
"""

from grader.engine import pairs
from grader.kinds.decode.cases import CASES

SEVERAL = 3  # pieces


def longest(case):
    """The class of the longest sequence, in pieces."""
    whole, rest = divmod(case.N, case.piece)
    if whole < 1:
        return "inside a piece"
    if rest < 2:
        return "whole pieces" if rest == 0 else "one token more"
    return "several pieces" if whole < SEVERAL else "many pieces"


def lengths(case):
    if min(case.lengths) < case.Nq:
        return "fewer than the new tokens"
    return "one sequence" if case.B == 1 else "differ" if len(set(case.lengths)) > 1 else "alike"


def window(case):
    if case.window is None or case.window == 1:
        return "none" if case.window is None else "1"
    if case.window >= case.N:
        return "beyond"
    return "inside a piece" if case.window < case.piece else "across pieces"


def page(case):
    if case.page is None:
        return "none"
    return "one tile or more" if case.page % 32 == 0 else "a power of two" if case.page in (8, 16) else "others"


def sign(case):
    return {"": "none", "normal": "normal"}.get(case.sink, "extreme")


CLASSES = {
    "B": (lambda case: min(case.B, 3), (1, 2, 3)),
    "Hkv": (lambda case: min(case.Hkv, 3), (1, 2, 3)),
    "group": (lambda case: min(case.group, 5), (1, 2, 3, 4, 5)),
    "Nq": (lambda case: 1 if case.Nq == 1 else 2 if case.Nq < 5 else 8, (1, 2, 8)),
    "D": (lambda case: case.D, (16, 32, 64, 128, 256)),
    "dtype": (lambda case: case.dtype, ("float32", "float16", "bfloat16")),
    "longest": (longest, ("inside a piece", "whole pieces", "one token more", "several pieces", "many pieces")),
    "lengths": (lengths, ("one sequence", "alike", "differ", "fewer than the new tokens")),
    "window": (window, ("none", "1", "inside a piece", "across pieces", "beyond")),
    "page": (page, ("none", "one tile or more", "a power of two", "others")),
    "sink": (sign, ("none", "normal", "extreme")),
    "scale": (lambda case: case.scale is not None, (False, True)),
    "layout": (lambda case: case.layout, ("contiguous", "slice", "interleaved", "mixed", "odd rows")),
    "values": (lambda case: case.values, ("normal", "rising", "falling", "uneven", "offset")),
    "rest": (lambda case: case.rest, ("stale", "NaN")),
}  # fmt: skip
TABLE = {
    name: {str(each): lambda case, of=of, each=each: of(case) == each for each in classes}
    for name, (of, classes) in CLASSES.items()
}
# Pairs that do not meet: one sequence is one sequence; with fewer tokens than new ones it has no second piece; a window
# across pieces is longer than one piece.
APART = (
    {("B", "1"), ("lengths", "alike")}, {("B", "1"), ("lengths", "differ")}, {("B", "2"), ("lengths", "one sequence")},
    {("B", "3"), ("lengths", "one sequence")}, {("longest", "inside a piece"), ("window", "across pieces")},
    {("B", "1"), ("lengths", "fewer than the new tokens")}, {("Nq", "1"), ("lengths", "fewer than the new tokens")},
)  # fmt: skip


def meet(one, other):
    return {one, other} not in APART


def missing(cases):
    """The pairs that may meet and are in none of these cases."""
    return pairs.missing(TABLE, cases, meet)


def graded():
    """Offsets beyond int32 are a case of their own, and in no pair."""
    return [case for case in CASES if not case.gpu and case.fits_gpu]


if __name__ == "__main__":
    print(*missing(graded()), *pairs.propose(TABLE, graded(), meet), sep="\n")
