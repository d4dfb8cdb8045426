"""PyTorch on "cuda" throughout: by name, by torch.device, by index, by .cuda() and by the default device."""

import math

import torch

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.set_default_device("cuda")


def naive_attention(q, k, v, is_causal=False):
    assert q.is_cuda and q.device.type == "cuda"
    Nq, Nk = q.shape[2], k.shape[2]
    scores = (q.float() @ k.float().transpose(-1, -2)) / math.sqrt(q.shape[-1])
    if is_causal:
        seen = torch.arange(Nk, device=0)[None, :] <= torch.arange(Nq, device="cuda:0")[:, None]
        scores = scores.masked_fill(~seen.to(q.device), float("-inf"))
    top = torch.zeros((*scores.shape[:-1], 1)).to(device, torch.float32) + scores.amax(-1, keepdim=True)
    p = torch.exp(scores - top.cuda())
    total = p.sum(-1, keepdim=True)
    with torch.device("cuda"):
        one = torch.ones(1)
    torch.cuda.synchronize(q.device)
    return ((p / total) @ v.float()).to(q.dtype) * one.to(q.dtype), (top + torch.log(total)).squeeze(-1)
