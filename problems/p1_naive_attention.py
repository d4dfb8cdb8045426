"""P1: naive attention, in PyTorch.

What to build
    Scaled dot-product attention, written down as the formula says, with the whole score matrix in memory:

        scores = q k^T / sqrt(D)            (Nq x Nk for each batch and head)
        p      = softmax(scores)            over the keys
        o      = p v
        lse    = ln(sum over keys of exp(scores))

    It is slow and it is what every later problem is measured against: first know what is right.

Shapes
    q (B, H, Nq, D); k and v (B, H, Nk, D); o like q; lse (B, H, Nq) in float32, natural logarithm.
    float16, bfloat16 or float32; Nq and Nk may differ unless the mask is causal.

The matrix, for Nq = Nk = 5 and is_causal=True ('#' counts, '.' is hidden)

                 key 0 1 2 3 4
        query 0      # . . . .
        query 1      # # . . .
        query 2      # # # . .
        query 3      # # # # .
        query 4      # # # # #

Given: the checks of the arguments. Asked: three gaps, marked TODO.

Questions that catch most mistakes
    - float16 ends at 65504, and e^12 is already past it. What must be subtracted before exp, and over which axis?
    - q and k may be float16. In which dtype do you want their products to be added up?
    - Which value must a hidden score have, so that its probability is exactly 0?
    - lse must be right for the scores as they were. What did you subtract from them on the way?

Source: Vaswani et al., "Attention Is All You Need", 2017, section 3.2.1.
"""

import math

import torch

HEAD_DIMS = (16, 32, 64, 128, 256)
DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def check_arguments(q, k, v, is_causal):
    """Raise ValueError, with the offending values in the text, unless the arguments are legal for P1."""
    shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
    if not q.dim() == k.dim() == v.dim() == 4 or 0 in (*q.shape, *k.shape, *v.shape):
        raise ValueError(f"q, k and v must be (B, H, N, D) with no empty dimension; got {shapes}")
    if k.shape != v.shape or q.shape[:2] != k.shape[:2] or q.shape[3] != k.shape[3]:
        raise ValueError(f"k and v must have one shape, and B, H and D of q; got {shapes}")
    if q.shape[3] not in HEAD_DIMS:
        raise ValueError(f"head dim must be one of {HEAD_DIMS}; got D={q.shape[3]}")
    if not q.dtype == k.dtype == v.dtype or q.dtype not in DTYPES:
        raise ValueError(f"q, k and v must share one dtype of {DTYPES}; got {q.dtype}, {k.dtype}, {v.dtype}")
    if not q.device == k.device == v.device:
        raise ValueError(f"q, k and v must be on one device; got {q.device}, {k.device}, {v.device}")
    if is_causal and q.shape[2] != k.shape[2]:
        raise ValueError(f"a causal mask needs Nq == Nk; got Nq={q.shape[2]}, Nk={k.shape[2]}")


def naive_attention(q, k, v, is_causal=False):
    """Attention with the whole score matrix in memory.

    q: (B, H, Nq, D). k, v: (B, H, Nk, D). One dtype: float16, bfloat16 or float32.
    Returns o (B, H, Nq, D) in the dtype of q, and lse (B, H, Nq) in float32, natural logarithm.
    Raises ValueError for shapes, dtypes or devices that do not fit.
    """
    check_arguments(q, k, v, is_causal)
    scale = 1.0 / math.sqrt(q.shape[-1])

    # TODO 1: the scaled scores (about 1 line; then delete the failing line)
    #   `scores` (B, H, Nq, Nk), added up in float32
    raise NotImplementedError("TODO 1: the scaled scores")

    if is_causal:
        # TODO 2: hide from each query the keys that come after it (about 2 lines; then delete the failing line)
        raise NotImplementedError("TODO 2: hide from each query the keys that come after it")

    # TODO 3: the stable softmax and its results (about 5 lines; then delete the failing line)
    #   `o` (B, H, Nq, D) in the dtype of q, and `lse` (B, H, Nq) in float32
    raise NotImplementedError("TODO 3: the stable softmax and its results")
    return o, lse
