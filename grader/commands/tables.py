"""A function's scores, weights and output beside the right ones, row by row, up to the first row that differs.

The weights are measured from outside: where V is columns of the identity, the output is they. Their logarithms are the
scores, but for one number a row.
"""

import math
from dataclasses import dataclass

import torch

from grader.kinds.attention import answers, inputs
from grader.kinds.attention.weights import identities, masks
from grader.reference.compare import off_by

ROWS, COLUMNS = 8, 10  # of a table, at most
FOR_SCORES = 4  # times the error that a weight may have, relative to it: its logarithm is measured against others


@dataclass
class Table:
    """Numbers (B, Hq, N, columns) of one kind in float64, the right ones and the function's; off: where they differ."""

    name: str
    column: str
    right: torch.Tensor
    got: torch.Tensor
    off: torch.Tensor


def measure(call, problem, case, placed, returned, device):
    """[Table] of the scores, the weights and what was returned.

    call(q, k, v): the function. returned: its outputs for the case's own `placed`, on `device`.
    """
    answer = answers.expect(problem, case, placed, device)
    outputs = [("output", "column", answer.o, answer.allowed_o)]
    outputs += [("lse", "", answer.lse[..., None], answer.allowed_lse[..., None])] * problem.returns_lse
    shown = []
    for (name, column, right, allowed), got in zip(outputs, returned, strict=True):
        got = got.detach().cpu().double().view(right.shape)
        shown.append(Table(name, column, right, got, ~(off_by(got, right) <= allowed)))
    return [*weights_and_scores(call, problem, case, placed, device), *shown]


def weights_and_scores(call, problem, case, placed, device):
    q, k, v = placed
    parts = []
    for columns in identities(v.tensor):
        given = (q, k, inputs.place(columns, case.layout, "v"))
        out = call(*(each.tensor.to(device) for each in given))
        got = out[0] if isinstance(out, tuple | list) else out
        answer = answers.expect(problem, case, given, device)
        parts.append((answer.o, got.detach().cpu().double(), answer.allowed_o))
    right, got, allowed = (torch.cat(part, -1)[..., : case.num_keys] for part in zip(*parts, strict=True))
    group = case.Hq // case.kv_heads
    scores = q.tensor.double() @ k.tensor.double().repeat_interleave(group, 1).mT * case.scale
    scores = scores.masked_fill(~masks(case), -math.inf)
    own = got.log()
    apart = (own - scores).masked_fill(~(own.isfinite() & scores.isfinite()), math.nan).nanmedian(-1, keepdim=True)
    own = own - apart.values.nan_to_num(0.0)
    near = off_by(own, scores) <= FOR_SCORES * answer.relative
    return [
        Table("scores (yours but for one number a row: the logarithms of your weights)", "key", scores, own, ~near),
        Table("weights", "key", right, got, ~(off_by(got, right) <= allowed)),
    ]


def first_difference(shown):
    """(batch, head, row) of the first row in which a table is off, or None."""
    off = torch.stack([table.off.any(-1) for table in shown]).any(0)
    return tuple(off.nonzero()[0].tolist()) if off.any() else None


def in_words(shown, place, visible):
    """A sentence on the first number that is off in the row `place`; visible: (B, Hq, N, Nk), what the mask shows."""
    table = next(table for table in shown if table.off[place].any())
    at = (*place, int(table.off[place].nonzero()[0]))
    which = f"{table.name.partition(' (')[0]} of query {at[2]}" + (f", {table.column} {at[3]}" if table.column else "")
    more = ""
    if table.column == "key":
        more = " (the mask shows this key)" if visible[at] else " (the mask hides this key)"
    if table.name == "weights":
        more += f"; the scores are right, and the weights of this row add up to {number(table.got[place].sum())}"
    elif table.name == "output" and not any(other.off[place].any() for other in shown if other.column == "key"):
        more = "; the weights of this row are right"
    said = f"yours {number(table.got[at])}, right {number(table.right[at])}{more}"
    return f"first difference: batch {at[0]}, head {at[1]}, {which}: {said}"


def lines(table, place):
    """A table of one head as text, its rows up to place (batch, head, row); `!` stands behind what is off."""
    batch, head, last = place
    off = table.off[place].nonzero().flatten().tolist()
    width = table.right.shape[-1]
    start = max(0, min(off[0] - COLUMNS // 2, width - COLUMNS)) if off else 0
    columns = range(start, min(start + COLUMNS, width))
    yield f"{table.name}, batch {batch}, head {head}"
    if table.column:
        yield f"{table.column:>15}" + " ".join(f"{column:>9}" for column in columns)
    for row in range(max(0, last - ROWS + 1), last + 1):
        right, got, wrong = (each[batch, head, row].tolist() for each in (table.right, table.got, table.off))
        if not any(wrong):
            yield f"query {row:>3}  both" + " ".join(f"{number(right[c]):>9}" for c in columns)
            continue
        yield f"query {row:>3} right" + " ".join(f"{number(right[c]):>9}" for c in columns)
        yield f"{'yours':>15}" + "".join(f"{number(got[c]):>9}{'!' if wrong[c] else ' '}" for c in columns).rstrip()


def number(value):
    return f"{value:.4f}".replace("-0.0000", "0.0000")
