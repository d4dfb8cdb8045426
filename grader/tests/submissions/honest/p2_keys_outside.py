"""The loop order of the first FlashAttention paper: keys outside, queries inside, o kept normalised in memory all
along."""

import math

import torch

Bc, Br = 48, 32


def flash_attention_forward(q, k, v, is_causal=False):
    B, H, Nq, D = q.shape
    Nk = k.shape[2]
    O = torch.zeros(B, H, Nq, D, dtype=torch.float32, device=q.device)
    l = torch.zeros(B, H, Nq, dtype=torch.float32, device=q.device)
    m = torch.full((B, H, Nq), -float("inf"), dtype=torch.float32, device=q.device)

    for j in range(0, Nk, Bc):
        Kj = k[..., j : j + Bc, :].float()
        Vj = v[..., j : j + Bc, :].float()
        for i in range(0, Nq, Br):
            if is_causal and j > i + Br - 1:
                continue
            Qi = q[..., i : i + Br, :].float()
            S = torch.matmul(Qi, Kj.transpose(-1, -2)) / math.sqrt(D)
            if is_causal:
                rows = i + torch.arange(S.shape[-2], device=q.device)
                cols = j + torch.arange(S.shape[-1], device=q.device)
                S.masked_fill_(cols[None, :] > rows[:, None], -float("inf"))

            mi, li, Oi = m[..., i : i + Br], l[..., i : i + Br], O[..., i : i + Br, :]
            m_tile = S.max(dim=-1).values
            m_new = torch.maximum(mi, m_tile)
            # Rows of this tile may be hidden altogether, but only after they have seen key 0.
            P = torch.exp(S - m_new[..., None])
            l_old = torch.exp(mi - m_new) * li
            l_new = l_old + P.sum(dim=-1)
            O[..., i : i + Br, :] = (l_old[..., None] * Oi + P @ Vj) / l_new[..., None]
            l[..., i : i + Br] = l_new
            m[..., i : i + Br] = m_new

    return O.to(q.dtype), m + torch.log(l)
