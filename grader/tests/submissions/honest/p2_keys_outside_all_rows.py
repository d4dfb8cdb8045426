"""Keys outside, the last tile first; all rows of queries at once, of which a causal tile skips those before it."""

import math

import torch

BLOCK_K = 128


def flash_attention_forward(q, k, v, is_causal=False):
    Nq, Nk, D = q.shape[2], k.shape[2], q.shape[3]
    queries = q.float() / math.sqrt(D)
    row_max = torch.full((*q.shape[:3], 1), -math.inf, device=q.device)
    row_sum = torch.zeros_like(row_max)
    acc = torch.zeros_like(queries)
    for k_start in reversed(range(0, Nk, BLOCK_K)):
        k_end = min(k_start + BLOCK_K, Nk)
        rows = slice(k_start if is_causal else 0, Nq)
        scores = queries[:, :, rows] @ k[:, :, k_start:k_end].float().mT
        if is_causal:
            q_pos = torch.arange(k_start, Nq, device=q.device)[:, None]
            scores[..., torch.arange(k_start, k_end, device=q.device) > q_pos] = -math.inf
        new_max = torch.maximum(row_max[:, :, rows], scores.amax(-1, keepdim=True))
        alpha = torch.exp(row_max[:, :, rows] - new_max)
        p = torch.exp(scores - new_max)
        row_sum[:, :, rows] = row_sum[:, :, rows] * alpha + p.sum(-1, keepdim=True)
        acc[:, :, rows] = acc[:, :, rows] * alpha + p @ v[:, :, k_start:k_end].float()
        row_max[:, :, rows] = new_max
    return (acc / row_sum).to(q.dtype), (row_max + row_sum.log()).squeeze(-1)
