"""Decode in float64, step by step, and with one step otherwise; and how far off a careful kernel may be."""

import math
from dataclasses import dataclass
from types import SimpleNamespace

import torch

from grader.kinds import careful
from grader.kinds.decode import inputs

# The steps in their order; x has what was computed before, and the inputs: q (B, Hq, Nq, D), pages_k and pages_v
# (pages, page, Hkv, D), table (B, most), lengths (B, 1, 1, 1), sink (Hq,), in float64 or int64; group, window, scale,
# piece, case. A dense cache is one page for each sequence. Pairs are (B, Hq, Nq, tokens); parts have one more dim, the
# pieces, behind Nq. NaN that no row of a sequence sees changes nothing, as in a kernel that never reads it.
STEPS = {
    "page": lambda x: x.table[:, x.k_pos // x.page_size],
    "row": lambda x: (x.k_pos % x.page_size).expand(len(x.table), -1),
    "k": lambda x: gather(x.pages_k, x.page, x.row),
    "v": lambda x: gather(x.pages_v, x.page, x.row),
    "kv_head": lambda x: torch.arange(x.case.Hq) // x.group,
    "keys": lambda x: x.k[:, x.kv_head],
    "values": lambda x: x.v[:, x.kv_head],
    "q_pos": lambda x: x.lengths - x.case.Nq + x.token,
    "first": lambda x: (x.lengths - x.case.Nq + 1 - x.window).clamp(min=0),
    "end": lambda x: x.lengths,
    "inside": lambda x: (x.k_pos >= x.first) & (x.k_pos < x.end),
    "age": lambda x: x.q_pos - x.k_pos,
    "seen": lambda x: x.inside & (x.age >= 0) & (x.age < x.window),
    "scores": lambda x: torch.where(x.seen, x.q @ x.keys.mT * x.scale, -math.inf),
    "exists": lambda x: in_pieces(x.inside.double(), x.piece, 0.0).amax(-1) > 0,  # (B, 1, 1, pieces)
    "part_scores": lambda x: in_pieces(x.scores, x.piece),
    "part_max": lambda x: x.part_scores.amax(-1),
    "part_p": lambda x: torch.exp(x.part_scores - finite(x.part_max)[..., None]),
    "part_sum": lambda x: x.part_p.sum(-1),
    "part_acc": lambda x: weigh(x.part_p, x.values, x.seen, x.piece),
    "part_o": lambda x: x.part_acc / positive(x.part_sum)[..., None],
    "part_lse": lambda x: x.part_max + x.part_sum.log(),
    "lse": lambda x: torch.where(x.exists, x.part_lse, -math.inf),
    "sink_score": lambda x: x.sink[:, None],
    "pivot": lambda x: finite(torch.maximum(x.lse.amax(-1), x.sink_score)),
    "weight": lambda x: torch.exp(x.lse - x.pivot[..., None]),
    "sink_weight": lambda x: torch.exp(x.sink_score - x.pivot),
    "total": lambda x: x.weight.sum(-1) + x.sink_weight,
    "acc": lambda x: (x.weight[..., None] * x.part_o).sum(-2),
    "o": lambda x: x.acc / positive(x.total)[..., None],
}
LOG2_E = 1.4426950408889634
OWN_STEPS = 64  # roundings of float32, of a mistake's own large numbers


def gather(pages, page, row):
    """(B, Hkv, tokens, D) of the entries at (page, row), (B, tokens) each; what lies outside of the tensor is NaN."""
    there = (page >= 0) & (page < pages.shape[0]) & (row >= 0) & (row < pages.shape[1])
    found = pages[page.where(there, 0), row.where(there, 0)]
    return found.masked_fill(~there[..., None, None], math.nan).transpose(1, 2)


def in_pieces(pairs, piece, beyond=-math.inf):
    """(..., tokens) -> (..., pieces, piece)."""
    return torch.nn.functional.pad(pairs, (0, -pairs.shape[-1] % piece), value=beyond).unflatten(-1, (-1, piece))


def weigh(p, values, seen, piece):
    """(..., pieces, D): p (..., pieces, piece) times the values; one that no row of its sequence sees counts as 0."""
    read = seen.flatten(1, 2).any(1)[:, None, :, None]
    values = torch.where(read, values, 0.0)
    parts = torch.nn.functional.pad(values, (0, 0, 0, -values.shape[2] % piece)).unflatten(2, (-1, piece))
    return (p.transpose(2, 3) @ parts).transpose(2, 3)


def finite(most):
    return most.masked_fill(most == -math.inf, 0.0)


def positive(total):
    return total.where(total > 0.0, torch.ones_like(total))


def prepare(case, placed, piece=None):
    """The inputs of STEPS; placed: q, k_cache and v_cache. piece: None for the case's own."""
    q, k, v = (each.tensor.double() for each in placed)
    x = SimpleNamespace(case=case, q=q, group=case.group, scale=case.score_scale, piece=piece or case.piece)
    x.lengths = inputs.lengths(case).long()[:, None, None, None]
    x.token, x.k_pos = torch.arange(case.Nq)[:, None], torch.arange(case.tokens)
    x.window = min(case.window or case.tokens, case.tokens)
    x.sink = inputs.sink_logits(case).double() if case.sink else torch.full((case.Hq,), -math.inf, dtype=torch.float64)
    if case.page is None:
        x.page_size, x.table = case.tokens, torch.arange(case.B)[:, None]
        x.pages_k, x.pages_v = k.transpose(1, 2), v.transpose(1, 2)
    else:
        x.page_size, x.table, x.pages_k, x.pages_v = case.page, inputs.block_table(case).long(), k, v
    return x


def run(given, changes=None, known=None):
    """The inputs and every step, where `changes` {step or input: function of x} stand in the place of STEPS.

    known: what this function returned for the same inputs without changes; it has the steps before the first change.
    """
    changes, order = changes or {}, list(STEPS)
    others = changes.keys() - STEPS.keys()  # an input that is another one
    first = min(map(order.index, changes)) if known and not others else 0
    x = SimpleNamespace(**vars(known if first else given))
    for name in others:
        setattr(x, name, changes[name](x))
    for name in order[first:]:
        setattr(x, name, changes.get(name, STEPS[name])(x))
    return x


@dataclass(frozen=True)
class Expected:
    """o in float64, and how far off it may be, element by element."""

    o: torch.Tensor
    allowed: torch.Tensor
    given: SimpleNamespace

    def fits(self, got, values):
        return careful.fits(got, values, self.allowed, OWN_STEPS)


# Careful kernels: tokens of a piece (0 for all of them), base 2, q scaled in its dtype before the dot, p rounded before
# its sum is taken.
CAREFUL = ((0, False, False, False), (32, True, False, False), (64, True, True, False), (128, False, False, True),
           (16, True, True, True))  # fmt: skip


def expect(case, placed, tf32=False):
    """The Expected of these inputs: twice the largest error of careful kernels, relative to the sum of p |v|.

    Added is what o is off by where float32 adds up each score in another order, as the ladder's oracle adds it.
    tf32: float32 is rounded to tf32's 10 bits, as Triton's dots on a GPU do by default.
    """
    x = prepare(case, placed)
    o = run(x).o
    size = run(x, {"values": lambda x: x.v[:, x.kv_head].abs()}).o
    forms = [careful_kernel(x, *form, placed[0].tensor.dtype, tf32) for form in CAREFUL]
    allowed = careful.allow(o, [form.to(placed[0].tensor.dtype) for form in forms], placed[0].tensor.dtype, size)
    return Expected(o, allowed + allow_for_scores(x), x)


def careful_kernel(x, piece, base_2, early, round_p, dtype, tf32):
    """o in float32: dots of numbers of the dtype, statistics in float32, the pieces merged in float32."""
    drop = careful.drop_to_tf32 if tf32 and dtype == torch.float32 else (lambda t: t)
    rounded = lambda t: drop(t.to(dtype).float())  # noqa: E731
    scale = x.scale * (LOG2_E if base_2 else 1.0)
    power, log = (torch.exp2, torch.log2) if base_2 else (torch.exp, torch.log)
    q = rounded(x.q * scale) if early else rounded(x.q)

    def p_of(y):
        p = power(y.part_scores - finite(y.part_max)[..., None])
        return rounded(p) if round_p else p

    return run(x, {
        "piece": lambda y: piece or x.k_pos.numel(), "sink": lambda y: x.sink.float() * (LOG2_E if base_2 else 1.0),
        "keys": lambda y: rounded(y.k)[:, y.kv_head], "values": lambda y: rounded(y.v)[:, y.kv_head],
        "scores": lambda y: torch.where(y.seen, q @ y.keys.mT * (1.0 if early else scale), -math.inf),
        "part_p": p_of, "part_acc": lambda y: weigh(rounded(y.part_p), y.values, y.seen, y.piece),
        "part_lse": lambda y: y.part_max + log(y.part_sum),
        "weight": lambda y: power(y.lse - y.pivot[..., None]), "sink_weight": lambda y: power(y.sink_score - y.pivot),
    }).o  # fmt: skip


def allow_for_scores(x):
    """(B, Hq, Nq, D): a score's error is a rounding of the sum of |q| |k|, which grows with the root of D."""
    x = run(x, {"piece": lambda x: x.k_pos.numel()})
    p = torch.exp(x.scores - x.pivot[..., None]) / positive(x.total)[..., None]
    rounding = torch.finfo(torch.float32).eps * max(1.0, math.sqrt(x.case.D) / 2)
    size = torch.where(x.seen, x.q.abs() @ x.keys.abs().mT, 0.0)
    off = p * (1.0 - p) * size * abs(x.scale) * rounding
    return 2 * weigh(off[..., None, :], x.values.abs(), x.seen, x.piece).squeeze(-2)
