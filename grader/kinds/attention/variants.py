"""What a kernel with one thing wrong computes: the arithmetic behind every what-if of causes.py.

All functions here take blocks of P pairs (batch, query head): q (P, rows, D), k and v (P, Nk, D) in float64; `weight`
(rows, Nk) or (P, rows, Nk), how often each key counts for each query: 0 hidden, 1 visible, 2 twice; and `scale`.
They return o and size (P, rows, D), float64; size is what was added up, and what a kernel's rounding is measured
against. `at`: the positions of the rows, rising, where not all rows are asked for.
"""

import math
from bisect import bisect_left

import torch


def whole(q, k, v, weight, scale, at=None, met=None, divide="by the sum", softmax_dim=-1, hidden="left out"):
    """Attention over the whole score matrix.

    divide: "by the sum", "never", or "times" for a product instead. softmax_dim: -2 normalises over the queries.
    hidden: what a mask does to a hidden pair that a kernel met (`met` times, as weight; None: once): "left out",
    "score 0", or "after": it is hidden when the sum has been taken.
    """
    scores = q @ k.mT * scale
    shown = weight != 0
    counted = weight
    if hidden != "left out":
        counted = torch.where(shown, weight, 1.0 if met is None else met.double())
        scores = scores.masked_fill(~shown, 0.0) if hidden == "score 0" else scores
    row_max = scores.masked_fill(counted == 0, -math.inf).amax(softmax_dim, keepdim=True)
    p = counted * torch.exp(scores - finite(row_max)).masked_fill(counted == 0, 0.0)
    total = {"by the sum": p.sum(softmax_dim, keepdim=True), "never": torch.ones((), dtype=p.dtype)}
    total["times"] = 1.0 / total["by the sum"]
    p = (p.masked_fill(~shown, 0.0) if hidden == "after" else p) / total[divide]  # a row that sees nothing: 0 / 0
    return p @ v, p @ v.abs()


def online(
    q, k, v, weight, scale, at=None, steps=None,
    forget="", late="", last="", again="", fade=1.0, maximum="running", rows=0, unit=1.0, shrink=1.0, q_again=1.0,
    acc_again=1.0, bare=False, sum_from=0.0, divide="end", keep="", base=math.e, dtype=torch.float64,
    p_dtype=torch.float32,
):  # fmt: skip
    """The online softmax over tiles, with one thing wrong.

    steps: [(first row, end row, first key, end key)], the tiles in the order in which they were met; None: one for all.
    forget, late: "acc", "row_sum" or both, whose rescaling is left out, or comes after the tile was added; last: what
    keeps nothing of older tiles; again: what is added to itself. q_again, acc_again: what multiplies q, or acc, at each
    tile once more. fade: a factor in the exponent of alpha. maximum: "running"; "tile" (the old one is forgotten),
    "none", "from zero", or "shared" by `rows` rows; unit: a factor of it, shrink: of the old one. bare: no finite pivot
    for rows that have seen nothing. sum_from: where row_sum starts. divide: "end", "never" or "each tile".
    keep: "acc", "row_sum", "scores" or "scaled" scores (in `base`), rounded to `dtype` after each tile; the rest is
    then float32, as in a kernel, and so it is for all but a running maximum: what overflows is the mistake.
    p_dtype: of the probabilities in their dot, where all is float32.
    """
    in_float32 = keep or bare or maximum != "running" or unit != 1.0 or shrink != 1.0
    real = torch.float32 if in_float32 else torch.float64
    q, k, v, weight = (x.to(real) for x in (q, k, v, weight))
    row_max = torch.full((*q.shape[:2], 1), 0.0 if maximum in ("from zero", "none") else -math.inf, dtype=real)
    row_sum, acc, size = torch.full_like(row_max, sum_from), torch.zeros_like(q), torch.zeros_like(q)
    before = torch.zeros(q.shape[1], 1, dtype=real)  # tiles that each row has met

    def kept(name, x):
        return x.to(dtype).to(real) if name in keep.split() else x

    factor = scale / math.log(base)
    if keep == "scores scaled" and base == 2:  # a scalar of Triton's takes the dtype of the block that it multiplies
        factor = float(torch.tensor(factor).to(dtype))
    for here, keys in slices(steps, at, q.shape[1], k.shape[1]):
        counts, v_tile = weight[..., here, keys], v[:, keys]
        scores = kept("scores", q[:, here] @ k[:, keys].mT) * factor * q_again ** before[here]
        scores = kept("scaled", scores) * math.log(base)
        before[here] += 1
        scores = scores.masked_fill(counts == 0, -math.inf)
        old_max, old_sum = row_max[:, here], row_sum[:, here]
        new_max = next_maximum(old_max * shrink, scores, maximum, rows, unit)
        pivot = new_max if bare else finite(new_max)
        alpha, p = torch.exp((old_max - pivot) * fade), counts * torch.exp(scores - pivot)
        p = p if bare else p.masked_fill(counts == 0, 0.0)
        p_dot = p.to(p_dtype).to(real) if real is torch.float32 else p
        new_sum = rescaled(old_sum, p.sum(-1, keepdim=True), alpha, "row_sum", forget, late, last, again)
        for sums, values in ((acc, v_tile), (size, v_tile.abs())):
            added = rescaled(sums[:, here], p_dot @ values, alpha, "acc", forget, late, last, again) * acc_again
            sums[:, here] = added / new_sum if divide == "each tile" else added
        acc[:, here], row_sum[:, here] = kept("acc", acc[:, here]), kept("row_sum", new_sum)
        row_max[:, here] = new_max
    total = torch.ones_like(row_sum) if divide == "never" else row_sum
    return (acc / total).double(), (size / total).double()


def slices(steps, at, num_rows, num_keys):
    """(rows, keys) of each step, as slices into the rows that are asked for; steps that hold none are left out."""
    if steps is None:
        yield slice(0, num_rows), slice(0, num_keys)
        return
    at = range(num_rows) if at is None else at.tolist()
    for first_row, end_row, first_key, end_key in steps:
        here = slice(bisect_left(at, first_row), bisect_left(at, end_row))
        if here.start < here.stop:
            yield here, slice(first_key, end_key)


def next_maximum(row_max, scores, maximum, rows, unit):
    tile_max = scores.amax(-1, keepdim=True) * unit
    if maximum == "none":
        return torch.zeros_like(tile_max)
    if maximum == "tile":
        return tile_max
    if maximum == "shared":
        rows = min(rows, tile_max.shape[1])
        padded = torch.nn.functional.pad(tile_max, (0, 0, 0, -tile_max.shape[1] % rows), value=-math.inf)
        shared = padded.unflatten(1, (-1, rows)).amax(2, keepdim=True).expand(-1, -1, rows, -1).flatten(1, 2)
        tile_max = shared[:, : tile_max.shape[1]]
    return torch.maximum(row_max, tile_max)


def rescaled(old, added, alpha, name, forget, late, last, again):
    if name in forget:
        return old + added
    if name in last:
        return added
    if name in again:
        return old + old * alpha + added
    return (old + added) * alpha if name in late else old * alpha + added


def finite(row_max):
    return row_max.masked_fill(row_max == -math.inf, 0.0)
