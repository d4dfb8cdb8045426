"""The gradients of attention in float64, step by step, and with one step otherwise; and how far off a kernel may be."""

from dataclasses import dataclass
from types import SimpleNamespace

import torch

from grader.kinds import careful
from grader.kinds.attention import oracle

# The steps in their order; x has what was computed before, and the inputs: q, k, v, o, do (B, Hq, N, D), where each
# query head has its k and v, lse (B, Hq, N), all float64; group, scale, case. Pairs are (B, Hq, N, N): queries first.
STEPS = {
    "seen": lambda x: seen_of(x.case, x.q.device),
    "score_scale": lambda x: x.scale,
    "scores": lambda x: x.q @ x.k.mT * x.score_scale,
    "exponent": lambda x: x.scores - x.lse[..., None],
    "p": lambda x: torch.where(x.seen, torch.exp(x.exponent), 0.0),
    "dp": lambda x: x.do @ x.v.mT,
    "delta": lambda x: (x.do * x.o).sum(-1),
    "ds": lambda x: x.p * (x.dp - x.delta[..., None]),
    "dq": lambda x: x.ds @ x.k * x.scale,
    "dk_of_head": lambda x: x.ds.mT @ x.q * x.scale,
    "dv_of_head": lambda x: x.p.mT @ x.do,
    "dk": lambda x: x.dk_of_head.unflatten(1, (-1, x.group)).sum(2),
    "dv": lambda x: x.dv_of_head.unflatten(1, (-1, x.group)).sum(2),
}
OWN_STEPS = 256  # roundings of float32, of a mistake's own large numbers
LOG2_E = 1.4426950408889634
FLOAT32_STEPS = 16  # roundings on the way to a gradient that every kernel has
# Honest forms: (what is scaled in its dtype before the dot, if anything, and whether in base 2; p rounded before ds;
# delta from p and dp; ds scaled before it is rounded; dk and dv of each query head rounded before they are added up).
HONEST = (
    ("", False, False, False, False),
    ("q", False, False, True, False),
    ("q, base 2", True, False, False, True),
    ("k", True, True, False, False),
    ("k, base 2", False, True, True, True),
    ("", True, True, False, True),
    ("", False, True, True, False),
)


@dataclass(frozen=True)
class Expected:
    """{name: float64} of dq, dk and dv, and how far off each may be, element by element."""

    values: dict
    allowed: dict
    inputs: SimpleNamespace

    def on_cpu(self):
        """The same, on the CPU."""
        known = (self.values, self.allowed, vars(self.inputs))
        values, allowed, inputs = (
            {n: each.cpu() if torch.is_tensor(each) else each for n, each in part.items()} for part in known
        )
        return Expected(values, allowed, SimpleNamespace(**inputs))

    def fits(self, name, got, values):
        return careful.fits(got, values, self.allowed[name], OWN_STEPS)


def seen_of(case, device, visibility=None):
    """Booleans (N, N): which query sees which key, by another Visibility than the case's where one is given."""
    position = torch.arange(case.N, device=device)
    return (visibility or case.visibility).mask(position, position)


def prepare(case, tensors):
    """The inputs of STEPS, from do, q, k, v in their dtype; o and lse are computed from them in float64."""
    do, q, k, v = (each.double() for each in tensors)
    group = case.Hq // case.kv_heads
    o, lse, _ = oracle.attention(q, k, v, case.visibility.mask)
    x = SimpleNamespace(case=case, group=group, scale=case.scale, do=do, q=q, o=o, lse=lse)
    x.k, x.v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    return x


def work_out(inputs, changes=None, wanted=("dq", "dk", "dv")):
    """{name: float64} of the gradients, where `changes` {step: function of x} stand in the place of STEPS."""
    x, changes = SimpleNamespace(**vars(inputs)), changes or {}
    for name in changes.keys() - STEPS.keys():  # an input that is another one
        setattr(x, name, changes[name](x))
    for name, step in STEPS.items():
        setattr(x, name, changes.get(name, step)(x))
    return {name: getattr(x, name) for name in wanted}


def expect(case, tensors, tf32=False):
    """The Expected on do, q, k and v (their dtype).

    The allowance is twice the largest error that the honest forms make on these inputs, relative to the size of what is
    added up, and never below twice the rounding of the dtype and the few of float32 that every kernel has.
    """
    x = prepare(case, tensors)
    values = work_out(x)
    sizes = sizes_of(x)
    info, known = torch.finfo(tensors[1].dtype), {}
    least = info.eps / 2 + FLOAT32_STEPS * torch.finfo(torch.float32).eps / 2
    for form in HONEST:
        for name, got in honest(x, tensors, form, tf32).items():
            error = ((got - values[name]).abs() / sizes[name].clamp(min=1e-300)).max().item()
            known[name] = max(known.get(name, least), error)
    floor = info.smallest_normal * info.eps
    return Expected(values, {name: 2 * known[name] * sizes[name] + floor for name in values}, x)


def sizes_of(x):
    """{name: the sum of the absolute terms that each element is made of}."""
    p = work_out(x, wanted=("p",))["p"]
    ds = p * (x.do.abs() @ x.v.abs().mT + (x.do * x.o).abs().sum(-1)[..., None])
    of_head = {"dk": ds.mT @ x.q.abs() * x.scale, "dv": p.mT @ x.do.abs()}
    summed = {name: size.unflatten(1, (-1, x.group)).sum(2) for name, size in of_head.items()}
    return {"dq": ds @ x.k.abs() * x.scale, **summed}


def honest(x, tensors, form, tf32):
    """{name: float64} of a right kernel in the dtype: dots of rounded inputs added up in float32.

    tf32: round the inputs of float32 dots to tf32's 10 bits, as Triton's dots on a GPU do by default.
    """
    early, round_p, delta_inside, scale_early, by_head = form
    dtype = tensors[1].dtype
    drop = careful.drop_to_tf32 if tf32 and dtype == torch.float32 else (lambda t: t)
    rounded = lambda t: drop(t.to(dtype).float())  # noqa: E731
    do, q, k, v = (rounded(t) for t in (x.do, x.q, x.k, x.v))
    exact_delta = (x.do.to(dtype).float() * x.o.to(dtype).float()).sum(-1)
    scale = x.scale * (LOG2_E if "base 2" in early else 1.0)
    scores = (rounded(q * scale) if "q" in early else q) @ (rounded(k * scale) if "k" in early else k).mT
    scores *= x.scale / scale if early else x.scale
    p = torch.where(seen_of(x.case, q.device), torch.exp(scores - x.lse.float()[..., None]), 0.0)
    dp = do @ v.mT
    delta = (p * dp).sum(-1) if delta_inside else exact_delta  # no dot: tf32 rounds nothing of it
    ds = (rounded(p) if round_p else p) * (dp - delta[..., None])
    ds, after = (rounded(ds * x.scale), 1.0) if scale_early else (rounded(ds), x.scale)
    found = {"dk": ds.mT @ q * after, "dv": rounded(p).mT @ do}
    for name, of_head in found.items():
        of_head = of_head.to(dtype).float() if by_head else of_head
        found[name] = of_head.unflatten(1, (-1, x.group)).sum(2)
    found["dq"] = ds @ k * after
    return {name: value.to(dtype).double() for name, value in found.items()}
