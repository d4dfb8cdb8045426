"""The operator in a process of its own, whose Triton interprets on a CPU: prints {what: fact} as JSON."""

import json
import sys

import torch

from kernels.attention_op import attention, backward, forward

DEVICE = sys.argv[1]
torch.manual_seed(0)
torch.set_num_threads(1)


def draw(Hq, Hkv, N=40, D=16):
    q, k, v = (torch.randn(2, heads, N, D, device=DEVICE, requires_grad=True) for heads in (Hq, Hkv, Hkv))
    return q, k, v


def plain(q, k, v, sink_logits=None, is_causal=True, window_size=None, sink_size=0):
    """The same by PyTorch in float64."""
    group, N = q.shape[1] // k.shape[1], q.shape[2]
    i, j = torch.arange(N, device=DEVICE)[:, None], torch.arange(N, device=DEVICE)[None, :]
    seen = (j <= i) & ((i - j < (window_size or N)) | (j < sink_size)) if is_causal else torch.ones_like(i == j)
    q, k, v = (x.double() for x in (q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)))
    scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~seen, -torch.inf)
    if sink_logits is None:
        return torch.softmax(scores, -1) @ v
    sink = sink_logits.double()[:, None, None].expand(*scores.shape[:3], 1)
    return torch.softmax(torch.cat([scores, sink], -1), -1)[..., :-1] @ v


def off(one, other, inputs, loss):
    """The largest difference of the gradients of a loss of two forms."""
    found = [torch.autograd.grad(loss(form(*inputs)), inputs) for form in (one, other)]
    return max(float((a.double() - b.double()).abs().max()) for a, b in zip(*found, strict=True))


def directional(inputs, step=1e-2):
    """The largest relative difference of a directional derivative in float32: by the gradients, and by two forwards."""
    found, form = [], lambda q, k, v, sinks: attention(q, k, v, window_size=9, sink_logits=sinks).transpose(1, 2)
    for number, x in enumerate(inputs):
        direction = torch.randn_like(x)

        def loss(at, number=number):
            with torch.no_grad():
                o = form(*(at if i == number else each for i, each in enumerate(inputs)))
            return float((o.double() * weight).sum())

        gradient = torch.autograd.grad((form(*inputs) * weight).sum(), x)[0]
        by_gradient = float((gradient.double() * direction).sum())
        by_forward = (loss(x + step * direction) - loss(x - step * direction)) / (2 * step)
        found.append(abs(by_forward - by_gradient) / float(gradient.double().norm() * direction.double().norm()))
    return max(found)


def said(call):
    try:
        call()
    except (ValueError, RuntimeError) as error:
        return str(error)
    return ""


MASKS = {"causal": {}, "window and sinks": {"window_size": 9, "sink_size": 2}, "full": {"is_causal": False}}
weight = torch.randn(2, 40, 4, 16, device=DEVICE)
LOSSES = {
    "expanded": lambda o: o.sum() / 7,
    "transposed": lambda o: (o.transpose(1, 2) * weight).sum(),
}
facts, inputs = {}, draw(4, 2)
logits = torch.tensor([0.0, 2.0, -1.0, 30.0], device=DEVICE, requires_grad=True)
for mask, arguments in MASKS.items():
    for name, loss in LOSSES.items():

        def ours(q, k, v, sinks=None, told=arguments):
            return attention(q, k, v, sink_logits=sinks, **told)

        other = lambda *x, told=arguments: plain(*x, **told)  # noqa: E731
        facts[f"{mask}, {name}"] = off(ours, other, inputs, loss)
        facts[f"{mask}, learned sinks, {name}"] = off(ours, other, (*inputs, logits), loss)
facts["opcheck"] = [*torch.library.opcheck(forward, (*inputs, True, 9, 2, logits)).values()]
do = torch.randn_like(inputs[0])
o, lse = forward(*(x.detach() for x in inputs), True, None, 0, None)
given = (do, *(x.detach() for x in inputs), o, lse, True, None, 0, logits.detach())
facts["opcheck of the backward"] = [*torch.library.opcheck(backward, given).values()]
compiled = torch.compile(lambda *x: attention(*x, window_size=9).pow(2), backend="aot_eager", fullgraph=True)
facts["compiled"] = off(compiled, lambda *x: attention(*x, window_size=9).pow(2), inputs, torch.sum)
facts["directional"] = directional((*inputs, logits))
facts["second"] = said(
    lambda: torch.autograd.grad(attention(*inputs).sum(), inputs, create_graph=True)[0].sum().backward()
)
facts["lse"] = said(lambda: forward(*inputs, True, None, 0, None)[1].sum().backward())
facts["window"] = said(lambda: attention(*inputs, window_size=0))
print(json.dumps(facts))
