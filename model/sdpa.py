"""Attention and decoding by PyTorch's own function, with every option that the model has: what others are held beside.

A learned sink logit is a key of zeros whose score the mask sets, and whose value is zero.
"""

import torch
from torch.nn import functional


def attend(q, k, v, is_causal=True, window_size=None, sink_size=0, sink_logits=None):
    """As kernels.attention_op.attention: q (B, Hq, N, D), k and v (B, Hkv, N, D). Returns o (B, Hq, N, D)."""
    if is_causal and window_size is None and sink_logits is None:
        k, v = (spread(each, q) for each in (k, v))
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    position = torch.arange(q.shape[2], device=q.device)
    return masked(q, k, v, visible(position, position, is_causal, window_size, sink_size)[None], sink_logits)


def decode(
    q, k_cache, v_cache, lengths, block_table=None, sink_logits=None, window_size=None, softmax_scale=None
):  # fmt: skip
    """As x4's decode_attention, of caches without pages: q (B, Hq, Nq, D), the newest tokens; lengths (B,)."""
    if block_table is not None or softmax_scale is not None:
        raise ValueError("here a cache has no pages, and the scale is 1 / sqrt(D)")
    most = int(lengths.max())
    new = lengths.long()[:, None] - q.shape[2] + torch.arange(q.shape[2], device=q.device)
    seen = visible(new, torch.arange(most, device=q.device), True, window_size, 0)
    return masked(q, k_cache[:, :, :most], v_cache[:, :, :most], seen, sink_logits)


def visible(q_position, k_position, is_causal, window_size, sink_size):
    """Which keys a query sees, (..., Nq, Nk), of positions (..., Nq) and (Nk,)."""
    age = q_position[..., None] - k_position
    seen = age >= 0 if is_causal else torch.ones_like(age, dtype=torch.bool)
    if window_size is not None:
        seen &= (age < window_size) | (k_position < sink_size)
    return seen


def masked(q, k, v, seen, sink_logits):
    """seen: (B or 1, Nq, Nk)."""
    k, v = (spread(each, q) for each in (k, v))
    if sink_logits is None:
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=seen[:, None])
    bias = torch.zeros(seen.shape, dtype=q.dtype, device=q.device).masked_fill(~seen, float("-inf"))
    column = sink_logits.to(q.dtype)[None, :, None, None].expand(seen.shape[0], -1, seen.shape[1], 1)
    bias = torch.cat([bias[:, None].expand(-1, len(sink_logits), -1, -1), column], 3)
    k, v = (functional.pad(each, (0, 0, 0, 1)) for each in (k, v))
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)


def spread(x, q):
    """Keys or values for every query head: not each backend takes fewer."""
    return x.repeat_interleave(q.shape[1] // x.shape[1], 1)
