"""An output whose rows are right ones, each in the place of another."""

from grader.diagnosis.cause import Measured

POINTERS = "notebooks/03_first_triton_kernel.ipynb: Where are they? Pointers and strides"
ROWS = 64  # wrong rows that are looked for, of one head
FEWEST = 4
MOST = 1024  # tokens: longer outputs tell the same
QUESTION = "of which rows is what a program loads, and which rows does it store?"


def find(got, right, allowed):
    """[Measured] where nearly all wrong rows of a head are right ones of the same head, else empty.

    got: (B, H, N, D) or (B, H, N) in the kernel's dtype; right, allowed: float64.
    """
    got, right, allowed = (each if each.dim() == 4 else each[..., None] for each in (got, right, allowed))
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
    if len(found) < max(FEWEST, 0.9 * len(rows)) or 2 * len({place for _, place in found}) < len(found):
        return []
    row, place = found[0]
    of = f" of batch {batch}, head {head}" if wrong.shape[:2].numel() > 1 else ""
    said = f"Row {row}{of} of your output is the right row {place}, and {len(found) - 1} more rows are those of others."
    return [Measured("rows", said, QUESTION, POINTERS)]
