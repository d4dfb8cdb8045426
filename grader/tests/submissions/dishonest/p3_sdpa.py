"""torch's own attention in the place of a kernel."""

import torch


def flash_attention_forward(q, k, v, is_causal=False):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)
