"""Batch and head are flattened to one axis for torch.baddbmm, float64 inside, `torch.where` for the mask, a list
returned."""

import math

import torch


def naive_attention(q, k, v, is_causal=False):
    B, H, Nq, D = q.shape
    Nk = k.shape[2]
    q3 = q.reshape(B * H, Nq, D).double()
    k3 = k.reshape(B * H, Nk, D).double()
    v3 = v.reshape(B * H, Nk, D).double()

    nothing = torch.zeros(1, 1, 1, dtype=torch.float64, device=q.device)
    scores = torch.baddbmm(nothing, q3, k3.mT, alpha=1 / math.sqrt(D))
    if is_causal:
        rows = torch.arange(Nq, device=q.device).view(-1, 1)
        cols = torch.arange(Nk, device=q.device).view(1, -1)
        scores = torch.where(cols > rows, -math.inf, scores)

    biggest, _ = scores.max(dim=-1, keepdim=True)
    weights = scores.sub_(biggest).exp_()
    total = weights.sum(dim=-1, keepdim=True)
    o = torch.bmm(weights / total, v3).to(q.dtype).view(B, H, Nq, D)
    lse = (biggest + total.log()).float().view(B, H, Nq)
    return [o, lse]
