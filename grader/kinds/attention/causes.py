"""Facts -> the cause: the oracle is asked "what if" until one changed specification gives the student's output."""

import math
import re
import time
from collections.abc import Callable, Sequence

import torch

from grader.course.problem import Problem
from grader.course.tensors import Placed
from grader.kinds.attention import matcher, tile_visits
from grader.kinds.attention.case import Case
from grader.kinds.attention.known_mistakes import LSE, ONLINE, SCALE, AttentionSpec, KnownMistake
from grader.kinds.attention.oracle import Expected
from grader.result import Cause, mistake_pattern

MAX_TOKENS = 1024  # the oracle is asked hundreds of times over; longer sequences get the facts alone
SECONDS = 4.0  # of this thread's own time, for the questions of one case
WHICH_BASE = "in which base are your maximum and your sum?"
TWO_PARTS = "which two parts make log(sum(exp(score)))?"
WHICH_SIGN = "which sign has the maximum?"
ALL_TILES = "are the maximum and the sum those of all tiles?"
ADDED_ONCE = "the maximum is added after the logarithm: was it subtracted before exp?"
FOLDED = "what must be folded into the scale for exp2?"
LN_2 = math.log(2.0)
CLOSER = 0.1  # of the distance from the right lse: nearer than that to another one


def find(
    problem: Problem,
    case: Case,
    placed: Sequence[Placed],
    got: torch.Tensor,
    expected: Expected,
    mistakes: Callable,
    records: Sequence[dict] = (),
    only: frozenset[str] = frozenset(),
) -> list[Cause]:
    """Those that give this output within rounding: never a guess.

    An output that is all NaN, or all 0, tells nothing: too many mistakes end in it. Where no number is finite, only
    rounding is named: what overflows by itself does so by many mistakes.

    placed: q, k, v as inputs.make placed them. got: (B, Hq, Nq, D) in the kernel's dtype; expected: of oracle.expect.
    mistakes(problem, case, placed, spec, records, sizes, ...) -> the known mistakes to try.
    records: the trace's visits, where there is one: they tell the size of the tiles, and which were met.
    only: the kinds of mistake to try; empty for all.
    """
    if max(case.N, case.num_keys) > MAX_TOKENS or got.isnan().all() or not got.any():
        return []
    if nothing := find_rows_without_keys(got, expected.o, expected.allowed_o, expected.lse.isinf()):
        return [nothing]
    started, spec, bench = time.thread_time(), spec_of(case, placed), matcher.Matcher(got, expected)
    found, some_finite = [], bool(got.isfinite().any())
    for mistake in mistakes(problem, case, placed, spec, records, tile_visits.tile_sizes(records)):
        if time.thread_time() > started + SECONDS:
            return []  # half of the mistakes tried would leave half of the answers unknown
        if only and mistake_pattern(mistake.equals) not in only:
            continue
        if (mistake.rounding or some_finite) and bench.fits(mistake):
            found.append(mistake)
    return one_of_each_kind(found)


def find_rows_without_keys(
    got: torch.Tensor, right: torch.Tensor, allowed: torch.Tensor, nothing: torch.Tensor
) -> Cause | None:
    """The Cause where only rows that see no key are wrong, else None. nothing: (B, Hq, Nq), True for these rows."""
    wrong = ~((got.double() - right).abs() <= allowed) & (got.double() != right)
    if not nothing.any() or not wrong[nothing].any() or wrong[~nothing].any():
        return None
    if got[nothing].isnan().any():
        equals = "NaN in rows that see no key, and the right one in all others"
        question = "a row that has seen nothing has the maximum -inf and the sum 0: what is -inf - (-inf), and 0 / 0?"
    else:
        equals = "the right one, but for rows that see no key"
        question = "what has a row seen whose scores are all hidden: what are its maximum, its sum and its output?"
    return Cause(equals, question, ONLINE)


def one_of_each_kind(chosen: list[KnownMistake]) -> list[Cause]:
    """Causes; where several sizes of tile fit, the size is not known."""
    by_kind: dict[str, list[KnownMistake]] = {}
    for mistake in chosen:
        by_kind.setdefault(mistake_pattern(mistake.equals), []).append(mistake)
    found = []
    for fitting in by_kind.values():
        alike = [mistake for mistake in fitting if not mistake.general] or fitting
        equals = alike[0].equals if len(alike) == 1 else re.sub(r" \((in )?tiles of \d+[^)]*\)", "", alike[0].equals)
        found.append(Cause(equals, alike[0].question, alike[0].section, all(mistake.general for mistake in alike)))
    return found


def spec_of(case: Case, placed: Sequence[Placed]) -> AttentionSpec:
    """The AttentionSpec of a case."""
    q, k, v = (tensor.tensor for tensor in placed)
    batch, head = torch.arange(case.B)[:, None], torch.arange(case.Hq) // (case.Hq // case.kv_heads)
    right = torch.stack(torch.broadcast_tensors(batch, head), -1)
    seen = case.visibility.mask
    if not case.one_mask:
        seen = seen(*case.positions).expand(case.B, case.Hq, -1, -1)
    return AttentionSpec(q, k, v, right, right, seen, case.scale)


def every_pair(case: Case) -> torch.Tensor:
    """All (batch, query head), (B * Hq, 2)."""
    return torch.cartesian_prod(torch.arange(case.B), torch.arange(case.Hq))


def find_lse_causes(case: Case, placed: Sequence[Placed], got: torch.Tensor, expected: torch.Tensor) -> list[Cause]:
    """What an lse equals instead, where o is right. got, expected: (B, Hq, Nq)."""
    some = ~expected.isinf()  # rows that see a key
    if nothing := find_rows_without_keys(got, expected, 1e-3 * expected.abs().where(some, 0.0), ~some):
        return [nothing]
    q, k, _ = (tensor.tensor.double() for tensor in placed)
    group = case.Hq // case.kv_heads
    scores = q @ k.repeat_interleave(group, 1).mT
    hidden = ~case.visibility.mask(torch.arange(case.N), torch.arange(case.num_keys))
    scores = scores.masked_fill(hidden, -math.inf)
    raw_max, log_scale = scores.amax(-1), case.scale * LN_2
    row_max = raw_max * case.scale
    log_sum = expected - row_max
    unscaled = "one whose maximum is not scaled"
    alternatives = [
        ("the right one in base 2", WHICH_BASE, ONLINE, expected / LN_2),
        ("the right one times ln 2", WHICH_BASE, ONLINE, expected * LN_2),
        ("the maximum in base 2 plus the natural logarithm of the sum", WHICH_BASE, ONLINE, row_max / LN_2 + log_sum),
        ("the maximum plus the logarithm of the sum in base 2", WHICH_BASE, ONLINE, row_max + log_sum / LN_2),
        ("the logarithm of the sum alone, without the maximum", TWO_PARTS, LSE, log_sum),
        ("the logarithm of the sum less the maximum", WHICH_SIGN, LSE, log_sum - row_max),
        ("the maximum alone", TWO_PARTS, LSE, row_max),
        ("the maximum plus the sum, without a logarithm", TWO_PARTS, LSE, row_max + log_sum.exp()),
        (unscaled, "is the maximum one of the scaled scores?", LSE, raw_max + log_sum),
        ("the right one plus the maximum once more", ADDED_ONCE, LSE, expected + row_max),
        ("that of scores without a scale", "where does 1 / sqrt(D) go?", SCALE, scores.logsumexp(-1)),
        ("that of scores with log2(e) missing from their scale", FOLDED, SCALE, (scores * log_scale).logsumexp(-1)),
        ("that of scores scaled by 1 / D", "is the square root there?", SCALE, (scores / case.D).logsumexp(-1)),
        ("its own negative", WHICH_SIGN, LSE, -expected),
    ]
    if case.num_keys == case.N:
        over_queries = (scores * case.scale).logsumexp(-2)
        alternatives.append(("one over the queries", "which scores belong to one query?", LSE, over_queries))
    for tile in tile_visits.GUESSED_TILES:
        last = scores[..., (case.num_keys - 1) // tile * tile :] * case.scale
        alternatives.append((f"that of the last tile of {tile} keys alone", ALL_TILES, LSE, last.logsumexp(-1)))
    found = []
    for equals, question, section, lse in alternatives:
        near = torch.allclose(got.double()[some], lse[some], rtol=1e-4, atol=1e-4)
        if equals == unscaled and case.num_keys == 1:
            continue  # its score is the maximum: all that may be wrong about it is the same
        if near and not torch.allclose(lse[some], expected[some], rtol=1e-3):
            found.append(Cause(equals, question, section))
    return found or name_rounded_sum(case, got, expected, scores * case.scale)


def name_rounded_sum(case: Case, got: torch.Tensor, expected: torch.Tensor, scores: torch.Tensor) -> list[Cause]:
    """[Cause] where the lse is that of probabilities rounded to the input's dtype before they are added up."""
    row_max = scores.amax(-1, keepdim=True)
    p = (scores - row_max).exp().to(getattr(torch, case.dtype))
    some = ~expected.isinf()
    for log_sum in (p.double().sum(-1).log(), p.sum(-1).double().log(), p.sum(-1).log().double()):
        lse = (row_max.squeeze(-1) + log_sum)[some]
        off, rest = (lse - expected[some]).abs().max(), (got.double()[some] - lse).abs().max()
        if case.dtype != "float32" and rest < CLOSER * off:
            question = "what is rounded to the input's dtype before it is added up?"
            equals = f"that of probabilities rounded to {case.dtype} before their sum is taken"
            return [Cause(equals, question, LSE)]
    return []
