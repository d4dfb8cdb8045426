"""The naive arm of every timing: P1's attention in PyTorch, with the whole score matrix, for any mask of the ladder."""

import math

import torch


def naive_attention(q, k, v, is_causal=False, window_size=None, sink_size=0):
    """q: (B, Hq, N, D); k, v: (B, Hkv, N, D). Scores in float32, as in P1; K and V are copied out to Hq heads."""
    group = q.shape[1] // k.shape[1]
    if group > 1:
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    scores = q.float() @ k.float().transpose(-2, -1) * (1.0 / math.sqrt(q.shape[-1]))
    if is_causal:
        q_pos = torch.arange(q.shape[2], device=q.device)[:, None]
        k_pos = torch.arange(k.shape[2], device=q.device)[None, :]
        visible = k_pos <= q_pos
        if window_size is not None:
            visible &= (q_pos - k_pos < window_size) | (k_pos < sink_size)
        scores = scores.masked_fill(~visible, float("-inf"))
    p = torch.exp(scores - scores.amax(dim=-1, keepdim=True))
    return (p @ v.float() / p.sum(dim=-1, keepdim=True)).to(q.dtype)
