"""An output whose rows are right ones, each in the place of another."""

from grader.diagnosis.cause import Measured
from grader.kinds.attention.known_mistakes import POINTERS

ROWS = 64  # wrong rows that are looked for, of one head
FEWEST = 4
MOST = 1024  # tokens: longer outputs tell the same
QUESTION = "of which rows are the queries that a program loads, and which rows does it store?"


def find(got, right, allowed):
    """[Measured] where nearly all wrong rows of a head are right ones of the same head, else empty.

    got: (B, H, N, D) in the kernel's dtype; right, allowed: float64.
    """
    if got.shape[2] > MOST:
        return []
    got = got.double()
    wrong = (~((got - right).abs() <= allowed)).any(-1) & got.isfinite().all(-1)
    batch, head = divmod(int(wrong.sum(-1).argmax()), wrong.shape[1])
    rows = wrong[batch, head].nonzero().flatten()[:ROWS]
    if len(rows) < FEWEST:
        return []
    near = (got[batch, head][rows, None] - right[batch, head]).abs() <= allowed[batch, head]
    near = near.all(-1)  # (wrong rows, all rows)
    found = [(row, int(places.nonzero())) for row, places in zip(rows.tolist(), near, strict=True) if places.sum() == 1]
    if len(found) < max(FEWEST, 0.9 * len(rows)):
        return []
    row, place = found[0]
    said = (
        f"Row {row} of batch {batch}, head {head} has what belongs to row {place}, and {len(found) - 1} more rows are "
    )
    return [Measured("rows", f"{said}right ones in other places.", QUESTION, POINTERS)]
