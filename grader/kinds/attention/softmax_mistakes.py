"""The catalogue of mistakes in the softmax: the sum, the running values, and what is kept in half precision.

Each says which steps of variants.py it replaces, and by what.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from grader.kinds.attention import variants
from grader.kinds.attention.known_mistakes import DIAGONAL, IN_FLOAT32, ONLINE, RESCALE, SCALE, SOFTMAX, KnownMistake
from grader.kinds.attention.known_mistakes import AttentionSpec as Spec
from grader.kinds.attention.variants import END, TILE, WHOLE, Steps

FAR_BELOW = -1000.0  # a score; 0 lies far above it
LN_2 = math.log(2.0)
NEW = {"acc": "new_acc", "row_sum": "new_sum"}  # the step that makes it
F32 = torch.float32

AGAINST_WHAT = "what were the older parts measured against, and is alpha made before the old maximum is lost?"
WHICH_PARTS = "which parts were measured against the old maximum, and which against the new?"
OLDER_PARTS = "what becomes of the older parts when a tile is added, and is row_max then the new maximum?"
COUNT_ONCE = "do the old value and the rescaled one both count: is it `=` or `+=`?"
IN_THE_LOOP = "what belongs before the loop, or after it, and what inside?"
WHICH_EXP = "is exp2 or exp right, in both places?"
WHICH_MAXIMUM = "is the maximum one of the scaled scores, in both places?"
OVER_WHAT = "over which dimension do the probabilities of one query add up to 1?"
WHICH_DTYPE = "in which dtype does the dot add up, which dtype does it return, and what do you cast after it?"
FAR_ROW = "a row far below the maximum:"

NOT_DIVIDED: Steps = {"shares": lambda x: x.p}
MULTIPLIED: Steps = {"shares": lambda x: x.p * x.row_sum}
OVER_QUERIES: Steps = {
    "row_max": lambda x: x.scores.masked_fill(x.counts == 0, -math.inf).amax(-2, keepdim=True),
    "row_sum": lambda x: x.p.sum(-2, keepdim=True),
}
NO_MAXIMUM: Steps = {"new_max": lambda x: torch.zeros_like(x.tile_max)}


def whole_softmax(spec: Spec) -> Iterator[KnownMistake]:
    """The softmax itself, whatever the tiles."""
    for equals, question, changes, by_row in (
        ("that is not divided by the sum", "what must the row be divided by, and when?", NOT_DIVIDED, True),
        ("that is multiplied by the sum", "is the row divided by its sum, or multiplied?", MULTIPLIED, True),
        ("a softmax over the queries", OVER_WHAT, OVER_QUERIES, False),
    ):
        words, changed = "attention " * equals.startswith("that"), replace(spec, changes=changes, by_row=by_row)
        yield KnownMistake(f"{words}{equals}", question, SOFTMAX, changed)
    for equals, question, changes, by_row in (
        ("without a maximum", "what is exp(100) in float32?", NO_MAXIMUM, True),
        ("with one maximum for all rows", f"{FAR_ROW} what do its exp add up to?", share_maximum(1 << 30), False),
    ):
        yield KnownMistake(f"attention {equals}{IN_FLOAT32}", question, SOFTMAX, over_tiles(spec, changes, F32, by_row))


def masked_wrongly(spec: Spec, met: torch.Tensor | None = None, past: bool = False) -> Iterator[KnownMistake]:
    """A mask that hides no key from the sum.

    met: how often each pair was met, (B, Hq, Nq, Nk), or None for all pairs once. past: the last of these keys is of
    zeros, for the lanes past the end.
    """
    number, question = "0", "a score of 0 is hidden: what is exp(0)?"
    keys = spec.k[0, 0, : -1 if past else None].double()
    highest = float((spec.q[0, 0].double() @ keys.mT).max()) * spec.scale  # other heads are alike
    if highest < FAR_BELOW:  # any number above these scores gives the same output as 0
        number = "larger than the visible ones"
        question = "what if every score of a row is lower than your number for a hidden one?"
    after = "do the probabilities of the visible keys alone add up to 1?"
    where = "" if met is None else ", inside the tiles that are loaded"
    where += ", zeros past the end too" if past else ""

    def hide(pairs, x):
        return pairs.masked_fill(x.weight == 0, 0.0)

    def counts(x):  # a hidden pair counts as often as it was met
        return torch.where(x.weight != 0, x.weight, 1.0 if x.met is None else x.met.to(x.weight.dtype))

    for equals, asked, changes in (
        (f"hidden scores are {number}, not -inf", question, {"scores": lambda x: hide(WHOLE["scores"](x), x)}),
        ("mask comes after the sum was taken", after, {"shares": lambda x: hide(x.p, x) / x.row_sum}),
    ):
        changed = replace(spec, changes={"counts": counts, **changes}, met=met)
        yield KnownMistake(f"attention whose {equals}{where}", asked, DIAGONAL, changed)


# Over tiles ----------------------------------------------------------------------------------------------------------


def over_tiles(spec: Spec, changes: Steps, dtype: torch.dtype = torch.float64, by_row: bool = True) -> Spec:
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
    both = {
        "acc": lambda x: rule(x.acc, x.tile_acc, x.alpha),
        "row_sum": lambda x: rule(x.row_sum, x.tile_sum, x.alpha),
    }
    return {NEW[name]: both[name] for name in what.split(" and ")}


def online_softmax(spec: Spec, tile: int, rows: int, half_p: bool) -> Iterator[KnownMistake]:
    """The online softmax over spec.tiles, of `tile` keys; those of queries are `rows` high.

    half_p: the probabilities are rounded to the input's dtype for their dot, and exp2 is used, as in kernels.
    """
    unit = (LN_2 if half_p else 1.0) / spec.scale  # a maximum that is not scaled, against scores that are
    again = spec.scale / LN_2 if half_p else spec.scale
    p_of_dot = {"p_of_dot": lambda x: round_to(spec.q.dtype, x.p)} if half_p else {}
    for equals, question, section, changes in rescale_wrongly(spec.scale, unit):
        yield KnownMistake(f"attention {equals} (tiles of {tile})", question, section, over_tiles(spec, changes))
    for equals, question, changes in overflow(unit, again):
        changed = over_tiles(spec, p_of_dot | changes, F32)
        yield KnownMistake(f"{equals} (tiles of {tile})", question, ONLINE, changed)
    reshaped = {"scores": lambda x: reshaped_scores(x, tile)}
    question = "are the two dims of K's tile exchanged, or are its numbers only read in another order?"
    yield KnownMistake(
        f"attention whose tiles of K are reshaped, not transposed (tiles of {tile})", question, SCALE,
        over_tiles(spec, reshaped),
    )  # fmt: skip
    changed = over_tiles(spec, p_of_dot | share_maximum(rows), F32, by_row=False)
    equals = f"attention with one maximum for the {rows} rows of a tile{IN_FLOAT32}"
    yield KnownMistake(equals, f"{FAR_ROW} what do its exp2 add up to?", ONLINE, changed)


def reshaped_scores(x, tile):
    """q times the numbers of K's tile, past its end zeros, read as (D, tile)."""
    keys, D = x.k.shape[-2:]
    k = torch.nn.functional.pad(x.k, (0, 0, 0, tile - keys)).reshape(*x.k.shape[:-2], D, tile)
    return (x.q @ k)[..., :keys] * x.scale


def rescale_wrongly(scale: float, unit: float) -> Iterator[tuple[str, str, str, Steps]]:
    """(words, question, section, changes) of acc, row_sum and alpha."""
    for what, are in (("acc", "is"), ("row_sum", "is"), ("acc and row_sum", "are")):
        never = change_sums(what, lambda old, tile, alpha: old + tile)
        yield f"whose {what} {are} not rescaled when the maximum changes", AGAINST_WHAT, RESCALE, never
        late = change_sums(what, lambda old, tile, alpha: (old + tile) * alpha)
        yield f"whose {what} {are} rescaled after the new tile was added", WHICH_PARTS, RESCALE, late
    for what, are in (("acc", "is that"), ("row_sum", "is that"), ("acc and row_sum", "are those")):
        last = change_sums(what, lambda old, tile, alpha: tile)
        yield f"whose {what} {are} of the last tile alone", OLDER_PARTS, RESCALE, last
    for what in NEW:
        twice = change_sums(what, lambda old, tile, alpha: old + old * alpha + tile)
        yield f"whose {what} is added to itself at each tile", COUNT_ONCE, RESCALE, twice
    for factor, words in ((scale, "1 / sqrt(D)"), (scale / LN_2, "log2(e) / sqrt(D)")):
        for what, changes in (
            ("q", {"scores": lambda x, factor=factor: TILE["scores"](x) * factor**x.nth}),
            ("acc", {"new_acc": lambda x, factor=factor: TILE["new_acc"](x) * factor}),
        ):
            yield f"whose {what} is multiplied by {words} again at each tile", IN_THE_LOOP, SCALE, changes
    for factor, words, question in (
        (LN_2, "taken with exp2, where p is taken with exp", WHICH_EXP),
        (1 / LN_2, "taken with exp, where p is taken with exp2", WHICH_EXP),
        (unit, "taken from maxima that are not scaled", WHICH_MAXIMUM),
    ):
        alpha = {"alpha": lambda x, factor=factor: torch.exp((x.row_max - x.pivot) * factor)}
        yield f"whose alpha is {words}", question, RESCALE, alpha
    infinite = {"row_sum": lambda x: torch.full_like(x.q[..., :1], -math.inf)}
    yield "whose row_sum starts at -inf", "with which value must a sum start?", ONLINE, infinite


def overflow(unit: float, again: float) -> Iterator[tuple[str, str, Steps]]:
    """(words, question, changes) of a maximum that is wrong: only what overflows in float32 shows it."""
    last, zero = {"new_max": lambda x: x.tile_max}, {"row_max": lambda x: torch.zeros_like(x.q[..., :1])}
    unscaled = {"tile_max": lambda x: TILE["tile_max"](x) * unit}
    scaled_again = {"new_max": lambda x: torch.maximum(x.row_max * again, x.tile_max)}
    too_early = {"tile_max": lambda x: x.scores.amax(-1, keepdim=True)}
    bare = {"pivot": lambda x: x.new_max, "p": lambda x: x.weight * torch.exp(x.seen_scores - x.pivot)}
    question = "what is alpha when the new maximum lies far below the old one?"
    yield f"attention whose maximum is that of the last tile alone{IN_FLOAT32}", question, last
    yield f"attention whose maximum starts at 0{IN_FLOAT32}", "what if every score of a row lies far below 0?", zero
    yield f"attention whose maximum is not scaled{IN_FLOAT32}", "is the maximum one of the scaled scores?", unscaled
    question = "the older maximum is scaled already: what is multiplied by the scale?"
    yield f"attention whose maximum is scaled again at each tile{IN_FLOAT32}", question, scaled_again
    question = "which comes first: the mask, or the maximum?"
    yield "attention whose maximum counts hidden keys of the tiles that are loaded", question, too_early
    question = "a row that has seen nothing has the maximum -inf: what is -inf - (-inf)?"
    yield "attention with NaN for rows whose first tile hides every key", question, bare


# Half precision ------------------------------------------------------------------------------------------------------


def half_scores(spec: Spec, base: float) -> Iterator[KnownMistake]:
    """Scores rounded to half precision: before they are scaled, after it, or both. base: of exp, 2 or e."""
    for dtype in half_dtypes(spec):
        for words, before, after in (
            ("scores are rounded to {}", True, False),
            ("scaled scores are rounded to {}", False, True),
            ("scores are rounded to {}, and once more when they are scaled", True, True),
        ):

            def scores(x, dtype=dtype, before=before, after=after):
                factor, found = x.scale / math.log(base), x.q @ x.k.mT
                if before and after and base == 2:  # a scalar of Triton's takes the dtype of its block
                    factor = float(torch.tensor(factor).to(dtype))
                found = (round_to(dtype, found) if before else found) * factor
                return (round_to(dtype, found) if after else found) * math.log(base)

            equals, changed = words.format(name_dtype(dtype)), over_tiles(spec, {"scores": scores}, F32)
            yield KnownMistake(f"attention whose {equals}", WHICH_DTYPE, SOFTMAX, changed, rounding=True)


def half_precision(spec: Spec, tile: int) -> Iterator[KnownMistake]:
    """Something kept in half precision between tiles, or o at the end."""
    for dtype in half_dtypes(spec):

        def acc(x, dtype=dtype):
            return round_o(dtype, TILE["new_acc"](x))

        def out(x, dtype=dtype):
            return round_o(dtype, END["out"](x))

        row_sum = {"new_sum": lambda x, dtype=dtype: round_to(dtype, TILE["new_sum"](x))}
        if dtype != spec.q.dtype and spec.k.shape[2] > 1:  # of one key o is v, and may have been rounded before
            equals = f"attention whose o is rounded to {name_dtype(dtype)} before it is stored"
            rounded = over_tiles(spec, {"out": out}, F32)
            yield KnownMistake(equals, "to which dtype is acc cast: that of O?", ONLINE, rounded, rounding=True)
            cast = {"tile_acc": lambda x, dtype=dtype: round_to(dtype, x.p) @ round_to(dtype, x.values)}
            equals = f"attention whose p and v are rounded to {name_dtype(dtype)} for their product"
            changed = over_tiles(spec, cast, F32)
            yield KnownMistake(equals, "to which dtype is p cast for its dot with v?", ONLINE, changed, rounding=True)
        if spec.k.shape[2] <= tile:
            continue  # one tile alone: the same numbers
        for what, changes, question in (
            ("acc", {"new_acc": acc}, "in which dtype do hundreds of tiles add up?"),
            ("row_sum", row_sum, "how many ones can a half count before 1 is lost?"),
        ):
            equals = f"attention whose {what} is rounded to {name_dtype(dtype)} at each tile (tiles of {tile})"
            yield KnownMistake(equals, question, ONLINE, over_tiles(spec, changes, F32), rounding=True)


def round_o(dtype: torch.dtype, x: torch.Tensor) -> torch.Tensor:
    """acc with its first half rounded: the second, of sizes, no kernel has."""
    o, sizes = x.chunk(2, -1)
    return torch.cat([round_to(dtype, o), sizes], -1)


def round_to(dtype: torch.dtype, x: torch.Tensor) -> torch.Tensor:
    return x.to(dtype).to(x.dtype)


def half_dtypes(spec: Spec) -> list[torch.dtype]:
    return sorted({torch.float16, spec.q.dtype} - {torch.float32}, key=str)


def name_dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
