"""Which known mistake gives the output that came back."""

import functools
import time
from collections import Counter

import numpy as np

from grader.diagnosis import failures, locate
from grader.diagnosis.cause import Diagnosis, Measured
from grader.kinds.attention.known_mistakes import HEADS
from grader.kinds.decode import steps
from grader.kinds.decode.key_mistakes import KEYS
from grader.kinds.decode.merge_mistakes import MERGE_AND_SINK
from grader.kinds.decode.mistakes import GROUP, MERGE
from grader.result import Cause, mistake_pattern

EVERY = (*KEYS, *MERGE_AND_SINK)
PIECES = (16, 32, 64, 128, 256, 512)  # tokens; a kernel may have its own
SECONDS = 4.0
NEARER = 4  # times as near
MANY = 10  # failing cases for each case that passes and would show their cause
WITNESSES = 5  # cases that pass, for each kind of cause
LARGEST = 1 << 22  # pairs times D: a larger case gets the facts alone
CLEARLY = 8  # times the allowance: how far off a mistake must be for a passing case to refute it
ROWS, MOST = 64, 0.9  # wrong rows that are looked for, and the part of them that must be found
SMALL = 1e-3  # times the right row: less is as good as all zero
DENOMINATOR = "acc is right but for a factor: what does the sum under it add up, and is each part exact and rescaled?"
OWN_STRIDES = "which row of a tile is which head and token, and has o the strides that its store takes, or those of q?"
TOGETHER = ", and also "  # of a cause of two mistakes; there is none


def diagnose(case, got, expected, found, measured):
    """The Diagnosis of one case: got o, expected a steps.Expected, found the Mismatch; measured: what was read."""

    told_by_line = bool(measured) and found.nan == found.wrong  # NaN equals whatever gives NaN

    @functools.cache
    def search(only=frozenset()):
        return ([] if found.unwritten or told_by_line else find(case, got, expected, only)), list

    def moved():
        return moved_rows(case, got, expected) or scaled_rows(got, expected)

    told = Diagnosis("output", locate.where(found), evidence={"search": search, "moved": moved})
    told.measured = list(measured)
    return told


def wrong_rows(got, expected):
    """got, right and allowed (B x Hq x Nq, D), and the first numbers of wrong rows."""
    rows, right, allowed = (x.flatten(0, 2) for x in (got.double(), expected.o, expected.allowed))
    return rows, right, allowed, (~((rows - right).abs() <= allowed)).any(1).nonzero().flatten().tolist()[:ROWS]


def scaled_rows(got, expected):
    """[Measured] where most wrong rows are the right ones, each times a number."""
    rows, right, allowed, wrong = wrong_rows(got, expected)
    times = (rows * right).sum(1) / (right * right).sum(1)
    off = (rows - times[:, None] * right).abs() <= allowed * (1.0 + times.abs())[:, None]
    found = [row for row in wrong if off[row].all() and times[row].abs() > SMALL]
    if len(found) < max(1, MOST * len(wrong)):
        return []
    said = f"Each wrong row of o is the right one times a number, the first times {float(times[found[0]]):.4g}."
    return [Measured("times", said, DENOMINATOR, MERGE)]


def moved_rows(case, got, expected):
    """[Measured] where most wrong rows are right ones, each in the place of another."""
    rows, right, allowed, wrong = wrong_rows(got, expected)
    found = {row: ((rows[row] - right).abs() <= allowed).all(1).nonzero().flatten().tolist() for row in wrong}
    moved = [(row, places[0]) for row, places in found.items() if len(places) == 1]
    if len(moved) < max(2, MOST * len(wrong)) or 2 * len({place for _, place in moved}) < len(moved):
        return []

    def name(row):
        *before, token = np.unravel_index(row, got.shape[:3])
        return f"sequence {before[0]}, head {before[1]}, new token {token}"

    row, place = moved[0]
    said = f"o of {name(row)} is the right one of {name(place)}, and {len(moved) - 1} more rows are those of others."
    return [Measured("rows", said, GROUP if case.layout == "contiguous" else OWN_STRIDES, HEADS)]


def find(case, got, expected, only=frozenset()):
    """The Causes that give this output. only: the kinds to try; empty for all."""
    if size(case) > LARGEST:
        return []
    found, until, known = {}, time.thread_time() + SECONDS, {}
    for mistake in EVERY:
        if time.thread_time() > until:
            return []
        kind = mistake_pattern(mistake.words)
        if kind in found or not mistake.applies(case) or (only and kind not in only):
            continue
        with failures.harmless(f"the known mistake {mistake.words!r}"):
            if any(explains(expected, got, answer) for answer in answers(mistake, case, expected.given, known)):
                found[kind] = Cause(mistake.words, mistake.question, mistake.section)
    return list(found.values())


def size(case):
    return case.B * case.Hq * case.Nq * case.tokens * case.D


def answers(mistake, case, given, known=None):
    """What it gives, for each length that a piece may have, the case's own first; with others there are several.

    known: {piece: what steps.run gives without the mistake}, filled here.
    """
    known = {} if known is None else known
    several = (piece for piece in PIECES if piece < case.N)
    pieces = dict.fromkeys((case.piece, *several)) if mistake.pieces else (case.piece,)
    for piece in pieces:
        if piece not in known:
            known[piece] = steps.run(given, {"piece": lambda x, piece=piece: piece})
        yield steps.run(known[piece], mistake.changes, known[piece]).o


def explains(expected, got, values):
    """Whether these values are wrong, and the output is one of them: far nearer to them than to the right ones."""
    if right(expected, values) or not expected.fits(got, values):
        return False
    away, from_right = (((got.double() - x).abs() / expected.allowed).max() for x in (values, expected.o))
    return not bool(away * NEARER > from_right)  # NaN and infinite are not far from anything


def right(expected, values, times=1):
    return bool(((values - expected.o).abs() <= times * expected.allowed).all())


def drop_refuted(diagnoses, passed, expect):
    """Take away the causes that cases which passed would show: the smallest to which each applies are asked.

    One that explains many cases is not refuted by a few: what a mistake reads past an end may not be there.
    """
    explained = Counter(cause.kind for diagnosis in diagnoses for cause in diagnosis.causes)
    refuted = set()
    for kind, count in explained.items():
        variants = [each for each in EVERY if mistake_pattern(each.words) == kind]
        asked = [case for case in passed if any(each.applies(case) for each in variants)]
        shown = sum(bool(would_show(case, expect(case), {kind})) for case in sorted(asked, key=size)[:WITNESSES])
        if shown * MANY > count:
            refuted.add(kind)
    for diagnosis in diagnoses:
        diagnosis.causes = [cause for cause in diagnosis.causes if cause.kind not in refuted]


def would_show(case, expected, kinds):
    """Those of the kinds of mistake that would make this case fail clearly, whatever the piece is."""
    shown, known = {}, {}
    for mistake in EVERY if size(case) <= LARGEST else ():
        kind = mistake_pattern(mistake.words)
        if kind not in kinds:
            continue
        clear = mistake.applies(case) and all(
            not right(expected, values, CLEARLY) for values in answers(mistake, case, expected.given, known)
        )
        shown[kind] = shown.get(kind, True) and clear
    return {kind for kind, clear in shown.items() if clear}
