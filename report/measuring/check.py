"""Is an output right? A slice of it, a few heads and rows but all keys, against float64: before anything is timed."""

import torch

from grader.engine.compare_values import mismatch
from grader.kinds.attention import oracle

ROWS = 256  # spread over the sequence
DOT_ROUNDINGS = 8  # of float32, that the matrix units make of a score's terms: they add with fewer bits than float32
HEADS = 3  # of all batches: the first, the middle, the last


class Rows:
    """A visibility seen from some rows only: its mask takes their numbers 0, 1, 2 ... as positions of queries."""

    def __init__(self, visibility, positions):
        self.visibility, self.positions = visibility, positions

    def mask(self, q_pos, k_pos):
        return self.visibility.mask(self.positions[q_pos], k_pos)


def spread_rows(N, device):
    return torch.linspace(0, N - 1, min(ROWS, N), device=device).round().long()


class Check:
    """What is right for q (B, H, N, D), k and v (B, Hkv, N, D), and how far off a kernel may be.

    The allowance is the grader's (oracle.expect). A kernel that rounds its scores to the dtype of q, as plain PyTorch
    does, may be off by what two roundings of a score s cost besides: to first order at most 2 eps max|s| sum(p |v|).
    rows: the positions of queries to look at; ROWS of them over the whole sequence by default.
    """

    def __init__(self, q, k, v, visibility, rows=None):
        B, H, N, _ = q.shape
        heads = sorted({0, B * H // 2, B * H - 1})[:HEADS]
        self.shape, self.dtype = q.shape, q.dtype
        self.heads = [(head // H, head % H) for head in heads]
        self.rows = spread_rows(N, q.device) if rows is None else rows
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
        terms = q.double().abs() @ k.double().abs().mT / q.shape[-1] ** 0.5
        self.dot_rounding = DOT_ROUNDINGS * torch.finfo(torch.float32).eps * terms.masked_fill(~seen, 0.0).amax(-1)

    def sample(self, x):
        """(1, heads, rows, D) of x (B, H, N, D); the same without D."""
        return torch.stack([x[b, h][self.rows] for b, h in self.heads])[None]

    def fault(self, o, rounds_scores=False):
        """`wrong: ...` if the output is, else None."""
        if o.shape != self.shape or o.dtype != self.dtype:
            return f"wrong: the output is {tuple(o.shape)} in {o.dtype}, not {tuple(self.shape)} in {self.dtype}"
        allowed = self.expected.allowed_o + (self.score_rounding if rounds_scores else 0.0)
        got = self.sample(o)
        found = mismatch(got.contiguous(), self.expected.o, allowed)
        if found is None:
            return None if o.isfinite().all() else "wrong: some elements are NaN or infinite"
        at = found.worst if found.worst_excess else found.first  # a NaN exceeds nothing
        error = (got.double() - self.expected.o).abs()[at].item()
        _, head, row, d = at
        place = (*self.heads[head], int(self.rows[row]), d)
        return f"wrong: off by {error:.1e} at (b, h, row, d) = {place}, where {allowed[at].item():.1e} is allowed"

    def fault_of_lse(self, lse):
        """The same of lse (B, H, N), float32; -inf where a row sees nothing."""
        if lse.shape != self.shape[:3] or lse.dtype != torch.float32:
            return f"wrong: lse is {tuple(lse.shape)} in {lse.dtype}, not {tuple(self.shape[:3])} in torch.float32"
        got, expected = self.sample(lse).double(), self.expected.lse
        allowed = self.expected.allowed_lse + self.dot_rounding
        close = ((got - expected).abs() <= allowed) | (got == expected)  # -inf is -inf
        if close.all():
            return None
        _, head, row = (~close).nonzero()[0].tolist()
        place = (*self.heads[head], int(self.rows[row]))
        return f"wrong: lse is {got[0, head, row]:.7g} at (b, h, row) = {place}, not {expected[0, head, row]:.7g}"
