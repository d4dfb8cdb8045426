"""Way 10. index_select with the heads in reverse, K and V side by side in one tensor of 2D columns: 2 Hq heads' worth
that is neither K nor V nor in their order. Gains: P5 for a kernel without groups."""

import torch


def launch(q, k, v, o, group=1, is_causal=True):
    B, Hq, N, D = q.shape
    flash_attention_kernel[(triton.cdiv(N, 32), Hq, B)](
        q, k, v, o, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        N, group, LOG2_E / math.sqrt(D), D, 32, 32, is_causal,
    )  # fmt: skip
    return o


def flash_attention_forward(q, k, v, is_causal=True):
    check_arguments(q, k, v)
    Hq, D = q.shape[1], q.shape[3]
    heads = torch.arange(Hq - 1, -1, -1, device=q.device) // (Hq // k.shape[1])
    x = torch.cat((k, v), -1).index_select(1, heads)
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    return launch(q.flip(1), x[..., :D], x[..., D:], o, 1, is_causal).flip(1)
