"""Is an output right? A slice of it, a few heads and rows but all keys, against float64: before anything is timed."""

import torch

from grader import oracle
from grader.compare import mismatch

ROWS = 256  # spread over the sequence
HEADS = 3  # of all batches: the first, the middle, the last


class Rows:
    """A visibility seen from some rows only: its mask takes their numbers 0, 1, 2 ... as positions of queries."""

    def __init__(self, visibility, positions):
        self.visibility, self.positions = visibility, positions

    def mask(self, q_pos, k_pos):
        return self.visibility.mask(self.positions[q_pos], k_pos)


class Check:
    """What is right for q (B, H, N, D), k and v (B, Hkv, N, D), and how far off a kernel may be.

    The allowance is the grader's (oracle.expect). A kernel that rounds its scores to the dtype of q, as plain PyTorch
    does, may be off by what two roundings of a score s cost besides: to first order at most 2 eps max|s| sum(p |v|).
    """

    def __init__(self, q, k, v, visibility):
        B, H, N, _ = q.shape
        heads = sorted({0, B * H // 2, B * H - 1})[:HEADS]
        self.shape, self.dtype = q.shape, q.dtype
        self.heads = [(head // H, head % H) for head in heads]
        self.rows = torch.linspace(0, N - 1, min(ROWS, N), device=q.device).round().long()
        group = H // k.shape[1]
        q = self.sample(q)
        k, v = (torch.stack([x[b, h // group] for b, h in self.heads])[None] for x in (k, v))
        rows = Rows(visibility, self.rows)
        self.expected = oracle.expect(q, k, v, rows)
        scores = q.double() @ k.double().mT / q.shape[-1] ** 0.5
        seen = rows.mask(torch.arange(len(self.rows), device=q.device), torch.arange(N, device=q.device))
        largest = scores.abs().masked_fill(~seen, 0.0).amax(-1, keepdim=True)
        size = self.expected.allowed_o / self.expected.relative
        self.score_rounding = 2 * torch.finfo(q.dtype).eps * largest * size

    def sample(self, x):
        """(1, heads, rows, D) of x (B, H, N, D)."""
        return torch.stack([x[b, h][self.rows] for b, h in self.heads])[None]

    def fault(self, o, rounds_scores):
        """`wrong: ...` if the output is, else None."""
        if o.shape != self.shape or o.dtype != self.dtype:
            return f"wrong: the output is {tuple(o.shape)} in {o.dtype}, not {tuple(self.shape)} in {self.dtype}"
        allowed = self.expected.allowed_o + (self.score_rounding if rounds_scores else 0.0)
        got = self.sample(o)
        facts = mismatch(got.contiguous(), self.expected.o, allowed)
        if facts is None:
            return None if o.isfinite().all() else "wrong: some elements are NaN or infinite"
        at = facts["worst"] if facts["worst_excess"] else facts["first"]  # a NaN exceeds nothing
        error = (got.double() - self.expected.o).abs()[at].item()
        _, head, row, d = at
        place = (*self.heads[head], int(self.rows[row]), d)
        return f"wrong: off by {error:.1e} at (b, h, row, d) = {place}, where {allowed[at].item():.1e} is allowed"
