"""The known mistakes of a backward pass: the gradients with one step otherwise, in words and as the step.

A mistake stands in the kernel of dq, in the kernel of dk and dv, or in both: `causes` tries it on each side.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from grader.kinds.attention.known_mistakes import HEADS
from grader.kinds.attention.masks import Visibility
from grader.kinds.backward import gradients

SOFTMAX = "notebooks/08_backward.ipynb: Five products"
DELTA = "notebooks/08_backward.ipynb: One number for each query: delta"
LSE = "notebooks/08_backward.ipynb: Why lse is enough"
MASK = "notebooks/08_backward.ipynb: The mask from the key's side"
DQ, DK, DV = "dq", "dk", "dv"
DS = (DQ, DK)  # what is made of ds
ALL = (DQ, DK, DV)

LN_2 = 0.6931471805599453


@dataclass(frozen=True)
class Mistake:
    """words: how the gradients named before are made. touches: those that it changes. changes: {step of gradients.STEPS
    or input: function of x}. applies(case): whether it makes a difference there."""

    words: str
    question: str
    section: str
    touches: tuple[str, ...]
    changes: dict
    applies: Callable = lambda case: True


def masked_by(visibility):
    """{step} with another Visibility, made from the case's own."""
    return {"seen": lambda x: gradients.seen_of(x.case, x.q.device, visibility(x.case))}


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


def has_window(case):
    return case.window is not None and case.window < case.N


def has_sinks(case):
    return bool(case.sinks)


def shares(case):
    return case.Hq > case.kv_heads


def several_heads(case):
    return case.Hq > 1


def several_batches(case):
    return case.B > 1


def is_causal(case):
    return case.causal


WHAT_ROWS = "a row of p adds up to 1: what must be taken from dp so that a row of ds adds up to 0?"
WHOSE = "delta and lse belong to a query of a query head: which offsets lead there?"
WHICH_SCALE = "scores = scale * q k^T: which of the three gradients get the scale, and how often?"
WHICH_BASE = "lse is a natural logarithm, and exp2 takes base 2: what must be multiplied by log2(e)?"
WHICH_FACTORS = "write the shapes down: which two matrices give this gradient, and which of them is transposed?"
WHO_SEES = "which is the first query that sees this key, and which is the last?"
SINKS = "a sink is seen by every later query, however far: do the mask and the bounds of the loop both say so?"
GROUP = "dk and dv of a kv head are sums: over which query heads, and is each part added to what is there?"

EVERY = (
    # delta
    Mistake("without delta: ds = p * dp", WHAT_ROWS, DELTA, DS, {"ds": lambda x: x.p * x.dp}),
    Mistake("with delta added, not subtracted", WHAT_ROWS, DELTA, DS,
            {"ds": lambda x: x.p * (x.dp + x.delta[..., None])}),
    Mistake("with delta subtracted after the product: ds = p * dp - delta", WHAT_ROWS, DELTA, DS,
            {"ds": lambda x: torch.where(x.seen, x.p * x.dp - x.delta[..., None], 0.0)}),
    Mistake("with delta subtracted after the product: ds = p * dp - delta", WHAT_ROWS, DELTA, DS,
            {"ds": lambda x: x.p * x.dp - x.delta[..., None]}, is_causal),
    Mistake("with delta the product of the sums of do and of o", WHAT_ROWS, DELTA, DS,
            {"delta": lambda x: x.do.sum(-1) * x.o.sum(-1)}),
    Mistake("with delta the sum of p, not of do * o", WHAT_ROWS, DELTA, DS, {"delta": lambda x: x.p.sum(-1)}),
    Mistake("with delta the sum of do alone", WHAT_ROWS, DELTA, DS, {"delta": lambda x: x.do.sum(-1)}),
    Mistake("with delta the sum of o alone", WHAT_ROWS, DELTA, DS, {"delta": lambda x: x.o.sum(-1)}),
    Mistake("with delta the sum of dp, not weighted by p", WHAT_ROWS, DELTA, DS,
            {"delta": lambda x: torch.where(x.seen, x.dp, 0.0).sum(-1)}),
    Mistake("with delta the sum of o * o", WHAT_ROWS, DELTA, DS, {"delta": lambda x: (x.o * x.o).sum(-1)}),
    Mistake("with delta the sum of do * do", WHAT_ROWS, DELTA, DS, {"delta": lambda x: (x.do * x.do).sum(-1)}),
    Mistake("with delta the sum of q * o", WHAT_ROWS, DELTA, DS, {"delta": lambda x: (x.q * x.o).sum(-1)}),
    Mistake("with delta the sum of do * q", WHAT_ROWS, DELTA, DS, {"delta": lambda x: (x.do * x.q).sum(-1)}),
    Mistake("with delta the largest of do * o, not their sum", WHAT_ROWS, DELTA, DS,
            {"delta": lambda x: (x.do * x.o).amax(-1)}),
    Mistake("with delta times the scale", WHAT_ROWS, DELTA, DS, {"delta": lambda x: (x.do * x.o).sum(-1) * x.scale}),
    Mistake("with delta the mean over the head dim, not the sum", WHAT_ROWS, DELTA, DS,
            {"delta": lambda x: (x.do * x.o).mean(-1)}),
    Mistake("with the delta of the key's position, not of the query's", WHOSE, DELTA, DS,
            {"ds": lambda x: x.p * (x.dp - x.delta[..., None, :])}),
    Mistake("with the delta of head 0 for every head", WHOSE, DELTA, DS,
            {"delta": lambda x: (x.do * x.o).sum(-1)[:, :1].expand(x.q.shape[:3])}, several_heads),
    Mistake("with the delta of the kv head's number, not of the query head's", WHOSE, DELTA, DS,
            {"delta": lambda x: (x.do * x.o).sum(-1)[:, torch.arange(x.q.shape[1]) // x.group]}, shares),
    Mistake("with the delta of another head, the next one", WHOSE, DELTA, DS,
            {"delta": lambda x: (x.do * x.o).sum(-1).roll(-1, 1)}, several_heads),
    Mistake("with the delta of batch 0 for every batch", WHOSE, DELTA, DS,
            {"delta": lambda x: (x.do * x.o).sum(-1)[:1].expand(x.q.shape[:3])}, several_batches),
    Mistake("with the delta of the next query", WHOSE, DELTA, DS,
            {"delta": lambda x: torch.nn.functional.pad((x.do * x.o).sum(-1)[..., 1:], (0, 1))}),
    # scale
    *(
        Mistake(f"with its scale {words}", WHICH_SCALE, SOFTMAX, (name,), {step: change})
        for name, step, product in (
            (DQ, "dq", lambda x: x.ds @ x.k), (DK, "dk_of_head", lambda x: x.ds.mT @ x.q),
        )
        for words, change in (
            ("missing", product),
            ("twice", lambda x, product=product: product(x) * x.scale**2),
            ("upside down: times sqrt(D)", lambda x, product=product: product(x) / x.scale),
            ("1 / D in place of 1 / sqrt(D)", lambda x, product=product: product(x) / x.q.shape[-1]),
            ("in base 2, times log2(e)", lambda x, product=product: product(x) * x.scale / LN_2),
            ("times ln 2", lambda x, product=product: product(x) * x.scale * LN_2),
        )
    ),
    Mistake("with a scale, which belongs to dq and dk alone", WHICH_SCALE, SOFTMAX, (DV,),
            {"dv_of_head": lambda x: x.p.mT @ x.do * x.scale}),
    Mistake("with scores that are not scaled", WHICH_SCALE, SOFTMAX, ALL, {"score_scale": lambda x: 1.0}),
    Mistake("with scores scaled twice", WHICH_SCALE, SOFTMAX, ALL, {"score_scale": lambda x: x.scale**2}),
    Mistake("with scores divided by D, not by its root", WHICH_SCALE, SOFTMAX, ALL,
            {"score_scale": lambda x: 1.0 / x.q.shape[-1]}),
    Mistake("with scores and gradient both scaled by 1 / D", WHICH_SCALE, SOFTMAX, ALL,
            {"score_scale": lambda x: 1.0 / x.q.shape[-1], "dq": lambda x: x.ds @ x.k / x.q.shape[-1],
             "dk_of_head": lambda x: x.ds.mT @ x.q / x.q.shape[-1]}),
    # lse, and the base
    Mistake("with p not normalised: lse is left out", WHICH_BASE, LSE, ALL, {"exponent": lambda x: x.scores}),
    Mistake("with lse added, not subtracted", WHICH_BASE, LSE, ALL,
            {"exponent": lambda x: x.scores + x.lse[..., None]}),
    Mistake("with lse not turned to base 2", WHICH_BASE, LSE, ALL,
            {"exponent": lambda x: x.scores - x.lse[..., None] * LN_2}),
    Mistake("with lse times ln 2, not log2(e)", WHICH_BASE, LSE, ALL,
            {"exponent": lambda x: x.scores - x.lse[..., None] * LN_2**2}),
    Mistake("with lse times log2(e) twice", WHICH_BASE, LSE, ALL,
            {"exponent": lambda x: x.scores - x.lse[..., None] / LN_2}),
    Mistake("with scores not turned to base 2", WHICH_BASE, LSE, ALL,
            {"exponent": lambda x: x.scores * LN_2 - x.lse[..., None]}),
    Mistake("with scores and lse both in base e under exp2", WHICH_BASE, LSE, ALL,
            {"exponent": lambda x: (x.scores - x.lse[..., None]) * LN_2}),
    Mistake("with exp where scores are in base 2", WHICH_BASE, LSE, ALL,
            {"exponent": lambda x: (x.scores - x.lse[..., None]) / LN_2}),
    Mistake("with exp, scores in base 2, and lse natural", WHICH_BASE, LSE, ALL,
            {"exponent": lambda x: x.scores / LN_2 - x.lse[..., None]}),
    Mistake("with lse subtracted before the scale", WHICH_BASE, LSE, ALL,
            {"exponent": lambda x: x.scores - x.lse[..., None] * x.scale}),
    Mistake("with the row's largest score subtracted in place of lse: p is not normalised", WHICH_BASE, LSE, ALL,
            {"exponent": lambda x: x.scores - x.scores.masked_fill(~x.seen, -torch.inf).amax(-1, keepdim=True)}),
    Mistake("with the lse of the key's position, not of the query's", WHOSE, LSE, ALL,
            {"exponent": lambda x: x.scores - x.lse[..., None, :]}),
    Mistake("with the lse of head 0 for every head", WHOSE, LSE, ALL,
            {"lse": lambda x: x.lse[:, :1].expand(x.q.shape[:3])}, several_heads),
    Mistake("with the lse of the kv head's number, not of the query head's", WHOSE, LSE, ALL,
            {"lse": lambda x: x.lse[:, torch.arange(x.q.shape[1]) // x.group]}, shares),
    Mistake("with the lse of another head, the next one", WHOSE, LSE, ALL, {"lse": lambda x: x.lse.roll(-1, 1)},
            several_heads),
    Mistake("with the lse of batch 0 for every batch", WHOSE, LSE, ALL,
            {"lse": lambda x: x.lse[:1].expand(x.q.shape[:3])}, several_batches),
    # the mask
    Mistake("without any mask", WHO_SEES, MASK, ALL, masked_by(lambda case: Visibility()), is_causal),
    Mistake("under a causal mask alone, without the window", WHO_SEES, MASK, ALL,
            masked_by(lambda case: Visibility(True)), has_window),
    Mistake("with a window that is one too long", WHO_SEES, MASK, ALL,
            by_age(lambda age, window, sink: (age >= 0) & ((age <= window) | sink)), has_window),
    Mistake("with a window that is one too short", WHO_SEES, MASK, ALL,
            by_age(lambda age, window, sink: (age >= 0) & ((age < window - 1) | sink)), has_window),
    Mistake("without the sinks", SINKS, MASK, ALL, by_age(lambda age, window, sink: (age >= 0) & (age < window)),
            has_sinks),
    Mistake("with one sink more", SINKS, MASK, ALL,
            masked_by(lambda case: Visibility(True, window_of(case), (case.sinks or 0) + 1)), has_window),
    Mistake("with one sink less", SINKS, MASK, ALL,
            masked_by(lambda case: Visibility(True, window_of(case), max(0, (case.sinks or 0) - 1))), has_sinks),
    Mistake("with sinks that earlier queries see too", SINKS, MASK, ALL,
            by_age(lambda age, window, sink: (age >= 0) & (age < window) | sink), has_sinks),
    Mistake("with a window that hides nothing of the future", WHO_SEES, MASK, ALL,
            by_age(lambda age, window, sink: (age < window) | sink), is_causal),
    Mistake("with a window on both sides of the query", WHO_SEES, MASK, ALL,
            by_age(lambda age, window, sink: (age.abs() < window) | sink), has_window),
    Mistake("under the transposed causal mask: keys see queries", WHO_SEES, MASK, ALL,
            by_age(lambda age, window, sink: (age <= 0) & (-age < window)), is_causal),
    Mistake("without the diagonal: a query does not see its own key", WHO_SEES, MASK, ALL,
            by_age(lambda age, window, sink: (age > 0) & ((age < window) | sink)), is_causal),
    Mistake("with one key of the future seen by each query", WHO_SEES, MASK, ALL,
            by_age(lambda age, window, sink: (age >= -1) & ((age < window) | sink)), is_causal),
    Mistake("under a causal mask, though is_causal is False", WHO_SEES, MASK, ALL,
            masked_by(lambda case: Visibility(True)), lambda case: not case.causal),
    Mistake("with the mask hiding p from dv, but not from ds", WHO_SEES, MASK, DS,
            {"ds": lambda x: torch.exp(x.exponent) * (x.dp - x.delta[..., None])}, is_causal),
    Mistake("with the mask hiding ds, but not p from dv", WHO_SEES, MASK, (DV,),
            {"dv_of_head": lambda x: torch.exp(x.exponent).mT @ x.do}, is_causal),
    # heads
    Mistake("of the first query head of each group alone", GROUP, HEADS, (DK, DV),
            {"dk": lambda x: x.dk_of_head[:, :: x.group], "dv": lambda x: x.dv_of_head[:, :: x.group]}, shares),
    Mistake("of the last query head of each group alone", GROUP, HEADS, (DK, DV),
            {"dk": lambda x: x.dk_of_head[:, x.group - 1 :: x.group],
             "dv": lambda x: x.dv_of_head[:, x.group - 1 :: x.group]}, shares),
    Mistake("of the first query head of each group, once for each of its heads", GROUP, HEADS, (DK, DV),
            {"dk": lambda x: x.dk_of_head[:, :: x.group] * x.group,
             "dv": lambda x: x.dv_of_head[:, :: x.group] * x.group}, shares),
    Mistake("as the mean over a group's query heads, not the sum", GROUP, HEADS, (DK, DV),
            {"dk": lambda x: x.dk_of_head.unflatten(1, (-1, x.group)).mean(2),
             "dv": lambda x: x.dv_of_head.unflatten(1, (-1, x.group)).mean(2)}, shares),
    Mistake("with query heads given to kv heads by h % Hkv, not h // group", GROUP, HEADS, ALL,
            {"k": lambda x: raw(x.k, x).repeat(1, x.group, 1, 1), "v": lambda x: raw(x.v, x).repeat(1, x.group, 1, 1),
             "dk": lambda x: x.dk_of_head.unflatten(1, (x.group, -1)).sum(1),
             "dv": lambda x: x.dv_of_head.unflatten(1, (x.group, -1)).sum(1)},
            lambda case: shares(case) and case.kv_heads > 1),
    Mistake("with K and V of kv head 0 for every head", GROUP, HEADS, ALL,
            {"k": lambda x: x.k[:, :1].expand(x.q.shape), "v": lambda x: x.v[:, :1].expand(x.q.shape)},
            lambda case: case.kv_heads > 1),
    *(
        Mistake(f"with {said} of {where} 0 for every {where}", WHOSE, HEADS, touches,
                {step: lambda x, name=name, at=at: at(getattr(x, name)) for step, name in steps.items()}, applies)
        for where, at, applies in (
            ("batch", lambda t: t[:1].expand_as(t), several_batches),
            ("head", lambda t: t[:, :1].expand_as(t), several_heads),
        )
        for said, steps, touches in (
            ("q", {"q": "q"}, ALL), ("K", {"k": "k"}, ALL), ("V", {"v": "v"}, DS), ("do", {"do": "do"}, ALL),
            ("o", {"o": "o"}, DS),
        )
    ),
    *(
        Mistake(f"with do of {where} 0 for every {where}, but its own delta", WHOSE, HEADS, ALL,
                {"dp": lambda x, at=at: at(x.do) @ x.v.mT, "dv_of_head": lambda x, at=at: x.p.mT @ at(x.do)}, applies)
        for where, at, applies in (
            ("batch", lambda t: t[:1].expand_as(t), several_batches),
            ("head", lambda t: t[:, :1].expand_as(t), several_heads),
        )
    ),
    # which matrices
    Mistake("from ds, not from p", WHICH_FACTORS, SOFTMAX, (DV,), {"dv_of_head": lambda x: x.ds.mT @ x.do}),
    Mistake("from p, not from ds", WHICH_FACTORS, SOFTMAX, DS,
            {"dq": lambda x: x.p @ x.k * x.scale, "dk_of_head": lambda x: x.p.mT @ x.q * x.scale}),
    Mistake("from dp, without the derivative of the softmax", WHICH_FACTORS, SOFTMAX, DS,
            {"ds": lambda x: torch.where(x.seen, x.dp, 0.0)}),
    Mistake("with ds = dp - delta, without p", WHICH_FACTORS, SOFTMAX, DS,
            {"ds": lambda x: torch.where(x.seen, x.dp - x.delta[..., None], 0.0)}),
    Mistake("with ds = p * (1 - p) * dp, the derivative of a sigmoid", WHICH_FACTORS, SOFTMAX, DS,
            {"ds": lambda x: x.p * (1 - x.p) * x.dp}),
    Mistake("with ds divided by p where it is multiplied", WHICH_FACTORS, SOFTMAX, DS,
            {"ds": lambda x: torch.where(x.seen, (x.dp - x.delta[..., None]) / torch.exp(x.exponent), 0.0)}),
    Mistake("with its sign turned", WHICH_FACTORS, SOFTMAX, DS,
            {"ds": lambda x: x.p * (x.delta[..., None] - x.dp)}),
    Mistake("with dp from o in place of do", WHICH_FACTORS, SOFTMAX, DS, {"dp": lambda x: x.o @ x.v.mT}),
    Mistake("with dp from q in place of do", WHICH_FACTORS, SOFTMAX, DS, {"dp": lambda x: x.q @ x.v.mT}),
    Mistake("with dp from K in place of V", WHICH_FACTORS, SOFTMAX, DS, {"dp": lambda x: x.do @ x.k.mT}),
    Mistake("with o in place of do", WHICH_FACTORS, SOFTMAX, (DV,), {"dv_of_head": lambda x: x.p.mT @ x.o}),
    Mistake("with q in place of do", WHICH_FACTORS, SOFTMAX, (DV,), {"dv_of_head": lambda x: x.p.mT @ x.q}),
    Mistake("with V in place of do", WHICH_FACTORS, SOFTMAX, (DV,), {"dv_of_head": lambda x: x.p.mT @ x.v}),
    Mistake("with p not transposed", WHICH_FACTORS, SOFTMAX, (DV,), {"dv_of_head": lambda x: x.p @ x.do}),
    Mistake("with ds not transposed", WHICH_FACTORS, SOFTMAX, (DK,), {"dk_of_head": lambda x: x.ds @ x.q * x.scale}),
    Mistake("with K in place of q", WHICH_FACTORS, SOFTMAX, (DK,), {"dk_of_head": lambda x: x.ds.mT @ x.k * x.scale}),
    Mistake("with do in place of q", WHICH_FACTORS, SOFTMAX, (DK,), {"dk_of_head": lambda x: x.ds.mT @ x.do * x.scale}),
    Mistake("with ds transposed", WHICH_FACTORS, SOFTMAX, (DQ,), {"dq": lambda x: x.ds.mT @ x.k * x.scale}),
    Mistake("with q in place of K", WHICH_FACTORS, SOFTMAX, (DQ,), {"dq": lambda x: x.ds @ x.q * x.scale}),
    Mistake("with V in place of K", WHICH_FACTORS, SOFTMAX, (DQ,), {"dq": lambda x: x.ds @ x.v * x.scale}),
    Mistake("each in the other's place", "in which order are the gradients returned, and stored?", SOFTMAX, (DK, DV),
            {"swapped": None}),
    Mistake("each in the other's place", "in which order are the gradients returned, and stored?", SOFTMAX, (DQ, DK),
            {"swapped": None}, lambda case: not shares(case)),
    Mistake("each in the other's place", "in which order are the gradients returned, and stored?", SOFTMAX, (DQ, DV),
            {"swapped": None}, lambda case: not shares(case)),
    Mistake("exchanged before the scale", "which of the two sums that the loop returns is dk's?", SOFTMAX, (DK, DV),
            {"dk_of_head": lambda x: x.p.mT @ x.do * x.scale, "dv_of_head": lambda x: x.ds.mT @ x.q}),
    Mistake("all zero", "is it computed, and is it added up in the loop?", SOFTMAX, (DQ,),
            {"dq": lambda x: torch.zeros_like(x.q)}),
    Mistake("all zero", "is it computed, and is it added up in the loop?", SOFTMAX, (DK,),
            {"dk_of_head": lambda x: torch.zeros_like(x.q)}),
    Mistake("all zero", "is it computed, and is it added up in the loop?", SOFTMAX, (DV,),
            {"dv_of_head": lambda x: torch.zeros_like(x.q)}),
)  # fmt: skip


def answer(mistake, inputs):
    """{name: float64} of the gradients with that mistake."""
    if "swapped" not in mistake.changes:
        return gradients.work_out(inputs, mistake.changes)
    found = gradients.work_out(inputs)
    one, other = mistake.touches
    return found | {one: found[other], other: found[one]}
