"""Attention in plain PyTorch, for any mask of the ladder: the naive arm of every timing, and what a lab's inputs need.

A runner calls these functions where speed is measured, so that this file imports torch alone.
"""

import math

import torch


def naive_attention(q, k, v, is_causal=False, window_size=None, sink_size=0):
    """P1's attention. q: (B, Hq, N, D); k, v: (B, Hkv, N, D). K and V are copied out to Hq heads."""
    group = q.shape[1] // k.shape[1]
    if group > 1:
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    p, _ = weights(q, k, is_causal, window_size, sink_size)
    return (p @ v.float() / p.sum(dim=-1, keepdim=True)).to(q.dtype)


def weights(q, k, is_causal, window_size, sink_size):
    """(p, row_max), float32 as in P1: the matrix of weights, not divided yet, and what was taken off the scores."""
    scores = q.float() @ k.float().transpose(-2, -1) * (1.0 / math.sqrt(q.shape[-1]))
    if is_causal:
        q_pos = torch.arange(q.shape[-2], device=q.device)[:, None]
        k_pos = torch.arange(k.shape[-2], device=q.device)[None, :]
        visible = k_pos <= q_pos
        if window_size is not None:
            visible &= (q_pos - k_pos < window_size) | (k_pos < sink_size)
        scores = scores.masked_fill(~visible, float("-inf"))
    row_max = scores.amax(dim=-1, keepdim=True).detach()  # it cancels: no gradient flows through it
    return torch.exp(scores - row_max), row_max


def naive_backward(do, q, k, v, o, lse, **mask):
    """A function that has autograd walk back through naive_attention, to dq, dk and dv.

    The forward runs here and keeps what its backward needs: neither its time nor that memory is the function's.
    """
    inputs = [each.detach().requires_grad_() for each in (q, k, v)]
    with torch.enable_grad():
        out = naive_attention(*inputs, **mask)
    return lambda: torch.autograd.grad(out, inputs, do, retain_graph=True)


def forward(q, k, v, is_causal=False, window_size=None, sink_size=0):
    """(o, lse) in q's dtype and in float32, head by head, so that no more than one whole matrix is there at a time."""
    o, lse = torch.empty_like(q), torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    group = q.shape[1] // k.shape[1]
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            p, row_max = weights(q[b, h, None], k[b, h // group, None], is_causal, window_size, sink_size)
            row_sum = p.sum(dim=-1, keepdim=True)
            o[b, h] = (p @ v[b, h // group].float() / row_sum)[0]
            lse[b, h] = (row_max + row_sum.log())[0, :, 0]
    return o, lse
