"""Facts -> the cause: the oracle is asked "what if" until one changed question gives the student's output."""

import itertools
import math
import re
import time
from dataclasses import dataclass, fields, replace

import torch

from grader import suspect_masks, suspects
from grader.suspects import GUESSED_TILES, ONLINE, SCALE, SOFTMAX, Question

MAX_TOKENS = 1024  # the oracle is asked hundreds of times over; longer sequences get the facts alone
SECONDS = 4.0  # of this thread's own time, for the questions of one case
EXPLAINED = 0.25  # what a rounding mistake may leave unexplained of the error, as a ratio of norms
NAMED = 4  # causes in one sentence
NEARLY_ALL = 0.97  # of the elements must agree where float32 overflows: the threshold itself is fuzzy


@dataclass(frozen=True)
class Cause:
    """What the output equals, the question that leads to the fix, and the notebook section to read."""

    equals: str
    question: str
    section: str

    @property
    def kind(self):
        """The same mistake in another case, where its numbers are others."""
        return kind_of(self.equals)


def kind_of(equals):
    return re.sub(r"\d+", "#", re.sub(r" \((in )?tiles of \d+[^)]*\)", "", equals))


def causes(problem, case, placed, got, expected, records=()):
    """Every Cause that gives this output within rounding; empty where none does: never a guess.

    placed: q, k, v as inputs.make placed them. got: (B, Hq, Nq, D) in the kernel's dtype; expected: of oracle.expect.
    records: the trace's visits, where there is one: they tell the size of the tiles, and which were met.
    """
    if max(case.N, case.num_keys) > MAX_TOKENS:
        return []
    deadline = time.thread_time() + SECONDS
    asked = question_of(case, placed)
    judge = Judge(got, expected)
    found, tried = [], []
    for suspect in all_suspects(problem, case, placed, asked, records, tile_sizes(records)):
        if time.thread_time() > deadline:
            return []  # half the questions asked would leave half the answers unknown
        tried.append(suspect)
        if judge.fits(suspect):
            found.append(suspect)
    specific = [suspect for suspect in found if not suspect.general]
    return one_of_each_kind(specific or found or two_at_once(tried, asked, judge, deadline))


def one_of_each_kind(chosen):
    """Causes; where several sizes of tile fit, the size is not known."""
    by_kind = {}
    for suspect in chosen:
        by_kind.setdefault(kind_of(suspect.equals), []).append(suspect)
    found = []
    for alike in by_kind.values():
        equals = alike[0].equals if len(alike) == 1 else re.sub(r" \((in )?tiles of \d+[^)]*\)", "", alike[0].equals)
        found.append(Cause(equals, alike[0].question, alike[0].section))
    return found


def question_of(case, placed):
    q, k, v = (tensor.tensor for tensor in placed)
    batch, head = torch.arange(case.B)[:, None], torch.arange(case.Hq) // (case.Hq // case.kv_heads)
    right = torch.stack(torch.broadcast_tensors(batch, head), -1)
    return Question(q, k, v, right, right, case.visibility.mask, 1.0 / math.sqrt(case.D))


def all_suspects(problem, case, placed, asked, records, sizes):
    """Every suspect of the catalogue that makes sense for this case.

    sizes: [(BLOCK_Q, BLOCK_K)] of the kernel's tiles; empty where they must be guessed.
    """
    yield from suspects.scales(asked)
    yield from suspects.heads_and_batches(asked, case)
    yield from suspects.strides(asked, placed)
    yield from suspects.whole_softmax(asked)
    yield from suspects.half_scores(asked)
    visits = visits_of(case, records)
    if case.causal:
        yield from suspect_masks.by_position(asked, case)
        guesses = itertools.product(GUESSED_TILES, GUESSED_TILES) if problem.tiled else ()
        for BLOCK_Q, BLOCK_K in sizes or guesses:
            yield from suspect_masks.by_tile(asked, case, BLOCK_Q, BLOCK_K, known=bool(sizes))
        if visits is not None:
            yield from suspect_masks.by_visits(asked, case, visits)
    complete = visits is not None and bool((visits > 0)[..., case.visibility.mask(*positions(case))].all())
    for BLOCK_Q, BLOCK_K in sizes or [(tile, tile) for tile in GUESSED_TILES if problem.tiled]:
        met = replace(asked, met=visits > 0 if complete else tiles_with_keys(case, BLOCK_Q, BLOCK_K))
        if not case.causal:
            yield from suspects.tails(asked, BLOCK_K)
        yield from suspects.online_softmax(met, BLOCK_K, BLOCK_Q, half_p=problem.uses_triton)
        yield from suspects.half_precision(met, BLOCK_K)


def positions(case):
    return torch.arange(case.N), torch.arange(case.num_keys)


def tile_sizes(records):
    """[(BLOCK_Q, BLOCK_K)] as the trace saw them; empty without one."""
    if not any(record["tiles"] for record in records):
        return []
    rows = max(record["q"][1] - record["q"][0] + 1 for record in records)
    return [(rows, max(record["span"] for record in records))]


def visits_of(case, records):
    """How often each query's tile met each key's tile, (B, Hq, N, Nk); None where the trace does not tell for all."""
    visits = torch.zeros(case.B, case.Hq, case.N, case.num_keys, dtype=torch.long)
    covered = torch.zeros(case.B, case.Hq, dtype=torch.bool)
    for record in records:
        covered[record["batch"], record["head"]] = True
        rows = visits[record["batch"], record["head"], record["q"][0] : record["q"][1] + 1]
        for first, last in record["tiles"]:
            rows[:, first : last + 1] += 1
    return visits if covered.all() else None


def tiles_with_keys(case, BLOCK_Q, BLOCK_K):
    """The tiles that hold a visible pair, (B, Hq, N, Nk): what a kernel that skips the others meets."""
    seen = case.visibility.mask(*positions(case))
    padded = torch.nn.functional.pad(seen, (0, -case.num_keys % BLOCK_K, 0, -case.N % BLOCK_Q))
    tiles = padded.unflatten(1, (-1, BLOCK_K)).unflatten(0, (-1, BLOCK_Q)).any(3).any(1)
    met = tiles.repeat_interleave(BLOCK_Q, 0).repeat_interleave(BLOCK_K, 1)[: case.N, : case.num_keys]
    return met.expand(case.B, case.Hq, -1, -1)


def every_pair(case):
    """All (batch, query head), (B * Hq, 2)."""
    return torch.cartesian_prod(torch.arange(case.B), torch.arange(case.Hq))


class Judge:
    """Whether a suspect gives the student's output: first in the head that is most wrong, then in all of them."""

    def __init__(self, got, expected):
        self.got, self.expected = got, expected
        wrong = ~((got.double() - expected.o).abs() <= expected.allowed_o)
        self.everywhere = torch.cartesian_prod(torch.arange(got.shape[0]), torch.arange(got.shape[1]))
        most = wrong.flatten(2).sum(2).flatten().argmax()
        self.probe = self.everywhere[most : most + 1]

    def fits(self, suspect):
        return self.agrees(suspect, self.probe) and self.agrees(suspect, self.everywhere)

    def agrees(self, suspect, pairs):
        """True where the output of these pairs is the suspect's, and not the right one."""
        batch, head = pairs.unbind(1)
        o, size = suspect.asked.answer(pairs)
        got, right = self.got[batch, head].double(), self.expected.o[batch, head]
        allowed = self.expected.allowed_o[batch, head]
        o = o.to(self.got.dtype).double()  # what overflows the output's dtype does so here
        wrong = ~((got - right).abs() <= allowed)
        if not (wrong & ~((o - right).abs() <= allowed)).any():
            return False
        alike = (got == o) | (o.isnan() & (got.isnan() | (got == 0)))  # 0 / 0, or its guarded twin
        if suspect.rounding:
            finite = got.isfinite() & o.isfinite()
            if not (alike | finite).float().mean() >= NEARLY_ALL:
                return False
            left, error = (got - o)[wrong & finite], (got - right)[wrong & finite]
            return bool(left.norm() <= EXPLAINED * error.norm())
        near = alike | (o.isfinite() & ((got - o).abs() <= 2 * self.expected.relative * size + 1e-6))
        if o.isfinite().all():
            return bool(near.all())
        return bool(near.float().mean() >= NEARLY_ALL and near[wrong].float().mean() >= NEARLY_ALL)


def two_at_once(tried, asked, judge, deadline):
    """Pairs of suspects of different kinds, both at work; the first pair that fits."""
    simple = [suspect for suspect in tried if suspect.kind and not suspect.general]
    for first, second in itertools.combinations(simple, 2):
        if first.kind == second.kind:
            continue
        if time.thread_time() > deadline:
            return []
        changed = {
            field.name: getattr(second.asked, field.name)
            for field in fields(Question)
            if getattr(second.asked, field.name) is not getattr(asked, field.name)
        }
        both = replace(
            first,
            equals=f"{first.equals}, together with {second.equals}",
            question=f"{first.question} And: {second.question}",
            asked=replace(first.asked, **changed),
        )
        if judge.fits(both):
            return [both]
    return []


def lse_causes(case, placed, got, expected):
    """What an lse equals instead, where o is right. got, expected: (B, Hq, Nq)."""
    q, k, _ = (tensor.tensor.double() for tensor in placed)
    group = case.Hq // case.kv_heads
    scores = q @ k.repeat_interleave(group, 1).mT
    hidden = ~case.visibility.mask(torch.arange(case.N), torch.arange(case.num_keys))
    scores = scores.masked_fill(hidden, -math.inf)
    raw_max = scores.amax(-1)
    row_max, ln2 = raw_max / math.sqrt(case.D), math.log(2.0)
    log_sum = expected - row_max
    base = "in which base are your maximum and your sum?"
    found = []
    both = "which two parts make log(sum(exp(score)))?"
    for equals, question, section, lse in (
        ("the right one in base 2", base, ONLINE, expected / ln2),
        ("the right one times ln 2", base, ONLINE, expected * ln2),
        ("the maximum in base 2 plus the natural logarithm of the sum", base, ONLINE, row_max / ln2 + log_sum),
        ("the maximum plus the logarithm of the sum in base 2", base, ONLINE, row_max + log_sum / ln2),
        ("the logarithm of the sum alone, without the maximum", both, SOFTMAX, log_sum),
        ("the maximum alone", both, SOFTMAX, row_max),
        ("the maximum plus the sum, without a logarithm", both, SOFTMAX, row_max + log_sum.exp()),
        ("one whose maximum is not scaled", "is the maximum one of the scaled scores?", SOFTMAX, raw_max + log_sum),
        (
            "the right one plus the maximum once more",
            "the maximum is added after the logarithm: was it subtracted before exp?",
            SOFTMAX,
            expected + row_max,
        ),
        ("that of scores without a scale", "where does 1 / sqrt(D) go?", SCALE, scores.logsumexp(-1)),
        ("that of scores scaled by 1 / D", "is the square root there?", SCALE, (scores / case.D).logsumexp(-1)),
        ("its own negative", "which sign has the maximum?", SOFTMAX, -expected),
    ):
        if torch.allclose(got.double(), lse, rtol=1e-4, atol=1e-4) and not torch.allclose(lse, expected, rtol=1e-3):
            found.append(Cause(equals, question, section))
    return found


def say(found, what="output"):
    """`Your output equals ..., and also ....`, or an empty string."""
    if not found:
        return ""
    named = ", and also ".join(cause.equals for cause in found[:NAMED])
    more = f", and {len(found) - NAMED} more mistakes of which this case shows no difference" * (len(found) > NAMED)
    return f"Your {what} equals {named}{more}."
