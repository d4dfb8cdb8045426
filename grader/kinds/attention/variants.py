"""Attention in named steps, and with some of them replaced: the arithmetic behind every known mistake.

A step is a function of x, which has the Inputs and what the steps before it made. A mistake is {step: function of x}.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import NamedTuple

import torch

Steps = dict[str, Callable]

# The whole score matrix at once.
WHOLE: Steps = {
    "scores": lambda x: x.q @ x.k.mT * x.scale,
    "counts": lambda x: x.weight,
    "row_max": lambda x: x.scores.masked_fill(x.counts == 0, -math.inf).amax(-1, keepdim=True),
    "p": lambda x: x.counts * torch.exp(x.scores - finite(x.row_max)).masked_fill(x.counts == 0, 0.0),
    "row_sum": lambda x: x.p.sum(-1, keepdim=True),
    "shares": lambda x: x.p / x.row_sum,  # a row that sees nothing: 0 / 0
    "out": lambda x: x.shares @ x.values,
}
# The online softmax: before the first tile, at each tile (x has the rows and keys of that tile alone), after the last.
START: Steps = {
    "row_max": lambda x: torch.full_like(x.q[..., :1], -math.inf),
    "row_sum": lambda x: torch.zeros_like(x.q[..., :1]),
    "acc": lambda x: x.q.new_zeros(*x.q.shape[:2], x.values.shape[2]),
}
TILE: Steps = {
    "scores": lambda x: x.q @ x.k.mT * x.scale,
    "seen_scores": lambda x: x.scores.masked_fill(x.weight == 0, -math.inf),
    "tile_max": lambda x: x.seen_scores.amax(-1, keepdim=True),
    "new_max": lambda x: torch.maximum(x.row_max, x.tile_max),
    "pivot": lambda x: finite(x.new_max),
    "p": lambda x: (x.weight * torch.exp(x.seen_scores - x.pivot)).masked_fill(x.weight == 0, 0.0),
    "p_of_dot": lambda x: x.p,  # what the second dot multiplies with V
    "tile_sum": lambda x: x.p.sum(-1, keepdim=True),
    "tile_acc": lambda x: x.p_of_dot @ x.values,
    "alpha": lambda x: torch.exp(x.row_max - x.pivot),
    "new_sum": lambda x: x.row_sum * x.alpha + x.tile_sum,
    "new_acc": lambda x: x.acc * x.alpha + x.tile_acc,
}
END: Steps = {"out": lambda x: x.acc / x.row_sum}


@dataclass(frozen=True)
class Inputs:
    """What the steps start from, for P pairs (batch, query head), all in one dtype.

    q (P, rows, D); k (P, Nk, D); values (P, Nk, 2 D): v, and |v| beside it. weight (rows, Nk) or (P, rows, Nk): how
    often each key counts for each query, 0 hidden, 1 visible, 2 twice. met: the same, how often a kernel met it; None:
    once. tiles: [(first row, end row, first key, end key)] in the order in which they are met; None: one for all.
    at: the positions of the rows, rising; None: all. cut: the tiles, for the next mistake on these very inputs.
    """

    q: torch.Tensor
    k: torch.Tensor
    values: torch.Tensor
    weight: torch.Tensor
    scale: float
    met: torch.Tensor | None = None
    tiles: list[tuple[int, int, int, int]] | None = None
    at: torch.Tensor | None = None
    cut: list[tuple] = field(default_factory=list)


class Answer(NamedTuple):
    """o and size (P, rows, D), float64. size: the sum of p * |v|, which a kernel's rounding is measured against."""

    o: torch.Tensor
    size: torch.Tensor


def whole(inputs: Inputs, changes: Steps) -> Answer:
    """Attention over the whole score matrix."""
    x = SimpleNamespace(**vars(inputs))
    run_steps(WHOLE, x, changes)
    return split_sizes(x.out)


def online(inputs: Inputs, changes: Steps) -> Answer:
    """Attention over tiles.

    No step reads what a later one makes, in this tile or in those before: all before the first change are right, and
    every mistake on the same inputs shares them.
    """
    x = SimpleNamespace(**vars(inputs))
    run_steps(START, x, changes)
    if not x.cut:
        x.cut.extend(cut_tiles(inputs))
    for rows, right, known in x.cut:
        tile = SimpleNamespace(**vars(right), row_max=x.row_max[:, rows], row_sum=x.row_sum[:, rows])
        tile.acc = x.acc[:, rows]
        run_steps(TILE, tile, changes, None if changes.keys() & START else known)
        x.row_max[:, rows], x.row_sum[:, rows], x.acc[:, rows] = tile.new_max, tile.new_sum, tile.new_acc
    run_steps(END, x, changes)
    return split_sizes(x.out)


def run_steps(steps: Steps, x: SimpleNamespace, changes: Steps, known: dict | None = None) -> None:
    """Each step in its order, or what stands in its place. known: {step: its result} where no change came before it."""
    for name, step in steps.items():
        known = None if name in changes else known
        if known is None:
            setattr(x, name, changes.get(name, step)(x))
            continue
        if name not in known:
            known[name] = step(x)
        setattr(x, name, known[name])


def cut_tiles(inputs: Inputs) -> Iterator[tuple[slice, SimpleNamespace, dict]]:
    """(rows, the inputs of TILE, what is known of its steps) of each tile that holds a row that is asked for."""
    num_rows, num_keys = inputs.q.shape[1], inputs.k.shape[1]
    at = range(num_rows) if inputs.at is None else inputs.at.tolist()
    met, one_tile = torch.zeros(num_rows, 1, dtype=inputs.q.dtype), [(0, math.inf, 0, num_keys)]
    for first_row, end_row, first_key, end_key in one_tile if inputs.tiles is None else inputs.tiles:
        rows, keys = slice(bisect_left(at, first_row), bisect_left(at, end_row)), slice(first_key, end_key)
        if rows.start < rows.stop:
            x = SimpleNamespace(q=inputs.q[:, rows], k=inputs.k[:, keys], values=inputs.values[:, keys])
            x.weight, x.scale, x.nth = inputs.weight[..., rows, keys], inputs.scale, met[rows].clone()
            yield rows, x, {}
            met[rows] += 1  # nth: how many tiles each row has met before this one


def finite(row_max: torch.Tensor) -> torch.Tensor:
    """row_max, and 0 where a row has seen nothing."""
    return row_max.masked_fill(row_max == -math.inf, 0.0)


def add_sizes(v: torch.Tensor) -> torch.Tensor:
    """v (..., D) with |v| beside it, (..., 2 D)."""
    return torch.cat([v, v.abs()], -1)


def split_sizes(out: torch.Tensor) -> Answer:
    return Answer(*out.double().chunk(2, -1))
