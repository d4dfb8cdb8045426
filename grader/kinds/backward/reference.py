"""The gradients of attention in float64, step by step, and what careful kernels do otherwise.

x has q, k, v, o, do (B, Hq, N, D), where each query head has its k and v, and lse (B, Hq, N). Pairs are (B, Hq, N, N):
queries first.
"""

import torch

from grader.engine.reference import Reference
from grader.kinds.attention import oracle

LOG2_E = 1.4426950408889634
OUTPUTS = "dq", "dk", "dv"
STEPS = {
    "seen": lambda x: seen_of(x.case, x.q.device),
    "score_scale": lambda x: x.scale,
    "scores": lambda x: x.rounded(x.q) @ x.rounded(x.k).mT * x.score_scale,
    "exponent": lambda x: x.scores - x.lse[..., None],
    "p": lambda x: torch.where(x.seen, torch.exp(x.exponent), 0.0),
    "dp": lambda x: x.rounded(x.do) @ x.rounded(x.v).mT,
    "delta": lambda x: (x.do * x.stored(x.o)).sum(-1),
    "ds": lambda x: x.p * (x.dp - x.delta[..., None]),
    "dk_of_head": lambda x: x.rounded(x.ds).mT @ x.rounded(x.q) * x.scale,
    "dv_of_head": lambda x: x.rounded(x.p).mT @ x.rounded(x.do),
    "dq": lambda x: x.rounded(x.ds) @ x.rounded(x.k) * x.scale,
    "dk": lambda x: x.dk_of_head.unflatten(1, (-1, x.group)).sum(2),
    "dv": lambda x: x.dv_of_head.unflatten(1, (-1, x.group)).sum(2),
}


def seen_of(case, device, visibility=None):
    """Booleans (N, N): which query sees which key, by another Visibility than the case's where one is given."""
    position = torch.arange(case.N, device=device)
    return (visibility or case.visibility).mask(position, position)


def prepare(case, tensors):
    """o and lse are computed in float64 from q, k and v."""
    do, q, k, v = (each.double() for each in tensors[:4])
    group = case.Hq // case.kv_heads
    o, lse, _ = oracle.attention(q, k, v, case.visibility.mask)
    k, v = (each.repeat_interleave(group, 1) for each in (k, v))
    return {"group": group, "scale": case.scale, "do": do, "q": q, "k": k, "v": v, "o": o, "lse": lse}


def size(x):
    """The sums of the absolute terms that each element is made of."""
    ds = x.p * (x.do.abs() @ x.v.abs().mT + (x.do * x.o).abs().sum(-1)[..., None])
    of_head = {"dk": ds.mT @ x.q.abs() * x.scale, "dv": x.p.mT @ x.do.abs()}
    summed = {name: each.unflatten(1, (-1, x.group)).sum(2) for name, each in of_head.items()}
    return {"dq": ds @ x.k.abs() * x.scale, **summed}


def scaled_first(name, times=1.0):
    """Scores where q or k is scaled in its dtype before the dot; times: log2(e) in base 2."""
    other = {"q": "k", "k": "q"}[name]

    def scores(x):
        mine = x.rounded(getattr(x, name) * (x.scale * times))
        pair = (mine, x.rounded(getattr(x, other))) if name == "q" else (x.rounded(x.q), mine)
        return pair[0] @ pair[1].mT / times

    return {"scores": scores}


P_ROUNDED = {"ds": lambda x: x.rounded(x.p) * (x.dp - x.delta[..., None])}
DELTA_INSIDE = {"delta": lambda x: (x.p * x.dp).sum(-1)}
DS_SCALED_FIRST = {
    "dq": lambda x: x.rounded(x.ds * x.scale) @ x.rounded(x.k),
    "dk_of_head": lambda x: x.rounded(x.ds * x.scale).mT @ x.rounded(x.q),
}
HEADS_STORED = {
    "dk": lambda x: x.stored(x.dk_of_head).unflatten(1, (-1, x.group)).sum(2),
    "dv": lambda x: x.stored(x.dv_of_head).unflatten(1, (-1, x.group)).sum(2),
}
REFERENCE = Reference(
    prepare, STEPS, OUTPUTS, size=size, roundings=256, steps_of_float32=16, careful=(
        {},
        scaled_first("q") | DS_SCALED_FIRST,
        scaled_first("q", LOG2_E) | P_ROUNDED | HEADS_STORED,
        scaled_first("k") | P_ROUNDED | DELTA_INSIDE,
        scaled_first("k", LOG2_E) | DELTA_INSIDE | DS_SCALED_FIRST | HEADS_STORED,
        P_ROUNDED | DELTA_INSIDE | HEADS_STORED,
        DELTA_INSIDE | DS_SCALED_FIRST,
    ),
)  # fmt: skip
