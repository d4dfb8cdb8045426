"""The known mistakes of a backward pass: the gradients with one step otherwise, in words and as the step."""

from types import SimpleNamespace

import torch

from grader.engine.mistakes import Mistake
from grader.kinds.attention.known_mistakes import HEADS
from grader.kinds.attention.masks import Visibility
from grader.kinds.backward.reference import STEPS, seen_of

SOFTMAX = "notebooks/08_backward.ipynb: Five products"
DELTA = "notebooks/08_backward.ipynb: One number for each query: delta"
LSE = "notebooks/08_backward.ipynb: Why lse is enough"
MASK = "notebooks/08_backward.ipynb: The mask from the key's side"
DQ, DK, DV = "dq", "dk", "dv"
DS = (DQ, DK)  # what is made of ds
ALL = (DQ, DK, DV)

LN_2 = 0.6931471805599453


WHAT_ROWS = "a row of p adds up to 1: what must be taken from dp so that a row of ds adds up to 0?"
WHOSE = "delta and lse belong to a query of a query head: which offsets lead there?"
WHICH_SCALE = "scores = scale * q k^T: which of the three gradients get the scale, and how often?"
WHICH_BASE = "lse is a natural logarithm, and exp2 takes base 2: what must be multiplied by log2(e)?"
WHICH_FACTORS = "write the shapes down: which two matrices give this gradient, and which of them is transposed?"
WHO_SEES = "which is the first query that sees this key, and which is the last?"
SINKS = "a sink is seen by every later query, however far: do the mask and the bounds of the loop both say so?"
GROUP = "dk and dv of a kv head are sums: over which query heads, and is each part added to what is there?"
ORDER = "in which order are the gradients returned, and stored?"
LOOP = "which of the two sums that the loop returns is dk's?"

WHEN = SimpleNamespace(
    window=lambda case: case.window is not None and case.window < case.N,
    sinks=lambda case: bool(case.sinks),
    shares=lambda case: case.Hq > case.kv_heads,
    alone=lambda case: case.Hq == case.kv_heads,
    kv_heads=lambda case: case.kv_heads > 1,
    grouped=lambda case: case.Hq > case.kv_heads > 1,
    heads=lambda case: case.Hq > 1,
    batches=lambda case: case.B > 1,
    causal=lambda case: case.causal,
    not_causal=lambda case: not case.causal,
)


def about(ask, read, outputs, *mistakes):
    """Mistakes of these outputs with one question and section: (words, changes), and its own `when`."""
    return tuple(
        Mistake(f"{{of}} {words}", ask, read, changes, *when, outputs=outputs) for words, changes, *when in mistakes
    )


def masked_by(visibility):
    """{step} with another Visibility, made from the case's own."""
    return {"seen": lambda x: seen_of(x.case, x.q.device, visibility(x.case))}


def window_of(case):
    return case.window or case.N


def by_age(rule):
    """{step} with pairs seen where rule(age, window, key is a sink)."""

    def seen(x):
        position = torch.arange(x.case.N, device=x.q.device)
        age = position[:, None] - position[None, :]
        return rule(age, window_of(x.case), (position < (x.case.sinks or 0))[None, :])

    return {"seen": seen}


def raw(tensor, x):
    """k or v (B, Hkv, N, D)."""
    return tensor[:, :: x.group]


def delta(of):
    return {"delta": of}


def own_delta(x):
    return (x.do * x.o).sum(-1)


def ds(of):
    return {"ds": of}


def exponent(of):
    return {"exponent": of}


def kv_head_of(x):
    return torch.arange(x.q.shape[1]) // x.group


def of_first(tensor, dim):
    """Index 0 of a dim for all of it."""
    return tensor.narrow(dim, 0, 1).expand_as(tensor)


FACTORS = (
    ("missing", lambda x: 1.0), ("twice", lambda x: x.scale**2),
    ("1 / D in place of 1 / sqrt(D)", lambda x: 1.0 / x.q.shape[-1]),
    ("in base 2, times log2(e)", lambda x: x.scale / LN_2), ("times ln 2", lambda x: x.scale * LN_2),
)  # fmt: skip

EVERY = (
    *about(WHAT_ROWS, DELTA, DS,
        ("without delta: ds = p * dp", ds(lambda x: x.p * x.dp)),
        ("with delta added, not subtracted", ds(lambda x: x.p * (x.dp + x.delta[..., None]))),
        ("with delta subtracted after the product: ds = p * dp - delta",
         ds(lambda x: torch.where(x.seen, x.p * x.dp - x.delta[..., None], 0.0))),
        ("with delta subtracted after the product: ds = p * dp - delta",
         ds(lambda x: x.p * x.dp - x.delta[..., None]), WHEN.causal),
        ("with delta the sum of do alone", delta(lambda x: x.do.sum(-1))),
        ("with delta the sum of o alone", delta(lambda x: x.o.sum(-1))),
        ("with delta the sum of o * o", delta(lambda x: (x.o * x.o).sum(-1))),
        ("with delta the largest of do * o, not their sum", delta(lambda x: (x.do * x.o).amax(-1))),
        ("with delta the mean over the head dim, not the sum", delta(lambda x: (x.do * x.o).mean(-1)))),
    *about(WHOSE, DELTA, DS,
        ("with the delta of head 0 for every head", delta(lambda x: of_first(own_delta(x), 1)), WHEN.heads),
        ("with the delta of the kv head's number, not of the query head's",
         delta(lambda x: own_delta(x)[:, kv_head_of(x)]), WHEN.shares),
        ("with the delta of batch 0 for every batch", delta(lambda x: of_first(own_delta(x), 0)), WHEN.batches)),
    # scale
    *(mistake for name, step, product in (
        (DQ, "dq", lambda x: x.ds @ x.k), (DK, "dk_of_head", lambda x: x.ds.mT @ x.q),
    ) for mistake in about(WHICH_SCALE, SOFTMAX, (name,), *(
        (f"with its scale {words}", {step: lambda x, product=product, factor=factor: product(x) * factor(x)})
        for words, factor in FACTORS
    ))),
    *about(WHICH_SCALE, SOFTMAX, (DV,),
        ("with a scale, which belongs to dq and dk alone", {"dv_of_head": lambda x: x.p.mT @ x.do * x.scale})),
    *about(WHICH_SCALE, SOFTMAX, ALL,
        ("with scores that are not scaled", {"score_scale": lambda x: 1.0}),
        ("with scores scaled twice", {"score_scale": lambda x: x.scale**2}),
        ("with scores divided by D, not by its root", {"score_scale": lambda x: 1.0 / x.q.shape[-1]}),
        ("with scores and gradient both scaled by 1 / D",
         {"score_scale": lambda x: 1.0 / x.q.shape[-1], "dq": lambda x: x.ds @ x.k / x.q.shape[-1],
          "dk_of_head": lambda x: x.ds.mT @ x.q / x.q.shape[-1]})),
    # lse, and the base
    *about(WHICH_BASE, LSE, ALL,
        ("with p not normalised: lse is left out", exponent(lambda x: x.scores)),
        ("with lse added, not subtracted", exponent(lambda x: x.scores + x.lse[..., None])),
        ("with lse not turned to base 2", exponent(lambda x: x.scores - x.lse[..., None] * LN_2)),
        ("with lse times ln 2, not log2(e)", exponent(lambda x: x.scores - x.lse[..., None] * LN_2**2)),
        ("with lse times log2(e) twice", exponent(lambda x: x.scores - x.lse[..., None] / LN_2)),
        ("with scores not turned to base 2", exponent(lambda x: x.scores * LN_2 - x.lse[..., None])),
        ("with scores and lse both in base e under exp2", exponent(lambda x: (x.scores - x.lse[..., None]) * LN_2)),
        ("with exp where scores are in base 2", exponent(lambda x: (x.scores - x.lse[..., None]) / LN_2)),
        ("with exp, scores in base 2, and lse natural", exponent(lambda x: x.scores / LN_2 - x.lse[..., None])),
        ("with lse subtracted before the scale", exponent(lambda x: x.scores - x.lse[..., None] * x.scale)),
        ("with the row's largest score subtracted in place of lse: p is not normalised",
         exponent(lambda x: x.scores - x.scores.masked_fill(~x.seen, -torch.inf).amax(-1, keepdim=True)))),
    *about(WHOSE, LSE, ALL,
        ("with the lse of the key's position, not of the query's", exponent(lambda x: x.scores - x.lse[..., None, :])),
        ("with the lse of head 0 for every head", {"lse": lambda x: of_first(x.lse, 1)}, WHEN.heads),
        ("with the lse of the kv head's number, not of the query head's",
         {"lse": lambda x: x.lse[:, kv_head_of(x)]}, WHEN.shares),
        ("with the lse of another head, the next one", {"lse": lambda x: x.lse.roll(-1, 1)}, WHEN.heads),
        ("with the lse of batch 0 for every batch", {"lse": lambda x: of_first(x.lse, 0)}, WHEN.batches)),
    # the mask
    *about(WHO_SEES, MASK, ALL,
        ("without any mask", masked_by(lambda case: Visibility()), WHEN.causal),
        ("under a causal mask alone, without the window", masked_by(lambda case: Visibility(True)), WHEN.window),
        ("with a window that is one too long",
         by_age(lambda age, window, sink: (age >= 0) & ((age <= window) | sink)), WHEN.window),
        ("with a window that is one too short",
         by_age(lambda age, window, sink: (age >= 0) & ((age < window - 1) | sink)), WHEN.window),
        ("with a window that hides nothing of the future",
         by_age(lambda age, window, sink: (age < window) | sink), WHEN.causal),
        ("under the transposed causal mask: keys see queries",
         by_age(lambda age, window, sink: (age <= 0) & (-age < window)), WHEN.causal),
        ("without the diagonal: a query does not see its own key",
         by_age(lambda age, window, sink: (age > 0) & ((age < window) | sink)), WHEN.causal),
        ("with one key of the future seen by each query",
         by_age(lambda age, window, sink: (age >= -1) & ((age < window) | sink)), WHEN.causal),
        ("under a causal mask, though is_causal is False", masked_by(lambda case: Visibility(True)), WHEN.not_causal)),
    *about(SINKS, MASK, ALL,
        ("without the sinks", by_age(lambda age, window, sink: (age >= 0) & (age < window)), WHEN.sinks),
        ("with one sink more",
         masked_by(lambda case: Visibility(True, window_of(case), (case.sinks or 0) + 1)), WHEN.window),
        ("with sinks that earlier queries see too",
         by_age(lambda age, window, sink: (age >= 0) & (age < window) | sink), WHEN.sinks)),
    # heads
    *about(GROUP, HEADS, (DK, DV),
        ("of the first query head of each group alone",
         {"dk": lambda x: x.dk_of_head[:, :: x.group], "dv": lambda x: x.dv_of_head[:, :: x.group]}, WHEN.shares),
        ("of the last query head of each group alone",
         {"dk": lambda x: x.dk_of_head[:, x.group - 1 :: x.group],
          "dv": lambda x: x.dv_of_head[:, x.group - 1 :: x.group]}, WHEN.shares),
        ("of the first query head of each group, once for each of its heads",
         {"dk": lambda x: x.dk_of_head[:, :: x.group] * x.group,
          "dv": lambda x: x.dv_of_head[:, :: x.group] * x.group}, WHEN.shares)),
    *about(GROUP, HEADS, ALL,
        ("with query heads given to kv heads by h % Hkv, not h // group",
         {"k": lambda x: raw(x.k, x).repeat(1, x.group, 1, 1), "v": lambda x: raw(x.v, x).repeat(1, x.group, 1, 1),
          "dk": lambda x: x.dk_of_head.unflatten(1, (x.group, -1)).sum(1),
          "dv": lambda x: x.dv_of_head.unflatten(1, (x.group, -1)).sum(1)}, WHEN.grouped),
        ("with K and V of kv head 0 for every head",
         {"k": lambda x: of_first(x.k, 1), "v": lambda x: of_first(x.v, 1)}, WHEN.kv_heads)),
    *(mistake for said, name, outputs in (
        ("q", "q", ALL), ("K", "k", ALL), ("V", "v", DS), ("do", "do", ALL), ("o", "o", DS),
    ) for mistake in about(WHOSE, HEADS, outputs, (
        f"with {said} of batch 0 for every batch", {name: lambda x, name=name: of_first(getattr(x, name), 0)},
        WHEN.batches,
    ))),
    *about(WHOSE, HEADS, ALL, ("with do of batch 0 for every batch, but its own delta",
        {"dp": lambda x: of_first(x.do, 0) @ x.v.mT, "dv_of_head": lambda x: x.p.mT @ of_first(x.do, 0)},
        WHEN.batches)),
    # which matrices
    *about(WHICH_FACTORS, SOFTMAX, DS,
        ("from p, not from ds", {"dq": lambda x: x.p @ x.k * x.scale, "dk_of_head": lambda x: x.p.mT @ x.q * x.scale}),
        ("with ds = dp - delta, without p", ds(lambda x: torch.where(x.seen, x.dp - x.delta[..., None], 0.0))),
        ("with ds = p * (1 - p) * dp, the derivative of a sigmoid", ds(lambda x: x.p * (1 - x.p) * x.dp)),
        ("with its sign turned", ds(lambda x: x.p * (x.delta[..., None] - x.dp))),
        ("with dp from o in place of do", {"dp": lambda x: x.o @ x.v.mT}),
        ("with dp from q in place of do", {"dp": lambda x: x.q @ x.v.mT}),
        ("with dp from K in place of V", {"dp": lambda x: x.do @ x.k.mT})),
    *about(WHICH_FACTORS, SOFTMAX, (DV,),
        ("from ds, not from p", {"dv_of_head": lambda x: x.ds.mT @ x.do}),
        ("with o in place of do", {"dv_of_head": lambda x: x.p.mT @ x.o}),
        ("with q in place of do", {"dv_of_head": lambda x: x.p.mT @ x.q})),
    *about(WHICH_FACTORS, SOFTMAX, (DK,),
        ("with do in place of q", {"dk_of_head": lambda x: x.ds.mT @ x.do * x.scale})),
    *about(WHICH_FACTORS, SOFTMAX, (DQ,),
        ("with V in place of K", {"dq": lambda x: x.ds @ x.v * x.scale})),
    *about(ORDER, SOFTMAX, (DK, DV),
        ("with the values of another gradient", {DK: STEPS[DV], DV: STEPS[DK]})),
    *about(ORDER, SOFTMAX, (DQ, DK),
        ("with the values of another gradient", {DQ: STEPS[DK], DK: STEPS[DQ]}, WHEN.alone)),
    *about(ORDER, SOFTMAX, (DQ, DV),
        ("with the values of another gradient", {DQ: STEPS[DV], DV: STEPS[DQ]}, WHEN.alone)),
    *about(LOOP, SOFTMAX, (DK, DV), ("exchanged before the scale",
        {"dk_of_head": lambda x: x.p.mT @ x.do * x.scale, "dv_of_head": lambda x: x.ds.mT @ x.q})),
)  # fmt: skip
