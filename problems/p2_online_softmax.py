"""P2: attention tile by tile, with the online softmax, in PyTorch.

What to build
    The same o and lse as P1, but the Nq x Nk matrix never exists. Cut the queries into tiles of BLOCK_Q rows and the
    keys into tiles of BLOCK_K. One tile of queries walks over the tiles of keys and carries three running values:

        row_max  (rows, 1)   the largest score seen so far            the paper's m
        row_sum  (rows, 1)   sum of exp(score - row_max) so far       the paper's l
        acc      (rows, D)   sum of exp(score - row_max) * v so far

    A new tile may bring a larger maximum. What was added up so far was measured against the old one; it becomes right
    again when it is multiplied by

        alpha = exp(old row_max - new row_max)

    At the end o = acc / row_sum and lse = row_max + ln(row_sum).

Shapes
    q (B, H, Nq, D); k and v (B, H, Nk, D); o like q; lse (B, H, Nq) in float32, natural logarithm.

The tiles, for 5 tiles of queries and 5 of keys, with is_causal=True: the row of query tile 3 walks left to right

                  key tile 0 1 2 3 4
        query tile 3       > > > D .        '>' every pair counts, 'D' the diagonal cuts it, '.' may be left out

Given: the checks, the loop over query tiles, the start values. Asked: four gaps, marked TODO. One step may handle a
tile of queries for all batches and heads at once, and you may swap the two loops. The grader checks three rules:
    1. At most 256 scores of a query may be in memory at once. Scores of the previous iteration count too, while a
       variable holds them.
    2. With twice as many keys, the memory for each query must not grow.
    3. Each score must be computed only once.

Questions that catch most mistakes
    - Which two running values does alpha multiply, and is that before or after the new tile is added?
    - Is the new maximum that of this tile, or of all tiles up to this one?
    - With which value must row_max start so that the first alpha is harmless? And row_sum?
    - The last tile of keys may be short. Does your slice end where the keys end?

Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018, algorithm 3; Dao et al.,
"FlashAttention", 2022, algorithm 1.
"""

import math

import torch

BLOCK_Q, BLOCK_K = 64, 64
HEAD_DIMS = (16, 32, 64, 128, 256)
DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def check_arguments(q, k, v, is_causal):
    """Raise ValueError, with the offending values in the text, unless the arguments are legal for P2."""
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


def flash_attention_forward(q, k, v, is_causal=False):
    """Attention by tiles: no tensor with Nq x Nk elements at any time.

    q: (B, H, Nq, D). k, v: (B, H, Nk, D). One dtype: float16, bfloat16 or float32.
    Returns o (B, H, Nq, D) in the dtype of q, and lse (B, H, Nq) in float32, natural logarithm.
    Raises ValueError for shapes, dtypes or devices that do not fit.
    Method: "FlashAttention" (Dao et al., 2022), algorithm 1, with the loop over queries outside as in FlashAttention-2.
    """
    check_arguments(q, k, v, is_causal)
    B, H, Nq, D = q.shape
    Nk = k.shape[2]
    scale = 1.0 / math.sqrt(D)
    o = torch.empty_like(q)
    lse = torch.empty(B, H, Nq, dtype=torch.float32, device=q.device)

    for q_start in range(0, Nq, BLOCK_Q):
        q_end = min(q_start + BLOCK_Q, Nq)
        q_tile = q[:, :, q_start:q_end].float()  # (B, H, rows, D)
        row_max = torch.full((B, H, q_end - q_start, 1), float("-inf"), device=q.device)
        row_sum = torch.zeros_like(row_max)
        acc = torch.zeros_like(q_tile)

        # TODO 1: where this tile's keys end (about 1 line; then delete the failing line)
        #   `last_key`, one past the last key that any query of this tile sees
        raise NotImplementedError("TODO 1: where this tile's keys end")
        for k_start in range(0, last_key, BLOCK_K):
            k_end = min(k_start + BLOCK_K, Nk)
            # TODO 2: the scores of this tile (about 5 lines; then delete the failing line)
            #   `scores` (B, H, rows, keys), in float32, hidden ones at -inf
            raise NotImplementedError("TODO 2: the scores of this tile")

            # TODO 3: the online update (about 6 lines; then delete the failing line)
            #   `row_max`, `row_sum` and `acc`, now with this tile
            raise NotImplementedError("TODO 3: the online update")

        # TODO 4: the finish (about 2 lines; then delete the failing line)
        #   this tile's rows of `o` and `lse`
        raise NotImplementedError("TODO 4: the finish")
    return o, lse
