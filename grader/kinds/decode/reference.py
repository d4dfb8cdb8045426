"""Decode in float64, step by step, and what careful kernels do otherwise.

x has q (B, Hq, Nq, D), pages_k and pages_v (pages, page, Hkv, D), table (B, most), lengths (B, 1, 1, 1) and sink (Hq,).
A dense cache is one page for each sequence. Pairs are (B, Hq, Nq, tokens); parts have one more dim, the pieces, behind
Nq. NaN that no row of a sequence sees changes nothing, as in a kernel that never reads it.
"""

import math

import torch

from grader.engine.reference import Reference
from grader.kinds.decode import inputs

LOG2_E = 1.4426950408889634
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
    "scores": lambda x: torch.where(x.seen, x.rounded(x.q) @ x.rounded(x.keys).mT * x.scale, -math.inf),
    "exists": lambda x: in_pieces(x.inside.double(), x.piece, 0.0).amax(-1) > 0,  # (B, 1, 1, pieces)
    "part_scores": lambda x: in_pieces(x.scores, x.piece),
    "part_max": lambda x: x.part_scores.amax(-1),
    "part_p": lambda x: x.exp(x.part_scores - finite(x.part_max)[..., None]),
    "part_sum": lambda x: x.part_p.sum(-1),
    "part_acc": lambda x: weigh(x.rounded(x.part_p), x.rounded(x.values), x.seen, x.piece),
    "part_o": lambda x: x.part_acc / positive(x.part_sum)[..., None],
    "part_lse": lambda x: x.part_max + x.log(x.part_sum),
    "lse": lambda x: torch.where(x.exists, x.part_lse, -math.inf),
    "sink_score": lambda x: x.sink[:, None],
    "pivot": lambda x: finite(torch.maximum(x.lse.amax(-1), x.sink_score)),
    "weight": lambda x: x.exp(x.lse - x.pivot[..., None]),
    "sink_weight": lambda x: x.exp(x.sink_score - x.pivot),
    "total": lambda x: x.weight.sum(-1) + x.sink_weight,
    "acc": lambda x: (x.weight[..., None] * x.part_o).sum(-2),
    "o": lambda x: x.acc / positive(x.total)[..., None],
}


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


def prepare(case, tensors):
    q, k, v = (each.double() for each in tensors)
    none = torch.full((case.Hq,), -math.inf, dtype=torch.float64)
    dense = case.page is None
    return {
        "q": q, "group": case.group, "scale": case.score_scale, "piece": case.piece, "exp": torch.exp, "log": torch.log,
        "lengths": inputs.lengths(case).long()[:, None, None, None], "token": torch.arange(case.Nq)[:, None],
        "k_pos": torch.arange(case.tokens), "window": min(case.window or case.tokens, case.tokens),
        "sink": inputs.sink_logits(case).double() if case.sink else none, "page_size": case.page or case.tokens,
        "table": torch.arange(case.B)[:, None] if dense else inputs.block_table(case).long(),
        "pages_k": k.transpose(1, 2) if dense else k, "pages_v": v.transpose(1, 2) if dense else v,
    }  # fmt: skip


def all_keys(x):
    return x.k_pos.numel()


BASE_2 = {
    "exp": lambda x: torch.exp2, "log": lambda x: torch.log2, "sink": lambda x: x.sink * LOG2_E,
    "scale": lambda x: x.scale * LOG2_E,
}  # fmt: skip
Q_SCALED_FIRST = {
    "scores": lambda x: torch.where(x.seen, x.rounded(x.q * x.scale) @ x.rounded(x.keys).mT, -math.inf),
}
P_ROUNDED = {"part_p": lambda x: x.rounded(x.exp(x.part_scores - finite(x.part_max)[..., None]))}


def size(x):
    """The sum of p |v|."""
    return {"o": REFERENCE.run(x, {"values": lambda x: x.v[:, x.kv_head].abs()}, x).o}


def of_scores(x):
    """What o is off by where a score is: by a rounding of the sum of |q| |k|, which grows with the root of D."""
    x = REFERENCE.run(x, {"piece": all_keys})
    p = torch.exp(x.scores - x.pivot[..., None]) / positive(x.total)[..., None]
    rounding = torch.finfo(torch.float32).eps * max(1.0, math.sqrt(x.case.D) / 2)
    off = torch.where(x.seen, x.q.abs() @ x.keys.abs().mT, 0.0) * p * (1.0 - p) * abs(x.scale) * rounding
    return {"o": 2 * weigh(off[..., None, :], x.values.abs(), x.seen, x.piece).squeeze(-2)}


REFERENCE = Reference(
    prepare, STEPS, ("o",), size=size, beside=of_scores, careful=(
        {"piece": all_keys},
        {"piece": lambda x: 32, **BASE_2},
        {"piece": lambda x: 64, **BASE_2, **Q_SCALED_FIRST},
        {"piece": lambda x: 128, **P_ROUNDED},
        {"piece": lambda x: 16, **BASE_2, **Q_SCALED_FIRST, **P_ROUNDED},
    ),
)  # fmt: skip
