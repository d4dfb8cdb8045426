"""No running maximum: each tile has a softmax of its own, and tiles are merged through torch.logaddexp of their
lse, last tile first."""

import torch

CHUNK_Q, CHUNK_K = 64, 64


def tile_attention(q, k, v, hidden):
    """o (normalised) and lse of one tile by itself; a row with no visible key has lse -inf and o 0."""
    s = (q @ k.mT) * q.shape[-1] ** -0.5
    if hidden is not None:
        s = s.masked_fill(hidden, -torch.inf)
    lse = torch.logsumexp(s, dim=-1)
    p = torch.exp(s - lse.unsqueeze(-1)).nan_to_num(0.0)
    return p @ v, lse


def flash_attention_forward(q, k, v, is_causal=False):
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    Nq, Nk = q.shape[2], k.shape[2]
    for i in range(0, Nq, CHUNK_Q):
        rows = torch.arange(i, min(i + CHUNK_Q, Nq), device=q.device)
        q_tile = q[:, :, i : i + CHUNK_Q].to(torch.float32)
        out = torch.zeros_like(q_tile)
        total = torch.full(q_tile.shape[:3], -torch.inf, device=q.device)
        end = min(Nk, i + CHUNK_Q) if is_causal else Nk
        for j in reversed(range(0, end, CHUNK_K)):
            cols = torch.arange(j, min(j + CHUNK_K, Nk), device=q.device)
            hidden = cols[None, :] > rows[:, None] if is_causal else None
            part, part_lse = tile_attention(
                q_tile, k[:, :, j : j + CHUNK_K].to(torch.float32), v[:, :, j : j + CHUNK_K].to(torch.float32), hidden
            )
            both = torch.logaddexp(total, part_lse)
            known = torch.where(both.isinf(), torch.zeros_like(both), both)
            out = out * torch.exp(total - known)[..., None] + part * torch.exp(part_lse - known)[..., None]
            total = both
        o[:, :, i : i + CHUNK_Q] = out.to(q.dtype)
        lse[:, :, i : i + CHUNK_Q] = total
    return o, lse
