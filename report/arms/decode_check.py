"""Is a decode right? Some of its heads against float64, before it is timed."""

import torch

from grader.engine.compare_values import mismatch
from grader.kinds.attention import oracle


class Seen:
    """The mask of the newest `new` tokens of a sequence, as the oracle takes it."""

    def __init__(self, length, new, window):
        self.first, self.window = length - new, window or length

    def mask(self, q_pos, k_pos):
        age = self.first + q_pos[:, None] - k_pos[None, :]
        return (age >= 0) & (age < self.window)


def expect(q, k_cache, v_cache, lengths, table, sink, window):
    """[(sequence, query heads, Expected without logits)]: first and last kv head of the first and the last sequence."""
    B, Hq, Nq, _ = q.shape
    kv_heads, found = k_cache.shape[1 if table is None else 2], []
    some = sorted({0, kv_heads - 1})
    heads = torch.arange(Hq, device=q.device).view(kv_heads, -1)[some].flatten()
    for b in sorted({0, B - 1}):
        length = int(lengths[b])
        caches = (
            x[b] if table is None else x[table[b].long()].flatten(0, 1).transpose(0, 1) for x in (k_cache, v_cache)
        )
        k, v = (x[some, :length][None] for x in caches)
        found.append((b, heads, oracle.expect(q[b, heads][None], k, v, Seen(length, Nq, window), tf32=q.is_cuda)))
    return found


def fault(o, expected, sink):
    """`wrong: ...` if o is, else None. A logit takes its part of each row's weight: e^sink beside e^lse."""
    for b, heads, right in expected:
        part = 1.0 if sink is None else torch.sigmoid(right.lse - sink[heads][None, :, None])[..., None]
        if found := mismatch(o[b, heads][None].contiguous(), right.o * part, right.allowed_o):
            return f"wrong: {found.wrong} of {found.total} elements of sequence {b}, by up to {found.worst_excess:.1f}x"
    return None if o.isfinite().all() else "wrong: some elements are NaN or infinite"
