"""The online softmax with every running value made on the GPU, on a stream of its own, and timed with events."""

import math

import torch

BLOCK_Q, BLOCK_K = 32, 48


def flash_attention_forward(q, k, v, is_causal=False):
    assert all(t.is_cuda for t in (q, k, v))
    B, H, Nq, D = q.shape
    Nk = k.shape[2]
    o = torch.zeros_like(q, device="cuda")
    lse = torch.zeros((B, H, Nq), device=q.device)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        start.record()
        for first in range(0, Nq, BLOCK_Q):
            q_tile = q[:, :, first : first + BLOCK_Q].float()
            rows = q_tile.shape[2]
            row_max = torch.full((B, H, rows, 1), float("-inf"), device="cuda")
            row_sum = torch.zeros((B, H, rows, 1)).cuda()
            acc = torch.zeros((B, H, rows, D), device=torch.device("cuda", 0))
            for k_start in range(0, min(Nk, first + rows) if is_causal else Nk, BLOCK_K):
                scores = q_tile @ k[:, :, k_start : k_start + BLOCK_K].float().transpose(-1, -2) / math.sqrt(D)
                if is_causal:
                    k_pos = torch.arange(k_start, k_start + scores.shape[-1], device="cuda")
                    q_pos = torch.arange(first, first + rows, device="cuda")
                    scores = scores.masked_fill(k_pos[None, :] > q_pos[:, None], float("-inf"))
                new_max = torch.maximum(row_max, scores.amax(-1, keepdim=True))
                alpha, p = torch.exp(row_max - new_max), torch.exp(scores - new_max)
                row_sum = row_sum * alpha + p.sum(-1, keepdim=True)
                acc = acc * alpha + p @ v[:, :, k_start : k_start + BLOCK_K].float()
                row_max = new_max
            o[:, :, first : first + rows] = (acc / row_sum).to(q.dtype)
            lse[:, :, first : first + rows] = (row_max + torch.log(row_sum)).squeeze(-1)
        end.record()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    assert start.elapsed_time(end) >= 0
    return o, lse
