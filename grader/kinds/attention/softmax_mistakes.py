"""The catalogue of mistakes in the softmax: the sum, the running values, and what is kept in half precision.

Each says which steps of variants.py it replaces, and by what.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from grader.kinds.attention import known_mistakes, variants
from grader.kinds.attention.known_mistakes import DIAGONAL, IN_FLOAT32, ONLINE, RESCALE, SCALE, SOFTMAX, KnownMistake
from grader.kinds.attention.variants import TILE, WHOLE, Steps

FAR_BELOW = -1000.0  # a score; 0 lies far above it
GUESSED = "softmax over guessed tiles"  # a kind of its own: they are many
LN_2 = math.log(2.0)

AGAINST_WHAT = "what were the older parts measured against, and is alpha made before the old maximum is lost?"
WHICH_PARTS = "which parts were measured against the old maximum, and which against the new?"
OLDER_PARTS = "what becomes of the older parts when a tile is added, and is row_max then the new maximum?"
COUNT_ONCE = "do the old value and the rescaled one both count: is it `=` or `+=`?"
IN_THE_LOOP = "what belongs before the loop, or after it, and what inside?"
WHICH_EXP = "is exp2 or exp right, in both places?"
WHICH_MAXIMUM = "is the maximum one of the scaled scores, in both places?"
WHICH_DTYPE = "in which dtype does the dot add up, in which does it return, and what is cast after it?"


def whole_softmax(spec: known_mistakes.AttentionSpec) -> Iterator[KnownMistake]:
    """The softmax itself, whatever the tiles."""

    def mistake(equals, question, changes, kind="", by_row=True):
        return KnownMistake(equals, question, SOFTMAX, replace(spec, changes=changes, by_row=by_row), kind=kind)

    question = "what must the row be divided by, and when?"
    yield mistake("attention that is not divided by the sum", question, {"shares": lambda x: x.p}, "softmax")
    question = "is the row divided by its sum, or multiplied?"
    yield mistake("attention that is multiplied by the sum", question, {"shares": lambda x: x.p * x.row_sum})
    over_queries: Steps = {
        "row_max": lambda x: x.scores.masked_fill(x.counts == 0, -math.inf).amax(-2, keepdim=True),
        "row_sum": lambda x: x.p.sum(-2, keepdim=True),
    }
    question = "over which dimension do the probabilities of one query add up to 1?"
    yield mistake("a softmax over the queries", question, over_queries, by_row=False)
    none = over_tiles(spec, {"new_max": lambda x: torch.zeros_like(x.tile_max)}, torch.float32)
    yield KnownMistake(f"{IN_FLOAT32} without a maximum", "what is exp(100) in float32?", SOFTMAX, none)
    one = over_tiles(spec, share_maximum(1 << 30), torch.float32, by_row=False)
    question = "a row far below the maximum: what do its exp add up to?"
    yield KnownMistake(f"{IN_FLOAT32} with one maximum for all rows", question, SOFTMAX, one)


def masked_wrongly(
    spec: known_mistakes.AttentionSpec, met: torch.Tensor | None = None, past: bool = False
) -> Iterator[KnownMistake]:
    """A mask that hides no key from the sum.

    met: how often each pair was met, (B, Hq, Nq, Nk), or None for all pairs once. past: the last of these keys is of
    zeros, for the lanes past the end.
    """
    number, question = "0", "a score of 0 is hidden: what is exp(0)?"
    if highest_score(spec) < FAR_BELOW:  # any number above these scores gives the same output as 0
        number = "a number above the visible ones"
        question = "what if every score of a row is lower than your number for a hidden one?"
    after = "do the probabilities of the visible keys alone add up to 1?"
    where = "" if met is None else ", inside the tiles that are loaded"
    where += ", zeros past the end too" if past else ""
    for equals, asked, changes in (
        (f"hidden scores are {number}, not -inf", question, {"scores": lambda x: hide(WHOLE["scores"](x), x)}),
        ("mask comes after the sum was taken", after, {"shares": lambda x: hide(x.p, x) / x.row_sum}),
    ):
        changed = replace(spec, changes={"counts": count_hidden, **changes}, met=met)
        yield KnownMistake(f"attention whose {equals}{where}", asked, DIAGONAL, changed)


def hide(pairs: torch.Tensor, x) -> torch.Tensor:
    """These numbers, and 0 where a pair is hidden."""
    return pairs.masked_fill(x.weight == 0, 0.0)


def count_hidden(x) -> torch.Tensor:
    """The step `counts` where a hidden pair counts as often as it was met."""
    return torch.where(x.weight != 0, x.weight, 1.0 if x.met is None else x.met.to(x.weight.dtype))


def highest_score(spec: known_mistakes.AttentionSpec) -> float:
    """Of the first head; the others' are alike."""
    return float((spec.q[0, 0].double() @ spec.k[0, 0].double().mT).max()) * spec.scale


# Over tiles ----------------------------------------------------------------------------------------------------------


def over_tiles(
    spec: known_mistakes.AttentionSpec, changes: Steps, dtype: torch.dtype = torch.float64, by_row: bool = True
) -> known_mistakes.AttentionSpec:
    """The online softmax with these steps in the place of its own."""
    return replace(spec, method=variants.online, changes=changes, dtype=dtype, by_row=by_row)


def share_maximum(rows: int) -> Steps:
    """One maximum for each `rows` rows of a tile."""

    def tile_max(x):
        parts = TILE["tile_max"](x).split(rows, 1)
        return torch.cat([part.amax(1, keepdim=True).expand_as(part) for part in parts], 1)

    return {"tile_max": tile_max}


def change_sums(what: str, rule: Callable) -> Steps:
    """acc, row_sum or both, made by rule(the old value, the tile's own, alpha)."""
    both: Steps = {
        "acc": lambda x: rule(x.acc, x.tile_acc, x.alpha),
        "row_sum": lambda x: rule(x.row_sum, x.tile_sum, x.alpha),
    }
    return {NEW[name]: both[name] for name in what.split(" and ")}


NEW = {"acc": "new_acc", "row_sum": "new_sum"}  # the step that makes it


def online_softmax(
    spec: known_mistakes.AttentionSpec, tile: int, rows: int, half_p: bool, known: bool
) -> Iterator[KnownMistake]:
    """The online softmax over spec.tiles, of `tile` keys; those of queries are `rows` high.

    half_p: the probabilities are rounded to the input's dtype for their dot, and exp2 is used, as in kernels.
    known: the tiles are not guessed.
    """
    p_of_dot: Steps = {"p_of_dot": lambda x: x.p.to(spec.q.dtype).to(x.p.dtype)} if half_p else {}

    def mistake(equals, question, section, changes, kind=""):
        words = f"attention {equals} (tiles of {tile})"
        return KnownMistake(words, question, section, over_tiles(spec, changes), kind=kind)

    def overflow(equals, question, changes, words=f" (tiles of {tile})", by_row=True):
        changed = over_tiles(spec, p_of_dot | changes, torch.float32, by_row)
        return KnownMistake(f"{equals}{words}", question, ONLINE, changed)

    yield from rescaling(mistake, spec.scale, half_p, "softmax" if known else GUESSED)
    yield from overflowing(overflow, spec.scale, half_p)
    question = "a row far below the maximum: what do its exp2 add up to?"
    equals = f"{IN_FLOAT32} with one maximum for the {rows} rows of a tile"
    yield overflow(equals, question, share_maximum(rows), words="", by_row=False)


def rescaling(mistake: Callable, scale: float, base_2: bool, kind: str) -> Iterator[KnownMistake]:
    """acc, row_sum and alpha. base_2: exp2 is used. kind: of those that may be one of two mistakes."""
    for what, are in (("acc", "is"), ("row_sum", "is"), ("acc and row_sum", "are")):
        equals = f"whose {what} {are} not rescaled when the maximum changes"
        never = change_sums(what, lambda old, tile, alpha: old + tile)
        yield mistake(equals, AGAINST_WHAT, RESCALE, never, kind)
        late = change_sums(what, lambda old, tile, alpha: (old + tile) * alpha)
        yield mistake(f"whose {what} {are} rescaled after the new tile was added", WHICH_PARTS, RESCALE, late, kind)
    for what, are in (("acc", "is that"), ("row_sum", "is that"), ("acc and row_sum", "are those")):
        last = change_sums(what, lambda old, tile, alpha: tile)
        yield mistake(f"whose {what} {are} of the last tile alone", OLDER_PARTS, RESCALE, last)
    for what in ("acc", "row_sum"):
        again = change_sums(what, lambda old, tile, alpha: old + old * alpha + tile)
        yield mistake(f"whose {what} is added to itself at each tile", COUNT_ONCE, RESCALE, again)
    for factor, words in ((scale, "1 / sqrt(D)"), (scale / LN_2, "log2(e) / sqrt(D)")):
        for what, changes in (
            ("q", {"scores": lambda x, factor=factor: TILE["scores"](x) * factor**x.nth}),
            ("acc", {"new_acc": lambda x, factor=factor: TILE["new_acc"](x) * factor}),
        ):
            equals = f"whose {what} is multiplied by {words} again at each tile"
            yield mistake(equals, IN_THE_LOOP, SCALE, changes)
    for factor, words, question in (
        (LN_2, "taken with exp2, where p is taken with exp", WHICH_EXP),
        (1 / LN_2, "taken with exp, where p is taken with exp2", WHICH_EXP),
        (maximum_unit(scale, base_2), "taken from maxima that are not scaled", WHICH_MAXIMUM),
        (-1.0, "inverted: exp(new maximum - old maximum)", "must the older parts grow or shrink?"),
    ):
        alpha: Steps = {"alpha": lambda x, factor=factor: torch.exp((x.row_max - x.pivot) * factor)}
        yield mistake(f"whose alpha is {words}", question, RESCALE, alpha)
    divided: Steps = {"new_acc": lambda x: TILE["new_acc"](x) / x.new_sum}
    question = "what is the sum before the last tile?"
    yield mistake("that is divided by the sum after each tile", question, RESCALE, divided)
    start: Steps = {"row_sum": lambda x: torch.full_like(x.q[..., :1], -math.inf)}
    yield mistake("whose row_sum starts at -inf", "with which value must a sum start?", ONLINE, start)


def overflowing(mistake: Callable, scale: float, base_2: bool) -> Iterator[KnownMistake]:
    """The maximum: where it is wrong, only what overflows in float32 shows it."""
    unit, again = maximum_unit(scale, base_2), scale / LN_2 if base_2 else scale
    question = "what is alpha when the new maximum lies far below the old one?"
    equals = f"{IN_FLOAT32} whose maximum is that of the last tile alone"
    yield mistake(equals, question, {"new_max": lambda x: x.tile_max})
    question = "what if every score of a row lies far below 0?"
    zero: Steps = {"row_max": lambda x: torch.zeros_like(x.q[..., :1])}
    yield mistake(f"{IN_FLOAT32} whose maximum starts at 0", question, zero)
    unscaled: Steps = {"tile_max": lambda x: TILE["tile_max"](x) * unit}
    question = "is the maximum one of the scaled scores?"
    yield mistake(f"{IN_FLOAT32} whose maximum is not scaled", question, unscaled)
    question = "the older maximum is scaled already: what is multiplied by the scale?"
    twice: Steps = {"new_max": lambda x: torch.maximum(x.row_max * again, x.tile_max)}
    yield mistake(f"{IN_FLOAT32} whose maximum is scaled again at each tile", question, twice)
    question = "a row that has seen nothing has the maximum -inf: what is -inf - (-inf)?"
    bare: Steps = {"pivot": lambda x: x.new_max, "p": lambda x: x.weight * torch.exp(x.seen_scores - x.pivot)}
    yield mistake("attention with NaN for rows whose first tile hides every key", question, bare)


def maximum_unit(scale: float, base_2: bool) -> float:
    """A maximum that is not scaled, against scores that are."""
    return (LN_2 if base_2 else 1.0) / scale


# Half precision ------------------------------------------------------------------------------------------------------


def half_scores(spec: known_mistakes.AttentionSpec, base: float) -> Iterator[KnownMistake]:
    """Scores rounded to half precision: before they are scaled, after it, or both. base: of exp, 2 or e."""
    for dtype in half_dtypes(spec):
        for words, before, after in (
            ("scores are rounded to {}", True, False),
            ("scaled scores are rounded to {}", False, True),
            ("scores are rounded to {}, and once more when they are scaled", True, True),
        ):
            changed = over_tiles(spec, round_scores(dtype, math.log(base), before, after), torch.float32)
            equals = f"attention whose {words.format(name_dtype(dtype))}"
            yield KnownMistake(equals, WHICH_DTYPE, SOFTMAX, changed, rounding=True)


def round_scores(dtype: torch.dtype, log_base: float, before: bool, after: bool) -> Steps:
    """before, after: scores are rounded before the scale is multiplied into them, and after that."""

    def scores(x):
        factor, found = x.scale / log_base, x.q @ x.k.mT
        if before and after and log_base != 1.0:  # a scalar of Triton's takes the dtype of its block
            factor = float(torch.tensor(factor).to(dtype))
        found = (round_to(dtype, found) if before else found) * factor
        return (round_to(dtype, found) if after else found) * log_base

    return {"scores": scores}


def half_precision(spec: known_mistakes.AttentionSpec, tile: int) -> Iterator[KnownMistake]:
    """Something kept in half precision between tiles."""
    for dtype in half_dtypes(spec):
        for what, question in (
            ("acc", "in which dtype do hundreds of tiles add up?"),
            ("row_sum", "how many ones can a half count before 1 is lost?"),
        ):
            equals = f"attention whose {what} is rounded to {name_dtype(dtype)} at each tile (tiles of {tile})"
            changed = over_tiles(spec, round_sum(what, dtype), torch.float32)
            yield KnownMistake(equals, question, ONLINE, changed, rounding=True)


def round_sum(what: str, dtype: torch.dtype) -> Steps:
    """acc or row_sum rounded after each tile; the sizes beside acc are not."""

    def acc(x):
        o, sizes = TILE["new_acc"](x).chunk(2, -1)
        return torch.cat([round_to(dtype, o), sizes], -1)

    both: Steps = {"acc": acc, "row_sum": lambda x: round_to(dtype, TILE["new_sum"](x))}
    return {NEW[what]: both[what]}


def round_to(dtype: torch.dtype, x: torch.Tensor) -> torch.Tensor:
    return x.to(dtype).to(x.dtype)


def half_dtypes(spec: known_mistakes.AttentionSpec) -> list[torch.dtype]:
    return sorted({torch.float16, spec.q.dtype} - {torch.float32}, key=str)


def name_dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
