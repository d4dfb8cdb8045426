"""Run with TRITON_INTERPRET=1: the plain kernels around the fast backward pass; {number: how far it is off} as JSON."""

import json

import torch

from kernels.backward_parts import BLOCK_S, QUERIES, finish_kernel, prepare_kernel, sinks_kernel, sum_parts_kernel

torch.manual_seed(0)
B, Hq, group, N, D, sinks, span, padded = 2, 4, 2, 150, 16, 21, 64, 192
q, do, o = (torch.randn(B, N, Hq, D).transpose(1, 2) for _ in range(3))
k, v = (torch.randn(B, Hq // group, N, D) for _ in range(2))
scale, parts = D**-0.5, -(-N // span)
lse = (q @ k.repeat_interleave(group, 1).mT * scale).logsumexp(-1)
rows = torch.full((2, B, Hq, padded), torch.nan)
first_s, delta = rows
dq = torch.full((B, Hq, N, D), torch.nan)
sink_logits, of_logits = torch.randn(Hq), torch.full((B, Hq, padded // 64), torch.nan)
prepare_kernel[(padded // 64, Hq, B)](
    o,
    do,
    lse,
    rows,
    dq,
    sink_logits,
    of_logits,
    *o.stride()[:3],
    *do.stride()[:3],
    *lse.stride()[:2],
    N,
    padded,
    D**0.5,
    D,
    64,
    True,
)
off = {
    "delta": delta[..., :N] - (o * do).sum(-1), "lse": first_s[..., :N] * scale - lse, "dq before": dq.clone(),
    "logits": of_logits.sum((0, 2)) + ((sink_logits[:, None] - lse).exp() * delta[..., :N]).sum((0, 2)),
    "past the end": delta[..., N:] + (first_s[..., N:] * -scale).exp(),
}  # fmt: skip
of_parts = torch.full((2, B, Hq // group, group, parts, sinks, D), torch.nan)
sinks_kernel[(parts, Hq, B)](
    q, k, v, do, rows, dq, *of_parts, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *do.stride()[:3],
    N, padded, group, sinks, scale, scale * 1.4426950408889634, D, QUERIES, BLOCK_S, span,
)  # fmt: skip
of_k, of_v = (x[:, :, :sinks].repeat_interleave(group, 1) for x in (k, v))
p = (q @ of_k.mT * scale - lse[..., None]).exp().tril()
ds = p * (do @ of_v.mT - delta[..., :N, None])
summed = torch.full((2, *k.shape), torch.nan)
sum_parts_kernel[(sinks, Hq // group, B)](*of_parts, *summed, N, group * parts, sinks, D, 4)
summed = summed[:, :, :, :sinks]
off["dq"] = dq - ds @ of_k
for name, got, each in ("dk", summed[0], (ds * scale).mT @ q), ("dv", summed[1], p.mT @ do):
    off[name] = got - each.unflatten(1, (-1, group)).sum(2)
rounded = torch.full_like(dq, torch.nan, dtype=torch.float16)
finish_kernel[(3,)](dq, rounded, scale, dq.numel(), 8192)
off["rounded"] = (rounded - (dq * scale).half()).float()
print(json.dumps({name: float(each.abs().max()) for name, each in off.items()}))
