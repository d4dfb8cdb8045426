"""What a kernel with one thing wrong computes: the arithmetic behind every what-if of diagnose.py.

All functions here take blocks of P pairs (batch, query head): q (P, Nq, D), k and v (P, Nk, D) in float64; `weight`
(Nq, Nk) or (P, Nq, Nk), how often each key counts for each query: 0 hidden, 1 visible, 2 counted twice; and `scale`.
They return o and size (P, Nq, D), float64; size is what was added up, and what a kernel's rounding is measured against.
"""

import math

import torch


def whole(q, k, v, weight, scale, divide=True, softmax_dim=-1):
    """Attention over the whole score matrix. divide: False leaves out the division by the sum.

    softmax_dim: -2 normalises over the queries.
    """
    scores = q @ k.mT * scale
    row_max = scores.masked_fill(weight == 0, -math.inf).amax(softmax_dim, keepdim=True)
    p = weight * torch.exp(scores - finite(row_max)).masked_fill(weight == 0, 0.0)
    total = p.sum(softmax_dim, keepdim=True) if divide else torch.ones((), dtype=p.dtype)
    p = p / total  # a row that sees nothing: 0 / 0
    return p @ v, p @ v.abs()


def online(
    q, k, v, weight, scale, tile, met=None,
    forget="", late="", maximum="running", rows=0, bare=False, divide="end",
    keep="", dtype=torch.float64, p_dtype=torch.float32,
):  # fmt: skip
    """The online softmax over tiles of keys, with one thing wrong.

    met: True where a query's tile met a key's tile (as weight); tiles that a row did not meet leave it as it was.
    forget, late: "acc", "row_sum" or both, whose rescaling is left out, or comes after the tile was added.
    maximum: "running"; "tile" (the old one is forgotten), "none", "from zero", or "shared" by `rows` rows.
    bare: no finite pivot for rows that have seen nothing. divide: "end", "never" or "each tile".
    keep: "acc", "row_sum" or "scores", rounded to `dtype` after each tile; the rest is then float32, as in a kernel,
    and so it is for all but a running maximum: what overflows is the mistake. p_dtype: of the probabilities in their
    dot, where all is float32.
    """
    real = torch.float32 if keep or bare or maximum != "running" else torch.float64
    q, k, v = (x.to(real) for x in (q, k, v))
    weight = weight.to(real)
    row_max = torch.full((*q.shape[:2], 1), -math.inf, dtype=real)
    if maximum in ("from zero", "none"):
        row_max = torch.zeros_like(row_max)
    row_sum, acc, size = torch.zeros_like(row_max), torch.zeros_like(q), torch.zeros_like(q)

    def kept(name, x):
        return x.to(dtype).to(real) if keep == name else x

    for start in range(0, k.shape[1], tile):
        stop = start + tile
        here = weight[..., start:stop]
        live = here.new_ones(1, 1, 1, dtype=torch.bool) if met is None else met[..., start:stop].any(-1, keepdim=True)
        if not live.any():
            continue
        scores = kept("scores", q @ k[:, start:stop].mT) * scale
        scores = scores.masked_fill(here == 0, -math.inf)
        new_max = next_maximum(row_max, scores, maximum, rows)
        pivot = new_max if bare else finite(new_max)
        alpha, p = torch.exp(row_max - pivot), here * torch.exp(scores - pivot)
        p = p if bare else p.masked_fill(here == 0, 0.0)
        v_tile = v[:, start:stop]
        p_dot = p.to(p_dtype).to(real) if real is torch.float32 else p
        new_sum = rescaled(row_sum, p.sum(-1, keepdim=True), alpha, "row_sum", forget, late)
        new_acc = rescaled(acc, p_dot @ v_tile, alpha, "acc", forget, late)
        new_size = rescaled(size, p_dot @ v_tile.abs(), alpha, "acc", forget, late)
        if divide == "each tile":
            new_acc, new_size = new_acc / new_sum, new_size / new_sum
        row_sum = torch.where(live, kept("row_sum", new_sum), row_sum)
        acc, size = torch.where(live, kept("acc", new_acc), acc), torch.where(live, new_size, size)
        row_max = torch.where(live, new_max, row_max)
    total = torch.ones_like(row_sum) if divide == "never" else row_sum
    return (acc / total).double(), (size / total).double()


def next_maximum(row_max, scores, maximum, rows):
    tile_max = scores.amax(-1, keepdim=True)
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


def rescaled(old, added, alpha, name, forget, late):
    if name in forget:
        return old + added
    return (old + added) * alpha if name in late else old * alpha + added


def finite(row_max):
    return row_max.masked_fill(row_max == -math.inf, 0.0)
