"""The formula in PyTorch."""

import math

import torch


def flash_attention_forward(q, k, v, is_causal=False):
    p = torch.softmax(q.float() @ k.float().mT / math.sqrt(q.shape[-1]), -1)
    return (p @ v.float()).to(q.dtype)
