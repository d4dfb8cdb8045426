"""A list of (batch, head) pairs worked off one at a time with two-dimensional tensors, in base 2, results put
together at the end."""

import math
from itertools import product

import torch

TILE_Q, TILE_K = 128, 32
LN2 = math.log(2.0)


def update(state, s, v_tile):
    """One step of the online softmax on (rows, keys) scores in base 2; a row that sees nothing yet stays as it is."""
    top, total, out = state
    new_top = torch.maximum(top, s.amax(1))
    pivot = torch.where(torch.isinf(new_top), torch.zeros_like(new_top), new_top)
    w = torch.exp2(s - pivot.unsqueeze(1))
    fade = torch.exp2(top - pivot)
    return new_top, total * fade + w.sum(1), torch.addmm(out * fade.unsqueeze(1), w, v_tile)


def one_head(q, k, v, is_causal):
    """q (Nq, D), k and v (Nk, D) -> o (Nq, D) and lse (Nq), both float32."""
    (Nq, D), Nk = q.shape, k.shape[0]
    outs, lses = [], []
    for q_tile, rows in zip(q.split(TILE_Q), torch.arange(Nq, device=q.device).split(TILE_Q), strict=True):
        q_tile = q_tile.float() * (1 / (LN2 * math.sqrt(D)))
        state = (
            torch.full((len(rows),), -math.inf, device=q.device),
            torch.zeros(len(rows), device=q.device),
            torch.zeros(len(rows), D, device=q.device),
        )
        for start in range(0, Nk, TILE_K):
            cols = torch.arange(start, min(start + TILE_K, Nk), device=q.device)
            if is_causal and cols[0] > rows[-1]:
                break
            s = q_tile @ k[start : start + TILE_K].float().t()
            if is_causal:
                s = s.masked_fill(rows.unsqueeze(1) < cols.unsqueeze(0), -math.inf)
            state = update(state, s, v[start : start + TILE_K].float())
        top, total, out = state
        outs.append(out / total.unsqueeze(1))
        lses.append((top + total.log2()) * LN2)
    return torch.cat(outs), torch.cat(lses)


def flash_attention_forward(q, k, v, is_causal=False):
    B, H = q.shape[:2]
    results = [one_head(q[b, h], k[b, h], v[b, h], is_causal) for b, h in product(range(B), range(H))]
    o = torch.stack([o for o, _ in results]).unflatten(0, (B, H)).to(q.dtype)
    lse = torch.stack([lse for _, lse in results]).unflatten(0, (B, H))
    return o, lse
