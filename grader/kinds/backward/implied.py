"""What stood in the place of delta, or of dp, in the ds that a kernel was seen to use: ds = p (dp - delta).

Where p and dp are known, each pair says what was taken from it; where p and delta are, what dp was.
"""

import torch

from grader.engine.cause import Measured
from grader.kinds.attention.words import EQUAL
from grader.kinds.backward import mistakes

TILES = (16, 32, 64, 128)  # keys
NEAR = 1e-3  # of the largest dp
CLOSER = 100  # times
WHOSE = "over which keys does delta add up, and which of them does one tile see?"
WHICH = "which number of do meets which of v? A reshape is no transpose."


def look(name, ds, p, dp, seen):
    """[Measured] on ds (N, N), queries first, as the kernel had it; p and seen (N, N), dp of each key, as they are."""
    near, ratio = NEAR * float(dp.abs().max()), ds / p.where(seen, torch.ones_like(p))
    delta = (p @ dp)[:, None]
    taken = dp - ratio
    if agree(taken, delta, seen, near):
        return []
    return (
        of_tile(name, taken, p * dp, seen, near)
        or of_row(name, taken, delta, seen, near)
        or nothing_of_do(name, ratio + delta, dp, seen, near)
    )


def agree(got, wanted, seen, near):
    return bool(((got - wanted).abs() <= near)[seen].all())


def of_tile(name, taken, terms, seen, near):
    """Delta added up over the keys of a tile alone."""
    N = terms.shape[1]
    for width in TILES:
        blocks = torch.nn.functional.pad(terms, (0, -N % width)).unflatten(1, (-1, width)).sum(-1)
        if width < N and agree(taken, blocks.repeat_interleave(width, 1)[:, :N], seen, near):
            row = int((seen[:, :width].any(1) & seen[:, width:].any(1)).nonzero()[0])
            said = (
                f"{EQUAL}what {name} takes from dp of query row {row} and keys 0-{width - 1} "
                "is the sum of p * dp over these keys alone. Delta is that of the whole row."
            )
            return [Measured("delta", said, WHOSE, mistakes.DELTA)]
    return []


def of_row(name, taken, delta, seen, near):
    """The delta of another row."""
    mine = torch.stack([row[visible].mean() for row, visible in zip(taken, seen, strict=True)])
    if not agree(taken, mine[:, None], seen, near):
        return []
    wrong = (mine - delta[:, 0]).abs() > near
    same = (mine[:, None] - delta[:, 0]).abs() <= near / CLOSER
    alone = wrong & (same.sum(1) == 1)
    none = mine.abs() <= near / CLOSER  # past the end
    if not (same.any(1) | none)[wrong].all() or not alone.any():
        return []
    row = int(alone.nonzero()[0])
    other = int(same[row].nonzero()[0])
    said = f"{EQUAL}{name} has for query row {row} the delta of row {other}."
    return [Measured("delta", said, "which row's delta is loaded?", mistakes.DELTA)]


def nothing_of_do(name, used, dp, seen, near):
    """Rows of queries whose dp is 0 throughout, where that of all others is right."""
    pairs = seen & (dp.abs() > 10 * near)
    rows = ((used.abs() <= near) | ~pairs).all(1) & pairs.any(1)
    if not rows.any() or not agree(used[~rows], dp, pairs[~rows], near) or not pairs[~rows].any():
        return []
    first = int(rows.nonzero()[0])
    said = f"{EQUAL}and with one column of do and v, dp = do v^T is 0 in {name} for query row {first}"
    return [Measured("dp", f"{said} and {int(rows.sum()) - 1} more, not for all.", WHICH, mistakes.SOFTMAX)]
