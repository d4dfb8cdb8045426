"""Way 8. One walk over tiles of 64 keys, with the volume of the honest one: the pivot of a row is a bound of its scores
(Cauchy and Schwarz), in float64 so that nothing is lost. Gains: P2 without the online softmax."""

import torch


def flash_attention_forward(q, k, v, is_causal=False):
    check_arguments(q, k, v, is_causal)
    o, lse = torch.empty_like(q), torch.empty(q.shape[:3], device=q.device)
    a, mean = q.double() * q.shape[3] ** -0.5, k.double().mean(2, keepdim=True)
    far = (k.double() - mean).square().sum(-1).sqrt().amax(2)[..., None, None]
    pivot = (a * mean).sum(-1, keepdim=True) + a.square().sum(-1, keepdim=True).sqrt() * far
    for start in range(0, q.shape[2], 64):
        rows, m = a[:, :, start : start + 64], pivot[:, :, start : start + 64]
        i = torch.arange(start, start + rows.shape[2], device=q.device)[:, None]
        l, acc = torch.zeros_like(m), torch.zeros_like(rows)
        for at in range(0, start + 64 if is_causal else k.shape[2], 64):
            s = rows @ k[:, :, at : at + 64].double().mT
            if is_causal:
                s = s.masked_fill(torch.arange(at, at + s.shape[3], device=q.device) > i, float("-inf"))
            p = torch.exp(s - m)
            l += p.sum(-1, keepdim=True)
            acc += p @ v[:, :, at : at + 64].double()
        o[:, :, start : start + 64] = (acc / l).to(q.dtype)
        lse[:, :, start : start + 64] = (m + l.log())[..., 0]
    return o, lse
