"""Queries outside; of the tiles of keys the odd ones first, then the even ones, in base 2 with a finite pivot."""

import math

import torch

BLOCK_Q, BLOCK_K = 48, 64


def flash_attention_forward(q, k, v, is_causal=False):
    Nq, Nk = q.shape[2], k.shape[2]
    qk_scale = math.log2(math.e) / math.sqrt(q.shape[3])
    o, lse = torch.empty_like(q), torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    for i in range(0, Nq, BLOCK_Q):
        q_tile = q[:, :, i : i + BLOCK_Q].float()
        rows = torch.arange(i, i + q_tile.shape[2], device=q.device)
        row_max = torch.full(q_tile.shape[:3], -math.inf, device=q.device)
        row_sum, acc = torch.zeros_like(row_max), torch.zeros_like(q_tile)
        tiles = [j for j in range(0, Nk, BLOCK_K) if not is_causal or j < i + BLOCK_Q]
        for j in tiles[1::2] + tiles[::2]:
            scores = (q_tile @ k[:, :, j : j + BLOCK_K].float().mT) * qk_scale
            if is_causal:
                keys = torch.arange(j, j + scores.shape[-1], device=q.device)
                scores = torch.where(keys <= rows[:, None], scores, -math.inf)
            new_max = torch.maximum(row_max, scores.amax(-1))
            pivot = torch.where(new_max == -math.inf, 0.0, new_max)
            alpha = torch.exp2(row_max - pivot)
            p = torch.exp2(scores - pivot[..., None])
            row_sum = row_sum * alpha + p.sum(-1)
            acc = acc * alpha[..., None] + p @ v[:, :, j : j + BLOCK_K].float()
            row_max = new_max
        o[:, :, i : i + BLOCK_Q] = (acc / row_sum[..., None]).to(q.dtype)
        lse[:, :, i : i + BLOCK_Q] = row_max * math.log(2.0) + row_sum.log()
    return o, lse
