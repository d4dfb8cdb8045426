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
        query tile 3       > > > D .        '>' every pair counts, 'D' the diagonal cuts it, '.' never visited

Given: the checks, the loop over query tiles, the start values. Asked: four gaps, marked TODO. One tile of queries of
all batches and heads at once is welcome, and either order of the two loops. The grader measures three things: no tensor
holds all queries with more than 256 keys; the elements that are alive at once and depend on one query are no more on a
row of twice as many keys; each score is computed once. A tensor is alive while a variable holds it, also the variable
of the tile before.

Questions that catch most mistakes
    - Which two of the three running values does alpha touch, and in which order with the new tile's part?
    - Is the new maximum that of this tile, or of all tiles up to this one?
    - With which value must row_max start so that the first alpha is harmless? And row_sum?
    - The last tile of keys may be short. Does your slice end where the keys end?

Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018, algorithm 3; Dao et al.,
"FlashAttention", 2022, algorithm 1.
"""

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
    """RED TEAM 05. No online softmax: the pivot is the largest score of 16 keys of the row, and of the query's own key."""
    check_arguments(q, k, v, is_causal)
    B, H, Nq, D = q.shape
    Nk = k.shape[2]
    scale = D**-0.5
    o = torch.empty_like(q)
    lse = torch.empty(B, H, Nq, dtype=torch.float32, device=q.device)
    for a in range(0, Nq, BLOCK_Q):
        e = min(a + BLOCK_Q, Nq)
        qt = q[:, :, a:e].double()
        if is_causal:
            m = (qt * k[:, :, a:e].double()).sum(-1, keepdim=True)
        else:
            m = (qt @ k[:, :, :: max(1, Nk // 16)].double().mT).amax(-1, keepdim=True)
        m = m * scale + (300 if not is_causal else 0)
        l, acc = torch.zeros_like(m), torch.zeros_like(qt)
        for b in range(0, e if is_causal else Nk, BLOCK_K):
            s = qt @ k[:, :, b : b + BLOCK_K].double().mT * scale
            if is_causal:
                s = s.masked_fill(torch.arange(b, b + s.shape[3]) > torch.arange(a, e)[:, None], float("-inf"))
            p = torch.exp(s - m)
            del s
            l = l + p.sum(-1, keepdim=True)
            acc = acc + p @ v[:, :, b : b + BLOCK_K].double()
            del p
        o[:, :, a:e] = (acc / l).to(q.dtype)
        lse[:, :, a:e] = (m + l.log())[..., 0]
    return o, lse
