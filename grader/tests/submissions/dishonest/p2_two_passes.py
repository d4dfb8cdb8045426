"""Way 8. Tiles of 64 keys, twice: the first walk finds the maximum of every row, the second adds up. Nothing is carried
and rescaled. Gains: P2 without the online softmax."""

import torch


def flash_attention_forward(q, k, v, is_causal=False):
    check_arguments(q, k, v, is_causal)
    o, lse = torch.empty_like(q), torch.empty(q.shape[:3], device=q.device)

    def tiles(rows, i):
        for at in range(0, k.shape[2], 64):
            s = rows @ k[:, :, at : at + 64].float().mT
            j = torch.arange(at, at + s.shape[3], device=q.device)
            yield s.masked_fill(j > i, float("-inf")) if is_causal else s, v[:, :, at : at + 64].float()

    for start in range(0, q.shape[2], 64):
        rows = q[:, :, start : start + 64].float() * q.shape[3] ** -0.5
        i = torch.arange(start, start + rows.shape[2], device=q.device)[:, None]
        m = torch.stack([s.amax(-1) for s, _ in tiles(rows, i)]).amax(0)[..., None]
        l, acc = torch.zeros_like(m), torch.zeros_like(rows)
        for s, values in tiles(rows, i):
            p = torch.exp(s - m)
            l += p.sum(-1, keepdim=True)
            acc += p @ values
        o[:, :, start : start + 64] = (acc / l).to(q.dtype)
        lse[:, :, start : start + 64] = (m + l.log())[..., 0]
    return o, lse
