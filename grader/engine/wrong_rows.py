"""What the wrong rows of an output are: right ones of other places, right ones times a number, or nearly right ones."""

import numpy as np

from grader.engine.cause import Measured

ROWS, MOST = 64, 0.9  # wrong rows that are looked for, and the part of them that must be found
MANY = 1024  # rows: those of a larger output are looked for in the head that has most wrong ones
SMALL = 1e-3  # times the right row: less is as good as all zero, and so near to 1 as good as the row itself
CLEARLY = 4  # times the allowance: how far off a row must be that is told to be another one's multiple
NEARLY = 0.01  # of the largest number
DENOMINATOR = "each row is right but for a factor: what is it divided by, and is each part of that exact and rescaled?"
WHOSE = "which rows does a program load, which does it store, and has the output the strides that its store takes?"
ROUNDED = "what is rounded to the input's dtype too early or too often? Or is a number of the formula nearly right?"


def tell(got, right, allowed, name, axes, read):
    """[Measured] on one wrong output; got in the kernel's dtype, right and allowed in float64, all of one shape.

    axes: the names of its dims. read: a section.
    """
    if got.dim() == 1:
        got, right, allowed, axes = got[:, None], right[:, None], allowed[:, None], ("element",)
    looks = (look(got, right, allowed, name, axes, read) for look in (moved, scaled, nearly))
    return next(filter(None, looks), [])


def wrong_rows(got, right, allowed):
    """got, right and allowed as rows, and the first numbers of wrong rows."""
    rows, right, allowed = (each.flatten(0, -2) for each in (got.double(), right, allowed))
    return rows, right, allowed, (~((rows - right).abs() <= allowed)).any(1).nonzero().flatten().tolist()[:ROWS]


def moved(got, right, allowed, name, axes, read):
    """Most wrong rows are right ones, each in the place of another."""
    before = ()
    if got[..., 0].numel() > MANY and got.dim() > 2:
        wrong = (~((got.double() - right).abs() <= allowed)).any(-1).sum(-1)
        before = tuple(map(int, np.unravel_index(int(wrong.argmax()), wrong.shape)))
        got, right, allowed = got[before], right[before], allowed[before]
    rows, right, allowed, wrong = wrong_rows(got, right, allowed)
    if len(rows) > MANY:
        return []
    found = {row: ((rows[row] - right).abs() <= allowed).all(1).nonzero().flatten().tolist() for row in wrong}
    found = [(row, places[0]) for row, places in found.items() if len(places) == 1]
    if len(found) < max(2, MOST * len(wrong)) or 2 * len({place for _, place in found}) < len(found):
        return []

    def place(row):
        index = (*before, *np.unravel_index(row, got.shape[:-1]))
        return ", ".join(f"{axis} {number}" for axis, number in zip(axes, index, strict=False))

    row, other = found[0]
    more = f"and {len(found) - 1} more rows are those of others"
    return [Measured("rows", f"{name} of {place(row)} is the right one of {place(other)}, {more}.", WHOSE, read)]


def scaled(got, right, allowed, name, axes, read):
    """Most wrong rows are right ones, each times a number."""
    if got.shape[-1] < 2:
        return []
    rows, right, allowed, wrong = wrong_rows(got, right, allowed)
    times = (rows * right).sum(1) / (right * right).sum(1)
    off = (rows - times[:, None] * right).abs() <= allowed * (1.0 + times.abs())[:, None]
    clear = ((rows - right).abs() > CLEARLY * allowed).any(1) & ((times - 1.0).abs() > SMALL)
    found = [row for row in wrong if off[row].all() and times[row].abs() > SMALL and clear[row]]
    if len(found) < max(1, MOST * len(wrong)):
        return []
    said = "Each wrong row" if len(found) == len(wrong) else "Most of the wrong rows"
    said += f" of {name} is the right one times a number, the first times {float(times[found[0]]):.4g}."
    return [Measured("times", said, DENOMINATOR, read)]


def nearly(got, right, allowed, name, axes, read):
    """Every number is nearly right."""
    off, most = float((got.double() - right).abs().max()), float(right.abs().max())
    if not off <= NEARLY * most:  # NaN is not near
        return []
    said = f"The largest error is {off / most:.0e} of the largest number in {name}: nearly right, but not as near as"
    return [Measured("precision", f"{said} sums in float32 come.", ROUNDED, read)]
