"""Measured weights -> facts in words: what the kernel gives, beside what it should; true whatever the cause is.

The first question is that with all scores equal: then a weight is how often a key counts over what is divided by. Where
this is right, the case's own scores tell the scale, whose K, and the factors between tiles.
"""

import itertools
import math
from dataclasses import replace

import torch

from grader.engine.cause import Measured
from grader.engine.compare_values import ranges
from grader.engine.locate import show
from grader.kinds.attention.case import Case
from grader.kinds.attention.known_mistakes import HEADS, ONLINE, POINTERS, RESCALE, SCALE, SOFTMAX, TAILS
from grader.kinds.attention.mask_mistakes import PHASES
from grader.kinds.attention.weight_rules import underflowing_rows, visible_by_rule
from grader.kinds.attention.weights import Weights, masks, scores
from grader.kinds.attention.words import EQUAL, agree, name_pairs, name_rows

EXACT = 1e-5  # how far a weight of float32 may be off, relative to it
COARSE = 2e-2  # and one of float16 or bfloat16, or of tf32 on a GPU
STRONG = 0.3  # of a visible key's weight: less is what a finite mask value leaves
DEEP = 60.0  # below the row's maximum a weight is too small to tell a score by
TILES = (128, 64, 32, 16)
SMALL = 1e-30
FEW_KEYS = 2e-3  # a sum that is off by less has not one key of some hundred too many
HIDDEN_SCORE = "what must a hidden score be, so that its exp is exactly 0?"
TF32 = 2e-3  # how far products of float32 may be off on a GPU
BOTH_SUMS = "when a tile is added, what are the old acc and row_sum multiplied by, and what is divided by row_sum?"
ROUNDED = {"float16": 2e-3, "bfloat16": 2e-2}  # how far off weights may be that were rounded to it on the way


def tell(weights: Weights, exact: float = EXACT) -> list[Measured]:
    """[Measured], the most basic first; empty where every weight is as it should be."""
    mask = masks(weights.case)
    if columns := unequal_columns(weights):
        return [columns]
    found = equal_scores(weights, mask, exact)
    again = [replace(fact, sentence=fact.sentence.replace(EQUAL, "In the same run, ")) for fact in found[1:]]
    return found[:1] + again or whose_v(weights, mask) or own_scores(weights, mask, exact)


# All scores are equal -------------------------------------------------------------------------------------------------


def unequal_columns(weights: Weights) -> Measured | None:
    """Where all columns of V are the same, those of the output must be."""
    o = weights.whose
    off = (o != o[..., :1]) & ~(o.isnan() & o[..., :1].isnan())
    off &= (o - o[..., :1]).abs().nan_to_num(1.0) > COARSE
    if not off.any():
        return None
    some = show(ranges(off.flatten(0, 2).any(0).nonzero().flatten().tolist()))
    sentence = f"With the same number in every column of V, columns {some} of your output differ from column 0."
    return Measured("column", sentence, "does every column of V reach the same column of the output?", POINTERS)


def equal_scores(weights: Weights, mask: torch.Tensor, exact: float) -> list[Measured]:
    """Facts about the head whose weights are most wrong where q is 0."""
    heads, mask = weights.equal.flatten(0, 1), mask.flatten(0, 1)
    right = mask / mask.sum(2, keepdim=True).clamp(min=1)
    off = (heads - right).abs().nan_to_num(1.0).clamp(max=1.0).sum((1, 2))
    at = int(off.argmax())
    batch, head = divmod(at, weights.case.Hq)
    found = facts_of_head(heads[at], mask[at], exact)
    found = [replace(f, shown=(batch, head, f.shown)) if f.shown is not None else f for f in found]
    found = [replace(f, lost=(batch, head, f.lost)) if f.lost is not None else f for f in found]
    if any(fact.kind == "mask" for fact in found) and (rule := visible_by_rule(heads[at] > 0, weights.case)):
        found = [rule, *sorted(found, key=lambda fact: fact.kind != "divisor")]
    wrong = (off > exact * mask.shape[1]).nonzero().flatten().tolist()
    if found and 0 < len(wrong) < len(heads):
        where = f" Batch {batch}, head {head}; {len(wrong)} of {len(heads)} heads are wrong."
        found[0] = replace(found[0], sentence=found[0].sentence + where)
    return found


def facts_of_head(w: torch.Tensor, mask: torch.Tensor, exact: float) -> list[Measured]:
    """Facts about the weights w (N, Nk) of one head where all scores are equal."""
    found, bad = [], ~w.isfinite().all(1)

    def tell(kind, said, question, section=PHASES, **more):
        found.append(Measured(kind, f"{EQUAL}{said}", question, section, **more))

    if bad.any():
        question = "where does the first come from: exp of a large number, -inf - (-inf), 0 / 0, or 0 * inf?"
        said = (
            f"Query {name_rows(bad)} of your output {agree(bad, 'is', 'are')} NaN or infinite, even where all scores "
        )
        found.append(Measured("nan", f"{said}are equal.", question, ONLINE))
    whole = ~bad[:, None]
    none = whole & (w == 0).all(1, keepdim=True) & mask.any(1, keepdim=True)
    if none.any():
        said = f"query {name_rows(none.flatten())} {agree(none, 'gives', 'give')} no key any weight."
        tell("nothing", said, "which keys does your loop reach for these rows?", lost=none & mask)
        whole = whole & ~none
    typical = torch.where((w > 0) & mask, w, math.nan).nanmedian(1, keepdim=True).values
    times, hidden = w / typical, (w.abs() > 0) & ~mask & whole
    strong, missing = hidden & ~(w.abs() <= STRONG * typical), (w == 0) & mask & whole
    double, faint = (times > 1.4) & mask & whole, hidden & ~strong
    if strong.any() and not (mask & ~missing & whole).any():
        said = "hidden keys alone get weight, and no visible one: the mask is turned round."
        tell("mask", said, "does your condition say which keys are hidden, or which are visible?")
    if strong.any():
        said = f"your code gives weight to hidden keys: {name_pairs(strong)}."
        tell("mask", said, "which keys may this query see, and which tile is masked?", shown=strong)
    if missing.any():
        said = f"your code gives no weight to visible keys: {name_pairs(missing)}."
        question = (
            "does the mask show these keys? Where a loop walks over keys: does it load them, and keep their part?"
        )
        tell("mask", said, question, lost=missing)
    if double.any():
        many = float(times[double].median())
        said = f"your code counts some keys {many:.3g} times as much as the others: {name_pairs(double)}."
        if abs(many - round(many)) < COARSE:
            question = "does a tile belong to two phases, or is a key past the end counted as the last one?"
            tell("double", said, question)
        else:
            question = "by which factor is each tile's part multiplied when it is added, in which base, and which "
            tell("rescale", said, f"{question}running number is the maximum, which the sum?", RESCALE)
    if faint.any():
        power = torch.log2(w.abs()[faint] / typical.expand_as(w)[faint]).median().item()
        said = f"Hidden keys still get 2^{power:.4g} of a visible key's weight ({name_pairs(faint)}): "
        found.append(Measured("finite", f"{said}a finite number where -inf was meant.", HIDDEN_SCORE, TAILS))
    found = found[1:] + found[:1] if bad.any() else found  # which keys count says more than that a row is NaN
    return found + check_sums(w, mask, typical, whole, exact, double)


def check_sums(w, mask, typical, whole, exact, double):
    """Facts about what the weights of a row add up to; first of rows in which the right keys have weight.

    What is divided by is told only where all weights of a row are off alike, and in all rows by one rule.
    """
    total, visible, found = w.sum(1), mask.sum(1), []
    off = ((total - 1).abs() > exact) & whole.flatten() & mask.any(1)
    uneven = ((w / typical - 1).abs() > 10 * exact) & mask & whole
    if off.any():
        alone = off & ((w != 0) == mask).all(1)
        off = alone if alone.any() else off
        row = int(off.nonzero()[0])
        more = f" ({int(off.sum())} rows are off)" if int(off.sum()) > 1 else ""
        said = f"{EQUAL}the weights of row {row} add up to {float(total[row]):.4g}, not to 1"
        if float((total - 1).abs()[off].max()) < FEW_KEYS:
            question = "which numbers are rounded to the input's dtype before they are added up?"
            return [Measured("precision", f"{said}{more}.", question, SOFTMAX)]
        alike = alone.any() and not double.any() and not uneven[off].any()
        if asked := alike and question_on_sum((visible / total)[off], visible[off]):
            count = f"{visible[row]} {'keys are' if visible[row] > 1 else 'key is'}"
            said += f": your code divides by {float(visible[row] / total[row]):.4g} where {count} visible"
        found = [Measured("divisor" if asked else "sum", f"{said}{more}.", asked or BOTH_SUMS, RESCALE)]
    return found


def question_on_sum(divisors: torch.Tensor, visible: torch.Tensor) -> str | None:
    """What is asked where the rows that are off are divided by 1, by as much too much, or by fewer keys; else None."""
    if len(divisors) > 1 and float((divisors - 1).abs().max()) < COARSE:
        return "is each part of the output divided by row_sum, and by the sum over all tiles?"
    rows = divisors / visible
    if any(float((rows - tile).abs().max()) < COARSE for tile in TILES):
        tall = round(float(rows[0]))
        return f"over which axis does row_sum add up: does each row get the sum of all {tall} rows of its tile?"
    more = divisors - visible
    if float(more.min()) > 0 and float((more - more[0]).abs().max()) < COARSE:
        every = " in every row" * (len(more) > 1)
        return f"what does row_sum hold beside the sums of the tiles: it is {float(more[0]):.3g} too large{every}?"
    if float(more.max()) < 0 and float((divisors - divisors.round()).abs().max()) < COARSE:
        return "does row_sum keep what the tiles before have added, or does it hold the last tile alone?"
    return None


def whose_v(weights: Weights, mask: torch.Tensor) -> list[Measured]:
    """Whose V a query head reads, where V is 1 + the number of its batch and kv head."""
    case, found = weights.case, weights.whose[..., 0]
    if (weights.without_v.abs().nan_to_num(0.0) > COARSE).any():
        said = "Where V is 0, your output is not: something else than V is added up."
        return [Measured("exchange", said, "which tensor is multiplied with the probabilities?", POINTERS)]
    got = found.masked_fill(~mask.any(-1), math.nan).nanmean(-1) - 1
    right = torch.arange(case.B)[:, None] * case.kv_heads + torch.arange(case.Hq) // (case.Hq // case.kv_heads)
    off = (got - right).abs() > COARSE
    if not off.any():
        return []
    batch, head = off.nonzero()[0].tolist()
    number, wanted = float(got[batch, head]), int(right[batch, head])
    read = f"V of {name_head(case, round(number))}" if abs(number - round(number)) < COARSE else "V of several heads"
    said = f"Query head {head} of batch {batch} reads {read}, not of {name_head(case, wanted)}."
    question = "which kv head belongs to this query head, and does V move with its batch?"
    return [Measured("v head", said, question, HEADS)]


def name_head(case: Case, number: int) -> str:
    return f"batch {number // case.kv_heads}, kv head {number % case.kv_heads}"


# The case's own scores ------------------------------------------------------------------------------------------------


def own_scores(weights: Weights, mask: torch.Tensor, exact: float) -> list[Measured]:
    """Facts about the first head whose weights do not follow its scores."""
    if lost := underflowing_rows(weights, mask):
        return [lost]
    case, group = weights.case, weights.case.Hq // weights.case.kv_heads
    for batch, head in itertools.product(range(case.B), range(case.Hq)):
        w, s = weights.own[batch, head], scores(weights, batch, head, batch, head // group)
        if fact := scores_of_head(weights, w, s, mask[batch, head], exact, batch, head):
            return [fact]
    return []


def scores_of_head(weights, w, s, mask, exact, batch, head):
    """The fact about one head, or None where its weights follow s (N, Nk) under the mask."""
    bad = ~w.isfinite().all(1)
    if bad.any():
        largest = float(s.masked_fill(~mask, -math.inf).max())
        said = f"Query {name_rows(bad)} of your output {agree(bad, 'is', 'are')} NaN or infinite. With q = 0 "
        said += f"no row is NaN: the size of the scores matters (the largest is {largest:.3g})."
        question = "is the largest score so far subtracted before every exp, and is it the right one?"
        return Measured("nan", said, question, SOFTMAX)
    below = s - s.masked_fill(~mask, -math.inf).amax(1, keepdim=True)
    use = mask & (w > SMALL) & (below > -DEEP)
    if int(use.sum()) < 6:
        return None
    slope, rest = fit(w, s, use)
    close = 5 * exact * max(1.0, float(s.abs()[use].max()))  # exp of a score is off by as much as the score is
    if rest < close and abs(slope - 1) < close / 2:
        total = w.sum(1)
        off = (total - 1).abs() > close
        if not off.any():
            return None
        row = int(off.nonzero()[0])
        said = f"With this case's scores, the weights of row {row} add up to {float(total[row]):.4g}, not to 1."
        empty = "are all exp of this row 0: which maximum is subtracted, and where does it start?"
        return Measured("sum", said, "is row_sum rescaled and added to as acc is?" if total[row] else empty, RESCALE)
    if rest < close and abs(slope) < exact:
        said = "All visible keys weigh alike, whatever their scores are."
        return Measured("scale", said, "do the scores reach exp, and does q reach the scores?", SCALE)
    if rest < close:
        said = f"Your scores are the right ones times {slope:.4g}."
        return Measured("scale", said, "what is multiplied into the scores, where, and how often?", SCALE)
    if found := other_heads(weights, w, use, close, batch, head) or between_tiles(w, s, use, close):
        return found
    dtype = next((name for name, most in ROUNDED.items() if rest < most), None)
    if dtype and abs(slope - 1) < COARSE and exact <= EXACT:  # else the input's dtype itself rounds as much
        said = f"In {weights.case.dtype} your weights are off by up to {rest:.1e} of their size, "
        said += f"as if some numbers were rounded to {dtype} before the end."
        return Measured("precision", said, "which numbers leave float32 before the end?", SOFTMAX)
    question = "which numbers does each score come from, and which maximum is subtracted before exp?"
    return Measured(
        "scores", f"The weights of batch {batch}, head {head} do not follow the scores q.k.", question, SOFTMAX
    )


def other_heads(weights, w, use, close, batch, head):
    """The fact that the weights follow the scores of another head's K or Q, or of several heads, or None."""
    case, group = weights.case, weights.case.Hq // weights.case.kv_heads
    for b, kv in itertools.product(range(case.B), range(case.kv_heads)):
        if (b, kv) != (batch, head // group) and fit(w, scores(weights, batch, head, b, kv), use)[1] < close:
            said = f"Query head {head} of batch {batch} reads K of {name_head(case, b * case.kv_heads + kv)}, not of "
            said += f"{name_head(case, batch * case.kv_heads + head // group)}."
            question = "which kv head belongs to this query head, and does K move with its batch?"
            return Measured("k head", said, question, HEADS)
    for other in range(case.Hq):
        if other != head and fit(w, scores(weights, batch, head, batch, head // group, q_head=other), use)[1] < close:
            said = f"Query head {head} of batch {batch} is computed from Q of head {other}."
            return Measured("q head", said, "does Q move with its head?", HEADS)
    members = range(head - head % group, head + 1)
    each = [scores(weights, batch, head, batch, head // group, q_head=member) for member in members]
    if len(each) > 1 and fit(w, torch.stack(each).logsumexp(0), use)[1] < close:
        said = f"Query head {head} of batch {batch} also has the sums of the heads before it in its group."
        return Measured("state", said, "what do row_max, row_sum and acc hold when a head begins?", HEADS)
    return None


def between_tiles(w, s, use, close):
    """The fact that weights are right within tiles and not between them, or None."""
    d = torch.where(use, torch.log(w.clamp(min=SMALL)) - s, math.nan)
    for tile in TILES:
        parts = d.split(tile, 1)
        centres = [part.nanmedian(1, keepdim=True).values for part in parts]
        apart = [(part - centre).abs().nan_to_num(0.0).max() for part, centre in zip(parts, centres, strict=True)]
        if len(parts) < 2 or float(max(apart)) >= close:
            continue
        steps = torch.cat(centres, 1)
        off = (steps - steps.nanmedian(1, keepdim=True).values).abs().nan_to_num(0.0).amax(1)
        row = int(off.argmax())
        known = steps[row][~steps[row].isnan()]
        factors = ", ".join(f"{math.exp(min(60.0, each)):.3g}" for each in (known - known[-1]).tolist()[:5])
        said = f"Within tiles of {tile} keys the weights are right, between tiles they are not: for row {row} by the "
        said += f"factors {factors}."
        question = "when the running maximum grows, what must happen to acc and row_sum, and by which factor?"
        return Measured("rescale", said, question, RESCALE)
    return None


def fit(w, s, use):
    """(the slope of log(w) over s, both around the mean of their row; the largest rest)."""
    count = use.sum(1, keepdim=True).clamp(min=1)

    def centred(x):
        x = torch.where(use, x, 0.0)
        return torch.where(use, x - x.sum(1, keepdim=True) / count, 0.0)

    log_w, s = centred(torch.log(w.clamp(min=SMALL))), centred(s)
    slope = float((log_w * s).sum() / (s * s).sum().clamp(min=SMALL))
    return slope, float((log_w - slope * s).abs().max())
