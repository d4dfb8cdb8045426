"""The kinds of tiles that a builder found -> the rule by which it found them, where one wrong rule gives them all."""

import torch

from grader.kinds.block_sparse import tile_lists
from grader.kinds.block_sparse.patterns import CAUSAL, EMPTY, FULL, PARTIAL

HALF = "which half of a tile is its triangle, with or without its diagonal?"
SOME = "all pairs, none of them, or some: what must hold of every row and column of the tile?"


def is_empty(pairs):
    return not pairs.any()


def is_full(pairs):
    return bool(pairs.all())


def is_triangle(diagonal, upper=False):
    """Whether the pairs are those on one side of this diagonal."""

    def holds(pairs):
        ones = torch.ones_like(pairs)
        return torch.equal(pairs, ones.triu(diagonal) if upper else ones.tril(diagonal))

    return holds


FULL_BY = "a tile counts as FULL by {} alone"
OTHER_TRIANGLE = "a tile counts as CAUSAL when it is the {}, not the lower triangle with its diagonal"
RIGHT = {EMPTY: is_empty, FULL: is_full, CAUSAL: is_triangle(0)}
# (words, question, the kind that is found otherwise, how).
RULES = (
    ("a tile counts as EMPTY as soon as one of its rows sees nothing", SOME, EMPTY,
     lambda pairs: not pairs.any(1).all()),
    ("a tile counts as EMPTY as soon as one of its columns is seen by no row", SOME, EMPTY,
     lambda pairs: not pairs.any(0).all()),
    ("a tile counts as FULL when each of its rows sees something", SOME, FULL,
     lambda pairs: bool(pairs.any(1).all())),
    ("a tile counts as FULL when each of its columns is seen", SOME, FULL,
     lambda pairs: bool(pairs.any(0).all())),
    ("a tile counts as FULL as soon as one of its pairs is visible", SOME, FULL, lambda pairs: bool(pairs.any())),
    (FULL_BY.format("its first and last row"), SOME, FULL, lambda pairs: bool(pairs[0].all() and pairs[-1].all())),
    (FULL_BY.format("its first and last column"), SOME, FULL,
     lambda pairs: bool(pairs[:, 0].all() and pairs[:, -1].all())),
    (FULL_BY.format("its corners"), SOME, FULL,
     lambda pairs: bool(pairs[0, 0] and pairs[0, -1] and pairs[-1, 0] and pairs[-1, -1])),
    (OTHER_TRIANGLE.format("upper triangle with its diagonal"), HALF, CAUSAL, is_triangle(0, upper=True)),
    (OTHER_TRIANGLE.format("upper triangle without its diagonal"), HALF, CAUSAL, is_triangle(1, upper=True)),
    (OTHER_TRIANGLE.format("lower triangle without its diagonal"), HALF, CAUSAL, is_triangle(-1)),
    (OTHER_TRIANGLE.format("lower triangle and one pair more in each row"), HALF, CAUSAL, is_triangle(1)),
    ("a tile counts as CAUSAL when nothing above its diagonal is visible, whatever is hidden below it", HALF, CAUSAL,
     lambda pairs: not pairs.triu(1).any()),
    ("no tile counts as FULL", SOME, FULL, lambda pairs: False),
)  # fmt: skip


def find(case, got):
    """(words, question) of the only wrong rule that gives these kinds (maps * query tiles, key tiles), or None.

    Rows and columns that do not exist are no part of a rule: as the task has it, the rows count that exist, and no key
    past the last is seen.
    """
    tiles = []
    masks = [tile_lists.padded_mask(case, *divmod(m, case.maps[1])) for m in range(case.maps[0] * case.maps[1])]
    per_map = -(-case.N // case.block[0])
    for row in range(got.shape[0]):
        this_map, i = divmod(row, per_map)
        rows = min(case.block[0], case.N - i * case.block[0])
        tiles += [tile_lists.tile_of(masks[this_map], i, j, case.block)[:rows] for j in range(got.shape[1])]
    kinds = got.flatten().tolist()
    fit = {rule[:2] for rule in RULES if all(kind_by(rule, t) == kind for t, kind in zip(tiles, kinds, strict=True))}
    return fit.pop() if len(fit) == 1 else None


def kind_by(rule, pairs):
    """The kind of a tile by the right rules, but for one."""
    _, _, changed, holds = rule
    for kind, right in RIGHT.items():
        if (holds if kind == changed else right)(pairs):
            return kind
    return PARTIAL
