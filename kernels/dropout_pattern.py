"""The dropout of packed_block_sparse.py, densely and in PyTorch: which probabilities it keeps. For tests and readers.

A kernel that is cut into tiles drops the same pairs at every cut only where nothing but a pair's place decides. So no
generator runs on from tile to tile: each pair asks Philox, a cipher-like hash of a counter under a key, for a number of
its own. Counter: (key, query, head, sequence), positions within the sequence. Key: the seed.

Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011, section 5.2: Philox-4x32-10.
"""

import torch

LOW = 0xFFFFFFFF  # 32 bits; numbers here are int64, and products wrap around without harm
ROUNDS = 10


def philox(counter, seed):
    """The first of the four words of 32 bits (int64) that Philox-4x32-10 makes of a counter of four such words."""
    c0, c1, c2, c3 = counter
    k0, k1 = seed & LOW, seed >> 32
    for _ in range(ROUNDS):
        high_0, low_0 = product(c0, 0xD2511F53)
        high_2, low_2 = product(c2, 0xCD9E8D57)
        c0, c1, c2, c3 = high_2 ^ c1 ^ k0, low_2, high_0 ^ c3 ^ k1, low_0
        k0, k1 = (k0 + 0x9E3779B9) & LOW, (k1 + 0xBB67AE85) & LOW
    return c0


def product(word, factor):
    """(high, low) words of word * factor."""
    both = word * factor
    return both >> 32 & LOW, both & LOW


def kept(Nq, Nk, heads, batch, p_dropout, seed):
    """Booleans (heads, Nq, Nk) of sequence `batch`: the probabilities that dropout keeps, a part of 1 - p_dropout."""
    head, q_pos, k_pos = torch.arange(heads)[:, None, None], torch.arange(Nq)[:, None], torch.arange(Nk)
    words = philox((k_pos, q_pos, head, torch.tensor(batch)), seed)
    return (words >> 1 >= int(p_dropout * 2**31)).expand(heads, Nq, Nk)


def dropped_attention(q, k, v, visible, keep, p_dropout, softmax_scale=None):
    """(o (Nq, H, D), lse (H, Nq)) of one sequence, in float64: softmax, then dropout, then the values.

    q: (Nq, H, D). k, v: (Nk, H, D). visible, keep: booleans that broadcast to (H, Nq, Nk).
    """
    q, k, v = (x.double().transpose(0, 1) for x in (q, k, v))
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    scores = (q @ k.mT * scale).masked_fill(~visible, -torch.inf)
    lse = scores.logsumexp(-1)
    p = torch.exp(scores - lse.masked_fill(lse.isinf(), 0.0)[..., None])
    return (p * keep / (1 - p_dropout) @ v).transpose(0, 1), lse
