"""Measured weights -> the rule that they follow: a window or sinks of other sizes, or rows that underflow.

A rule is told only where it gives exactly what was measured.
"""

import itertools
import math

import torch

from grader.engine.cause import Measured
from grader.kinds.attention.known_mistakes import SOFTMAX
from grader.kinds.attention.mask_mistakes import WINDOW
from grader.kinds.attention.masks import Visibility
from grader.kinds.attention.weights import scores
from grader.kinds.attention.words import EQUAL

TILES = (None, 128, 64, 32, 16)  # of keys, past which a kernel loads nothing
UNDERFLOW = 96.0, 12.0  # how far below what is subtracted exp is 0 in float32: exp(-88) to exp(-104)


# Who sees whom --------------------------------------------------------------------------------------------------------


def visible_by_rule(seen, case):
    """The Measured rule by which these pairs (N, Nk) are seen, or None. Of a case with a window."""
    if not (case.one_mask and case.window):
        return None
    q, k = case.positions
    age, k = q[:, None] - k[None, :], k[None, :].expand(seen.shape)
    sizes = itertools.product(TILES, guess_windows(seen, age, case), guess_sinks(seen, case))
    for tile, window, sink in sizes:
        reach = k < (q[:, None] // tile + 1) * tile if tile else torch.ones_like(seen)
        for words, question, rule in list_rules(age, k, window, sink, case.sinks is not None):
            if torch.equal(rule & reach, seen):
                if case.sinks and not sink and window == case.window:
                    question = "which phase loads the sinks, and does the mask show them?"
                said = f"{EQUAL}your code shows exactly {words}; the case has {case.visibility}."
                return Measured("mask", said, question, WINDOW)
    return None


def guess_windows(seen, age, case):
    """Windows to try: the case's, and how far back the rows in the middle and at the end see without a gap."""
    found = [case.window]
    for row in (len(seen) // 2, len(seen) - 1):
        back = (~seen[row].flip(0)[age[row].flip(0) >= 0]).nonzero()
        found.append(int(back[0]) if len(back) else len(seen))
    return [window for window in dict.fromkeys(found) if window]


def guess_sinks(seen, case):
    """Numbers of sinks to try: the case's, and how many first keys the last row sees."""
    gap = (~seen[-1]).nonzero()
    return list(dict.fromkeys([case.sinks or 0, int(gap[0]) if len(gap) else 0, 0]))


def list_rules(age, k, window, sink, with_sinks):
    """(words, question, who sees whom) for these sizes."""
    past, near, first = age >= 0, age < window, k < sink
    sizes = str(Visibility(True, window, sink))
    order = "which of the two numbers reaches which argument, and is it changed on the way?"
    order = order if with_sinks else "which window reaches the kernel, and is it changed on the way?"
    yield f"what {sizes} shows", order, past & (near | first)
    question = "must a key be young enough and a sink, or one of the two?"
    if not first.all():  # else that is the window alone
        yield f"the sinks that lie inside the window ({sizes})", question, past & near & first
    either = f"the keys less than {window} tokens away on either side" + f", and {sink} sinks" * (sink > 0)
    yield either, "how old is a key that comes after the query?", (age.abs() < window) | first
    question = "where is a key hidden that comes after the query?"
    yield f"what {sizes} shows, and the keys after the query too", question, near | first
    if window > 1:
        turned = f"the {window} keys from the query's own on, in place of those before it"
        yield turned, "is an age query less key, or key less query?", (age <= 0) & (-age < window)


# Rows that underflow --------------------------------------------------------------------------------------------------


def underflowing_rows(weights, mask):
    """The Measured fact that exactly the rows with small scores are NaN, or get no weight at all; or None."""
    case, group = weights.case, weights.case.Hq // weights.case.kv_heads
    heads = itertools.product(range(case.B), range(case.Hq))
    of_heads = [scores(weights, b, h, b, h // group).masked_fill(~mask[b, h], -math.inf).amax(1) for b, h in heads]
    largest = torch.stack(of_heads).unflatten(0, (case.B, case.Hq))
    lost = (~weights.own.isfinite()).any(-1) | (weights.own == 0).all(-1)
    lost, kept = largest[lost & mask.any(-1)], largest[~lost & mask.any(-1)]
    if not len(lost) or not len(kept) or float(lost.max()) >= float(kept.min()):
        return None
    low, high = float(lost.max()), float(kept.min())
    below, around = UNDERFLOW

    def is_subtracted(number):
        return low <= number - below + around and high >= number - below - around

    top = float(largest[mask.any(-1)].max())
    start, whose = "where does the maximum start", "whose maximum is subtracted: the row's own, or that of all rows?"
    highest = f"{top:.3g}, which is the largest score of all rows"
    if is_subtracted(0.0):
        both = is_subtracted(top)
        number = f"0, or {highest}" if both else 0
        question = f"{start}, and {whose}" if both else f"{start}, and may that be larger than every score?"
    elif is_subtracted(top):
        number, question = highest, whose
    else:
        return None
    said = (
        f"Of the rows of all heads, those whose largest score is {low:.3g} or less are lost, and those with {high:.3g} "
    )
    said += "or more are "
    said += f"right. In the lost rows every exp(score - m) is 0 in float32: m is too large, it may be {number}."
    return Measured("sum", said, question, SOFTMAX)
