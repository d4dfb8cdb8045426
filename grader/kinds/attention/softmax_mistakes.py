"""The catalogue of mistakes in the softmax: the sum, the running values, and what is kept in half precision."""

import math
from dataclasses import replace
from functools import partial

import torch

from grader.kinds.attention import variants
from grader.kinds.attention.known_mistakes import DIAGONAL, ONLINE, RESCALE, SCALE, SOFTMAX, KnownMistake

FAR_BELOW = -1000.0  # a score; 0 lies far above it
GUESSED = "softmax over guessed tiles"  # a kind of its own: they are many

WHOLE = (
    (
        "attention that is not divided by the sum", "what must the row be divided by, and when?",
        partial(variants.whole, divide="never"), "softmax",
    ),
    (
        "attention that is multiplied by the sum", "is the row divided by its sum, or multiplied?",
        partial(variants.whole, divide="times"), "",
    ),
    (
        "a softmax over the queries", "over which dimension do the probabilities of one query add up to 1?",
        partial(variants.whole, softmax_dim=-2), "",
    ),
    (
        "attention in float32 without a maximum", "what is exp(100) in float32?",
        partial(variants.online, maximum="none"), "",
    ),
    (
        "attention in float32 with one maximum for all rows",
        "a row far below the maximum: what do its exp add up to?",
        partial(variants.online, maximum="shared", rows=1 << 30), "",
    ),
)  # fmt: skip


def whole_softmax(spec):
    """The softmax itself, whatever the tiles."""
    for equals, question, method, kind in WHOLE:
        yield KnownMistake(equals, question, SOFTMAX, replace(spec, method=method), kind=kind)


def masked_wrongly(spec, met=None, past=False):
    """A mask that hides no key from the sum.

    met: how often each pair was met, (B, Hq, Nq, Nk), or None for all pairs once. past: the last of these keys is of
    zeros, for the lanes past the end.
    """
    zero = ("attention whose hidden scores are 0, not -inf", "a score of 0 is hidden: what is exp(0)?", "score 0")
    if highest_score(spec) < FAR_BELOW:  # any number above these scores gives the same output as 0
        question = "what if every score of a row is lower than your number for a hidden one?"
        zero = ("attention whose hidden scores are a number above the visible ones, not -inf", question, "score 0")
    inside = "" if met is None else ", inside the tiles that are loaded"
    past = ", zeros past the end too" if past else ""
    more = {} if met is None else {"met": met}
    for equals, question, hidden in (
        zero,
        (
            "attention whose mask comes after the sum was taken",
            "do the probabilities of the visible keys alone add up to 1?", "after",
        ),
    ):  # fmt: skip
        changed = replace(spec, method=partial(variants.whole, hidden=hidden), more=more)
        yield KnownMistake(f"{equals}{inside}{past}", question, DIAGONAL, changed)


def highest_score(spec):
    """Of the first head; the others' are alike."""
    return float((spec.q[0, 0].double() @ spec.k[0, 0].double().mT).max()) * spec.scale


def rescaling(scale, base):
    """(equals, question, section, what online does, may it be one of two mistakes). base: of exp, 2 or e."""
    ln2 = math.log(2.0)
    unit = (ln2 if base == 2 else 1.0) / scale  # a maximum that is not scaled, against scores that are
    for what, verb in (("acc", "is"), ("row_sum", "is"), ("acc and row_sum", "are")):
        yield (
            f"attention whose {what} {verb} not rescaled when the maximum changes",
            "what were the older parts measured against, and is alpha made before the old maximum is lost?", RESCALE,
            {"forget": what}, True,
        )  # fmt: skip
        yield (
            f"attention whose {what} {verb} rescaled after the new tile was added",
            "which parts were measured against the old maximum, and which against the new?", RESCALE, {"late": what},
            True,
        )  # fmt: skip
    for what, verb in (("acc", "is that"), ("row_sum", "is that"), ("acc and row_sum", "are those")):
        yield (
            f"attention whose {what} {verb} of the last tile alone",
            "what becomes of the older parts when a tile is added, and is row_max then the new maximum?", RESCALE,
            {"last": what}, False,
        )  # fmt: skip
    for what in ("acc", "row_sum"):
        yield (
            f"attention whose {what} is added to itself at each tile",
            "do the old value and the rescaled one both count: is it `=` or `+=`?", RESCALE, {"again": what}, False,
        )  # fmt: skip
    for factor, words in ((scale, "1 / sqrt(D)"), (scale / ln2, "log2(e) / sqrt(D)")):
        for what in ("q", "acc"):
            yield (
                f"attention whose {what} is multiplied by {words} again at each tile",
                "what belongs before the loop, or after it, and what inside?", SCALE, {f"{what}_again": factor}, False,
            )  # fmt: skip
    for fade, words, question in (
        (ln2, "taken with exp2, where p is taken with exp", "is exp2 or exp right, in both places?"),
        (1 / ln2, "taken with exp, where p is taken with exp2", "is exp2 or exp right, in both places?"),
        (unit, "taken from maxima that are not scaled", "is the maximum one of the scaled scores, in both places?"),
        (-1.0, "inverted: exp(new maximum - old maximum)", "must the older parts grow or shrink?"),
    ):
        yield f"attention whose alpha is {words}", question, RESCALE, {"fade": fade}, False
    yield (
        "attention that is divided by the sum after each tile", "what is the sum before the last tile?", RESCALE,
        {"divide": "each tile"}, False,
    )  # fmt: skip
    yield (
        "attention whose row_sum starts at -inf", "with which value must a sum start?", ONLINE,
        {"sum_from": -math.inf}, False,
    )  # fmt: skip
    yield (
        "attention in float32 whose maximum is that of the last tile alone",
        "what is alpha when the new maximum lies far below the old one?", ONLINE, {"maximum": "tile"}, False,
    )  # fmt: skip
    yield (
        "attention in float32 whose maximum starts at 0", "what if every score of a row lies far below 0?", ONLINE,
        {"maximum": "from zero"}, False,
    )  # fmt: skip
    yield (
        "attention in float32 whose maximum is not scaled", "is the maximum one of the scaled scores?", ONLINE,
        {"unit": unit}, False,
    )  # fmt: skip
    yield (
        "attention in float32 whose maximum is scaled again at each tile",
        "the older maximum is scaled already: what is multiplied by the scale?", ONLINE,
        {"shrink": scale / ln2 if base == 2 else scale}, False,
    )  # fmt: skip
    yield (
        "attention with NaN for rows whose first tile hides every key",
        "a row that has seen nothing has the maximum -inf: what is -inf - (-inf)?", ONLINE, {"bare": True}, False,
    )  # fmt: skip


def online_softmax(spec, tile, rows, half_p, known):
    """The online softmax over the tiles in spec.more["steps"], of this size; the tiles of queries are `rows` high.

    half_p: the probabilities are rounded to the input's dtype for their dot, and exp2 is used, as in kernels.
    known: the tiles are not guessed.
    """
    common = {"p_dtype": spec.q.dtype if half_p else torch.float32}
    for equals, question, section, change, combines in rescaling(spec.scale, 2 if half_p else math.e):
        changed = replace(spec, method=partial(variants.online, **common, **change))
        kind = ("softmax" if known else GUESSED) * combines
        yield KnownMistake(f"{equals} (tiles of {tile})", question, section, changed, kind=kind)
    shared = partial(variants.online, **common, maximum="shared", rows=rows)
    equals = f"attention in float32 with one maximum for the {rows} rows of a tile"
    question = "a row far below the maximum: what do its exp2 add up to?"
    yield KnownMistake(equals, question, ONLINE, replace(spec, method=shared))


def half_scores(spec, base):
    """Scores rounded to half precision: before they are scaled, after it, or both. base: of exp, 2 or e."""
    question = "in which dtype does the dot add up, in which does it return, and what is cast after it?"
    for dtype in halves(spec):
        for keep, words in (
            ("scores", "scores are rounded to {}"), ("scaled", "scaled scores are rounded to {}"),
            ("scores scaled", "scores are rounded to {}, and once more when they are scaled"),
        ):  # fmt: skip
            method = partial(variants.online, keep=keep, base=base, dtype=dtype)
            equals = f"attention whose {words.format(name_of(dtype))}"
            yield KnownMistake(equals, question, SOFTMAX, replace(spec, method=method), rounding=True)


def half_precision(spec, tile):
    """Something kept in half precision between tiles."""
    for dtype in halves(spec):
        for what, question in (
            ("acc", "in which dtype do hundreds of tiles add up?"),
            ("row_sum", "how many ones can a half count before 1 is lost?"),
        ):
            method = partial(variants.online, keep=what, dtype=dtype)
            equals = f"attention whose {what} is rounded to {name_of(dtype)} at each tile (tiles of {tile})"
            yield KnownMistake(equals, question, ONLINE, replace(spec, method=method), rounding=True)


def halves(spec):
    return sorted({torch.float16, spec.q.dtype} - {torch.float32}, key=str)


def name_of(dtype):
    return str(dtype).removeprefix("torch.")
