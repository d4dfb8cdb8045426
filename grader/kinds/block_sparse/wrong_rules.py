"""The kinds of tiles that a builder found -> the rule by which it found them, where one wrong rule gives them all."""

import numpy as np
import torch

from grader.engine.mistakes import about
from grader.kinds.block_sparse import tile_lists
from grader.kinds.block_sparse.patterns import CAUSAL, EMPTY, FULL, PARTIAL

LISTS = "notebooks/05_block_sparse.ipynb: The lists"
HALF = "which half of a tile is its triangle, with or without its diagonal?"
SOME = "all pairs, none of them, or some: what must hold of every row and column of the tile?"
EMPTY_AS = "a tile counts as EMPTY as soon as one of its {}"
FULL_BY = "a tile counts as FULL by {} alone"
OTHER_TRIANGLE = "a tile counts as CAUSAL when it is the {}, not the lower triangle with its diagonal"


def lower(diagonal):
    return lambda pairs: torch.equal(pairs, torch.ones_like(pairs).tril(diagonal))


def upper(diagonal):
    return lambda pairs: torch.equal(pairs, torch.ones_like(pairs).triu(diagonal))


RIGHT = {EMPTY: lambda pairs: not pairs.any(), FULL: lambda pairs: pairs.all(), CAUSAL: lower(0)}
RULES = (
    *about(SOME, LISTS,
        (EMPTY_AS.format("rows sees nothing"), {EMPTY: lambda pairs: not pairs.any(1).all()}),
        (EMPTY_AS.format("columns is seen by no row"), {EMPTY: lambda pairs: not pairs.any(0).all()}),
        ("a tile counts as FULL when each of its rows sees something", {FULL: lambda pairs: pairs.any(1).all()}),
        ("a tile counts as FULL when each of its columns is seen", {FULL: lambda pairs: pairs.any(0).all()}),
        ("a tile counts as FULL as soon as one of its pairs is visible", {FULL: lambda pairs: pairs.any()}),
        (FULL_BY.format("its first and last row"), {FULL: lambda pairs: pairs[[0, -1]].all()}),
        (FULL_BY.format("its first and last column"), {FULL: lambda pairs: pairs[:, [0, -1]].all()}),
        (FULL_BY.format("its corners"), {FULL: lambda pairs: pairs[[0, 0, -1, -1], [0, -1, 0, -1]].all()}),
        ("no tile counts as FULL", {FULL: lambda pairs: False})),
    *about(HALF, LISTS,
        (OTHER_TRIANGLE.format("upper triangle with its diagonal"), {CAUSAL: upper(0)}),
        (OTHER_TRIANGLE.format("upper triangle without its diagonal"), {CAUSAL: upper(1)}),
        (OTHER_TRIANGLE.format("lower triangle without its diagonal"), {CAUSAL: lower(-1)}),
        (OTHER_TRIANGLE.format("lower triangle and one pair more in each row"), {CAUSAL: lower(1)}),
        ("a tile counts as CAUSAL when nothing above its diagonal is visible, whatever is hidden below it",
         {CAUSAL: lambda pairs: not pairs.triu(1).any()})),
)  # fmt: skip


def find(case, got):
    """The only wrong rule that gives these kinds (query tiles of all maps, key tiles), a Mistake, or None.

    Rows and columns that do not exist are no part of a rule: as the task has it, the rows count that exist, and no key
    past the last is seen.
    """
    lists = tile_lists.cut(case)
    tiles = [(lists.tile(*place), int(got[place])) for place in np.ndindex(*got.shape)]
    fit = [rule for rule in RULES if all(kind_by(rule.changes, pairs) == kind for pairs, kind in tiles)]
    return fit[0] if len(fit) == 1 else None


def kind_by(changes, pairs):
    """The kind of a tile by the right rules, but for those that are changed."""
    return next((kind for kind, holds in (RIGHT | changes).items() if holds(pairs)), PARTIAL)
