"""Decode as people write it without a kernel of their own: what a timing compares with; it imports torch alone."""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

BACKENDS = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]  # the second where there is no GPU


def naive_decode(q, k_cache, v_cache, lengths):
    """SDPA of one new token over dense caches: K and V are copied out to all query heads, lengths become a mask."""
    group = q.shape[1] // k_cache.shape[1]
    k, v = (cache.repeat_interleave(group, dim=1) for cache in (k_cache, v_cache))
    seen = torch.arange(k.shape[2], device=q.device) < lengths[:, None, None, None]
    with sdpa_kernel(BACKENDS):
        return scaled_dot_product_attention(q, k, v, attn_mask=seen)


def fill_caches(k_cache):
    """(lengths,) of caches without room."""
    return (torch.full(k_cache.shape[:1], k_cache.shape[2], dtype=torch.int32, device=k_cache.device),)
