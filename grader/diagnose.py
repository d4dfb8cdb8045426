"""Facts -> one sentence for the student: where, and what the output equals if that can be told."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch

from grader import oracle
from grader.visibility import Visibility

TILES = (16, 32, 64, 128)
MAX_TOKENS = 1024  # the oracle is asked many times over; longer sequences get the facts alone


@dataclass(frozen=True)
class Question:
    """What the oracle is asked: the inputs and rules of one case. A what-if is a Question with one thing changed."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    mask: Callable
    scale: float
    kv_heads: torch.Tensor


def what_ifs(case, asked):
    """(what the output equals, a hint, the changed question): each a single plausible mistake for this case."""
    D, keys, group = asked.q.shape[3], asked.k.shape[2], case.Hq // case.kv_heads
    heads = torch.arange(case.Hq)

    def masked(mask):
        return replace(asked, mask=mask)

    yield "attention without a scale", "where does 1 / sqrt(D) go?", replace(asked, scale=1.0)
    ln2 = math.log(2.0)
    yield (
        "attention with log2(e) in the scale twice, or with exp where the scale is made for exp2",
        "exp2(x * log2(e)) is exp(x)", replace(asked, scale=1.0 / (ln2 * math.sqrt(D))),
    )  # fmt: skip
    squared = replace(asked, scale=1.0 / D)
    yield (
        "attention scaled by 1 / D, that is, by 1 / sqrt(D) twice",
        "look at the square root, and where you scale",
        squared,
    )
    yield "attention with log2(e) missing from the scale", "exp2 is not exp", replace(asked, scale=ln2 / math.sqrt(D))
    if not case.causal:
        one = torch.zeros(*asked.k.shape[:2], 1, D, dtype=asked.k.dtype)
        longer = replace(asked, k=torch.cat([asked.k, one], 2), v=torch.cat([asked.v, one], 2))
        yield f"attention over {keys + 1} keys, the last of them zeros", "check `<` against `<=`", longer
    for tile in TILES:
        if keys % tile > 0 and keys % tile != tile - 1 and not case.causal:
            pad = torch.zeros(*asked.k.shape[:2], -keys % tile, D, dtype=asked.k.dtype)
            padded = replace(asked, k=torch.cat([asked.k, pad], 2), v=torch.cat([asked.v, pad], 2))
            yield (
                f"attention over {keys + -keys % tile} keys, the last {-keys % tile} of them zeros",
                "a key past the end is loaded as zeros: what is its score?",
                padded,
            )
        if keys > tile and not case.causal:
            kept = (keys - 1) // tile * tile
            short = replace(asked, k=asked.k[:, :, :kept], v=asked.v[:, :, :kept])
            yield f"attention over the first {kept} keys only", "does your loop reach the last tile?", short
    if case.causal:
        yield from what_if_masks(case, masked)
    if group > 1:
        yield (
            "kv head = head % Hkv",
            "neighbouring query heads share a kv head",
            replace(asked, kv_heads=heads % case.kv_heads),
        )
    if case.kv_heads > 1:
        yield "kv head 0 for every query head", "K and V move with their head too", replace(asked, kv_heads=heads * 0)
    if case.B > 1:
        first_batch = replace(asked, k=asked.k[:1].expand_as(asked.k), v=asked.v[:1].expand_as(asked.v))
        yield "attention to the keys of batch 0 in every batch", "K and V move with their batch too", first_batch


def what_if_masks(case, masked):
    """The what-ifs that change who sees whom; all of them causal in the question."""
    seen = Visibility(case.causal, case.window, case.sinks or 0)
    full = Visibility()
    yield "attention without a mask", "is the mask applied to the scores before their maximum?", masked(full.mask)
    yield (
        "a causal mask that hides the query's own key", "check `<` against `<=`",
        masked(lambda q, k: seen.mask(q, k) & (q[:, None] != k[None, :])),
    )  # fmt: skip
    yield (
        "a causal mask that shows one key too many", "check `<` against `<=`",
        masked(lambda q, k: seen.mask(q, k) | (k[None, :] == q[:, None] + 1)),
    )  # fmt: skip
    for tile in TILES:
        same_tile = partial(in_same_tile, tile)
        yield (
            f"a causal mask that shows one key too many inside tiles of {tile}", "check `<` against `<=`",
            masked(lambda q, k, t=same_tile: seen.mask(q, k) | (t(q, k) & (k[None, :] == q[:, None] + 1))),
        )  # fmt: skip
        yield (
            f"a causal mask by tiles of {tile}", "tiles on the diagonal need a mask by position",
            masked(lambda q, k, t=same_tile: seen.mask(q, k) | (t(q, k) & (k[None, :] > q[:, None]))),
        )  # fmt: skip
    if case.window is None:
        return
    for off in (-1, 1):
        if case.window + off > 0:
            other = replace(seen, window=case.window + off)
            yield f"a window of {other.window}", "check `<` against `<=`", masked(other.mask)
    yield "a causal mask without a window", "which keys are too old?", masked(Visibility(causal=True).mask)
    for off in (-1, 1) if case.sinks else ():
        other = replace(seen, sinks=case.sinks + off)
        if other.sinks:
            yield f"{other.sinks} sinks", "check `<` against `<=`", masked(other.mask)
    if case.sinks:
        yield "a window without sinks", "do your phases reach the first tiles?", masked(replace(seen, sinks=0).mask)
        sinks = case.sinks
        yield (
            "sinks that are visible to queries before them", "are the sinks causal?",
            masked(lambda q, k: seen.mask(q, k) | (k[None, :] < sinks)),
        )  # fmt: skip
        for tile in TILES:
            same_tile = partial(in_same_tile, tile)
            yield (
                f"sinks that are visible to queries before them, inside tiles of {tile}", "are the sinks causal?",
                masked(lambda q, k, t=same_tile: seen.mask(q, k) | ((k[None, :] < sinks) & t(q, k))),
            )  # fmt: skip


def in_order(asked):
    return asked.q, asked.k, asked.v, asked.mask, asked.scale, asked.kv_heads


def forgotten_rescaling(asked, got, expected):
    """{what the output equals: a hint} for kernels that forget alpha in one place or both, for some size of tile."""
    fits = {}
    for tile in (*TILES, 256):
        for what in ("acc", "row_sum", "acc and row_sum"):
            o, size = oracle.forgetful(*in_order(asked), tile, what)
            different = (o - expected.o).abs() > expected.allowed_o
            near = (got.double() - o).abs() <= 4 * expected.relative * size + 1e-6
            if different.any() and near.all():
                equals = f"attention whose {what} is not rescaled when the maximum changes (tiles of {tile})"
                fits[equals] = "what were the older parts measured against?"
    return fits


def in_same_tile(tile, q_pos, k_pos):
    return q_pos[:, None] // tile == k_pos[None, :] // tile


def name_the_mistake(case, q, k, v, got, expected):
    """`Your output equals ...: hint` for each what-if that gives this output within rounding, else an empty string."""
    if max(case.N, case.num_keys) > MAX_TOKENS:
        return ""
    heads = torch.arange(case.Hq) // (case.Hq // case.kv_heads)
    asked = Question(q, k, v, case.visibility.mask, 1.0 / math.sqrt(case.D), heads)
    fits = {}
    for equals, hint, changed in what_ifs(case, asked):
        o, _, size = oracle.attention(*in_order(changed))
        near = (got.double() - o).abs() <= 2 * expected.relative * size + 1e-6
        near |= (size == 0) & ~got.isfinite()  # a row that sees no key: the kernel's 0 / 0
        different = (o - expected.o).abs() > expected.allowed_o
        if different.any() and near.all():
            fits[equals] = hint
    if not fits:
        fits = forgotten_rescaling(asked, got, expected)
    if not fits:
        return ""
    hints = "; ".join(dict.fromkeys(fits.values()))
    end = "" if hints.endswith("?") else "."
    return f" Your output equals {' and also '.join(fits)}: {hints}{end}"


def name_lse(got, expected):
    """What an lse equals instead of the natural logarithm of the sum, if that can be told."""
    got = got.double()
    if torch.allclose(got, expected / math.log(2.0), rtol=1e-5, atol=1e-5):
        return " Your lse equals the right one in base 2: multiply by ln 2 where it is needed."
    if torch.allclose(got, expected * math.log(2.0), rtol=1e-5, atol=1e-5):
        return " Your lse equals the right one times ln 2: it was in natural logarithms already."
    return ""


def locate(facts):
    """Where the wrong elements are: `first wrong row 32; rows before it agree.` and what else the facts show."""
    first_row = facts["row_ranges"][0][0]
    said = []
    if facts["unwritten"]:
        said.append(f"{facts['unwritten']} of {facts['total']} elements of the output were never written")
    if facts["row_ranges"] == [(0, facts["num_rows"] - 1)]:
        where = "every row has wrong elements" if facts["num_rows"] > 1 else "the only row is wrong"
    elif len(facts["row_ranges"]) == 1 and facts["row_ranges"][0][1] < facts["num_rows"] - 1:
        where = f"only rows {show(facts['row_ranges'])} of {facts['num_rows']} are wrong"
    elif len(facts["row_ranges"]) > 4:
        count = sum(last - first + 1 for first, last in facts["row_ranges"])
        where = f"{count} of {facts['num_rows']} rows are wrong, the first is row {first_row}"
    elif len(facts["row_ranges"]) > 1:
        where = f"wrong rows {show(facts['row_ranges'])} of {facts['num_rows']}"
    else:
        where = f"first wrong row {first_row}; rows before it agree"
    said.append(where)
    if len(facts["heads"]) < facts["num_heads"]:
        some = ", ".join(f"({b}, {h})" for b, h in facts["heads"][:6])
        more = f" and {len(facts['heads']) - 6} more" if len(facts["heads"]) > 6 else ""
        said.append(f"only (batch, head) {some}{more} of {facts['num_heads']}")
    if facts["columns"] and facts["columns"] != [(0, facts["num_columns"] - 1)] and facts["num_columns"] > 1:
        said.append(f"columns {show(facts['columns'])} of {facts['num_columns']}")
    if facts["nan"] or facts["inf"]:
        kinds = {"NaN": facts["nan"], "infinite": facts["inf"]}
        said.append(" and ".join(f"{count} {kind}" for kind, count in kinds.items() if count) + " values")
    at = ", ".join(map(str, facts["first"]))
    said.append(
        f"at ({at}) got {facts['first_got']:.6g}, expected {facts['first_expected']:.6g}: "
        f"off by {abs(facts['first_got'] - facts['first_expected']):.1e} where {facts['first_allowed']:.1e} is allowed"
    )
    return "; ".join(said) + "."


def show(ranges):
    """[(0, 3), (9, 9)] -> `0-3, 9`"""
    shown = [f"{a}-{b}" if a != b else f"{a}" for a, b in ranges[:4]]
    return ", ".join(shown) + (", ..." if len(ranges) > 4 else "")
