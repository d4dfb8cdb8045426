"""What is right, in float64, and how far a careful kernel may be from it."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch

from grader.engine.careful import FLOAT32_STEPS, drop_to_tf32

# The careful kernels are run on some heads, spread evenly over all batches: at least so many of them, and so many rows;
# of a head on about so many rows.
MEASURED_HEADS, MEASURED_ROWS, MEASURED_OF_A_HEAD = 2, 2048, 2048
TF32 = 2.0**-10  # what dropping 13 bits of a float32 takes away at the most
FEW_ROWS = 512  # of all heads and batches
CHUNK = 128  # queries at a time: few enough that a mask leaves most keys out of what they see

# The careful kernels that the allowance is measured on: tile of keys, exp or exp2, direction, and whether it rounds
# early: the scale goes into q before the dot, in the dtype, as in early Triton kernels, and p is rounded to the dtype
# before its sum is taken. They differ in what a correct kernel may choose.
CAREFUL = (
    (32, "exp2", 1, False),
    (64, "exp", -1, False),
    (128, "exp", -1, True),
    (64, "exp2", 1, True),
    (1 << 30, "exp", 1, False),
)
MERGED_TILE = 64


@dataclass
class Expected:
    """The right answer and the allowed distance from it, all float64.

    o, allowed_o: (B, Hq, Nq, D). lse, allowed_lse: (B, Hq, Nq). relative: allowed_o over the size of what was added up.
    """

    o: torch.Tensor
    lse: torch.Tensor
    allowed_o: torch.Tensor
    allowed_lse: torch.Tensor
    relative: float


def attention(q, k, v, mask, scale=None, kv_heads=None):
    """Attention in float64.

    q: (B, Hq, Nq, D). k, v: (B, Hkv, Nk, D). mask(q_pos, k_pos) -> bool (Nq, Nk), True where visible.
    kv_heads: for each query head the head of k and v that it reads; head // (Hq // Hkv) by default.
    Returns o, lse (natural logarithm) and size, the sum over keys of p * |v|: what o is rounded against.
    Method: Vaswani et al., 2017, section 3.2.1.
    """
    Hq, D = q.shape[1], q.shape[3]
    if kv_heads is None:
        kv_heads = torch.arange(Hq, device=q.device) // (Hq // k.shape[1])
    q, k, v = q.double(), k.double()[:, kv_heads], v.double()[:, kv_heads]
    scale = 1.0 / math.sqrt(D) if scale is None else scale
    k_pos, values = torch.arange(k.shape[2], device=q.device), torch.cat([v, v.abs()], 3)
    parts = []
    for start in range(0, q.shape[2], CHUNK):
        rows = q[:, :, start : start + CHUNK]
        q_pos = torch.arange(start, start + rows.shape[2], device=q.device)
        seen = mask(q_pos, k_pos)
        some = seen.flatten(0, -2).any(0)
        keys = slice(None) if some.all() else some.nonzero()[:, 0] if some.any() else slice(1)
        scores = (rows @ k[:, :, keys].mT).mul_(scale).masked_fill_(~seen[..., keys], -math.inf)
        row_max = scores.amax(-1, keepdim=True)
        p = scores.sub_(row_max.masked_fill(row_max == -math.inf, 0.0)).exp_()
        row_sum = p.sum(-1, keepdim=True)
        both = p @ values[:, :, keys] / row_sum.masked_fill(row_sum == 0.0, 1.0)
        parts.append((both[..., :D], (row_max + row_sum.log()).squeeze(-1), both[..., D:]))
    return tuple(torch.cat(part, dim=2) for part in zip(*parts, strict=True))


def careful_kernels(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Callable, tf32: bool, scale: float | None = None
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """(o, lse) of every careful kernel: o rounded to the dtype of q, as a kernel stores it, in float64; lse float32."""
    for form in CAREFUL:
        o, lse = compute_online(q, k, v, mask, *form, tf32, scale)
        yield o.to(q.dtype).double(), lse
    o, lse = merge_tiles(q, k, v, mask, MERGED_TILE, tf32, scale)
    yield o.to(q.dtype).double(), lse


def compute_online(q, k, v, mask, tile, exp, direction, early, tf32, scale=None):
    """The online softmax: dots of dtype inputs added up in float32, statistics in float32; o and lse in float32.

    Rows that see no key get o = 0 and lse = -inf.
    tf32: round the inputs of float32 dots to tf32's 10 bits, as Triton's dots on a GPU do by default.
    Method: Dao, "FlashAttention-2", 2023, algorithm 1.
    """
    dtype = q.dtype
    group = q.shape[1] // k.shape[1]
    dot_input = drop_to_tf32 if tf32 and dtype == torch.float32 else (lambda x: x)
    base = math.log2(math.e) if exp == "exp2" else 1.0
    power = torch.exp2 if exp == "exp2" else torch.exp
    scale = base * (1.0 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if early:
        q, scale = (q.float() * scale).to(dtype), 1.0
    q, k, v = (dot_input(x.float()) for x in (q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)))
    q_pos = torch.arange(q.shape[2], device=q.device)
    row_max = torch.full((*q.shape[:3], 1), -math.inf, device=q.device)
    row_sum, acc = torch.zeros_like(row_max), torch.zeros_like(q)
    for start in range(0, k.shape[2], tile)[::direction]:
        k_tile, v_tile = k[:, :, start : start + tile], v[:, :, start : start + tile]
        seen = mask(q_pos, torch.arange(start, start + k_tile.shape[2], device=q.device))
        rows = rows_that_see(seen)
        before = row_max[:, :, rows]
        scores = (q[:, :, rows] @ k_tile.mT).mul_(scale).masked_fill_(~seen[..., rows, :], -math.inf)
        new_max = torch.maximum(before, scores.amax(-1, keepdim=True))
        pivot = new_max.masked_fill(new_max == -math.inf, 0.0)
        alpha, p = power(before - pivot), power(scores.sub_(pivot), out=scores)
        rounded = p.to(dtype).float()
        row_sum[:, :, rows] = row_sum[:, :, rows] * alpha + (rounded if early else p).sum(-1, keepdim=True)
        acc[:, :, rows] = acc[:, :, rows] * alpha + dot_input(rounded) @ v_tile
        row_max[:, :, rows] = new_max
    o = acc / row_sum.masked_fill(row_sum == 0.0, 1.0)
    return o, (row_max / base + row_sum.log()).squeeze(-1)


def rows_that_see(seen: torch.Tensor) -> slice:
    """A slice from the first to the last query that sees a key, of any head; what none sees changes no row."""
    if seen.all():
        return slice(None)
    rows = (seen.any(-1).flatten(0, -2).any(0) if seen.dim() > 2 else seen.any(-1)).nonzero()[:, 0].tolist()
    return slice(rows[0], rows[-1] + 1) if rows else slice(0)


def merge_tiles(q, k, v, mask, tile, tf32, scale=None):
    """A kernel that finishes every tile by itself and merges the parts through their lse, as split-K does; float32.

    Method: Dao et al., "Flash-Decoding for long-context inference", 2023.
    """
    o, lse = q.new_zeros(q.shape, dtype=torch.float32), q.new_full(q.shape[:3], -math.inf, dtype=torch.float32)
    q_pos = torch.arange(q.shape[2], device=q.device)
    for start in range(0, k.shape[2], tile):
        k_tile, v_tile = k[:, :, start : start + tile], v[:, :, start : start + tile]
        seen = mask(q_pos, torch.arange(start, start + k_tile.shape[2], device=q.device))
        rows = rows_that_see(seen)
        own = partial(lambda seen, q_pos, k_pos: seen, seen[..., rows, :])
        o_part, lse_part = compute_online(q[:, :, rows], k_tile, v_tile, own, tile, "exp", 1, False, tf32, scale)
        both = torch.logaddexp(lse[:, :, rows], lse_part)
        pivot = both.masked_fill(both == -math.inf, 0.0)
        old, new = (torch.exp(each - pivot)[..., None] for each in (lse[:, :, rows], lse_part))
        o[:, :, rows], lse[:, :, rows] = old * o[:, :, rows] + new * o_part, both
    return o, lse


@dataclass(frozen=True)
class Heads:
    """Some queries of some query heads of a call, as one batch: q, k and v (1, heads, N, D).

    heads: their numbers among all. rows: positions of the queries. batches, of_batch: how many batches the call has,
    and query heads each.
    """

    batches: int
    of_batch: int
    heads: list[int]
    rows: torch.Tensor
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor

    def restrict(self, mask: Callable) -> Callable:
        """The same mask of these heads; one that is for all heads stays."""

        def restricted(q_pos, k_pos):
            seen = mask(self.rows[q_pos], k_pos)
            return seen if seen.dim() == 2 else self.take(seen.expand(self.batches, self.of_batch, *seen.shape[2:]))

        return restricted

    def take(self, tensor: torch.Tensor) -> torch.Tensor:
        """These heads of a tensor (B, Hq, N, ...), as one batch."""
        return tensor.flatten(0, 1)[self.heads][None]


def spread_heads(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Heads:
    """Query heads with their own k and v, the first and the last of all among them: all where rows are few.

    Of long rows some queries, the last among them.
    """
    B, Hq = q.shape[:2]
    count = min(B * Hq, max(MEASURED_HEADS, -(-MEASURED_ROWS // q.shape[2])))
    heads = [i * (B * Hq - 1) // max(1, count - 1) for i in range(count)]
    of_kv = [i // Hq * k.shape[1] + i % Hq // (Hq // k.shape[1]) for i in heads]
    rows = torch.arange(q.shape[2] - 1, -1, -max(1, q.shape[2] // MEASURED_OF_A_HEAD), device=q.device).flip(0)
    some_q = q.flatten(0, 1)[heads][None][:, :, rows]
    return Heads(B, Hq, heads, rows, some_q, *(x.flatten(0, 1)[of_kv][None] for x in (k, v)))


def expect(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, visibility, tf32: bool = False, scale: float | None = None
) -> Expected:
    """Expected for tensors in the input's dtype.

    The allowance is twice the error that careful kernels make on these very inputs, relative to the size of what is
    added up (the sum of p * |v|), and never below twice the dtype's rounding of it and the few float32 roundings that
    every kernel has: with few elements, chance alone would make the measured error too small; so that with few rows it
    is also never below what the scores' own roundings make. Added is one float32 rounding of the column's largest
    value, for kernels that take v's mean off and add it again. lse is computed in float32 whatever the dtype, and is
    allowed twice the error of the careful kernels' lse; -inf must be met exactly.

    Why twice: 40 honest forms (tiles of 16 keys up to all, in three orders; exp or exp2; q scaled in its dtype or not;
    p rounded before its sum or not) use less than 0.9 of what is allowed for o and for lse, on every case: 1.8 times
    would do, and a tenth is left for forms not thought of. An accumulator in float16 is rejected in each of P1 to P7.
    tests/kinds/honest_forms.py measures it.
    """
    o, lse, size = attention(q, k, v, visibility.mask, scale)
    error_o = error_lse = 0.0
    lse_size = lse.abs().clamp(min=1.0).masked_fill(lse.isinf(), 1.0)
    some = spread_heads(q, k, v)
    some_o, some_lse, some_size, some_lse_size = (some.take(x)[:, :, some.rows] for x in (o, lse, size, lse_size))
    for near_o, near_lse in careful_kernels(some.q, some.k, some.v, some.restrict(visibility.mask), tf32, scale):
        error_o = max(error_o, ((near_o - some_o).abs() / some_size.clamp(min=1e-300)).max().item())
        off = torch.where(some_lse.isinf(), 0.0, (near_lse.double() - some_lse).abs() / some_lse_size)  # sees nothing
        error_lse = max(error_lse, off.max().item())
    info = torch.finfo(q.dtype)
    statistics = FLOAT32_STEPS * torch.finfo(torch.float32).eps / 2
    rounding = TF32 if tf32 and q.dtype == torch.float32 else info.eps / 2
    relative = 2 * max(error_o, rounding + statistics)
    relative_lse = 2 * max(error_lse, statistics)
    largest = v.abs().amax(2, keepdim=True).double().repeat_interleave(q.shape[1] // k.shape[1], 1)
    allowed = relative * size + info.smallest_normal * info.eps + torch.finfo(torch.float32).eps * largest
    if q.shape[0] * q.shape[1] * q.shape[2] <= FEW_ROWS:
        allowed = torch.maximum(allowed, allow_for_scores(q, k, v, visibility.mask, scale))
    return Expected(o, lse, allowed, relative_lse * lse_size, relative)


def allow_for_scores(q, k, v, mask, scale=None):
    """(B, Hq, Nq, D), float64: twice what o is off by where float32 adds up each score with an error of its own.

    A score's error is a rounding of the sum of |q| |k|, which grows with the root of D. All careful kernels add a
    score up in one order, and of few scores none may happen to show how far another order is off.
    """
    group, scale = q.shape[1] // k.shape[1], 1.0 / math.sqrt(q.shape[3]) if scale is None else scale
    q, k, v = q.double(), k.double().repeat_interleave(group, 1), v.double().repeat_interleave(group, 1)
    seen = mask(torch.arange(q.shape[2], device=q.device), torch.arange(k.shape[2], device=q.device))
    scores = (q @ k.mT * scale).masked_fill(~seen, -math.inf)
    p = torch.exp(scores - scores.amax(-1, keepdim=True).nan_to_num(neginf=0.0))
    p = p / p.sum(-1, keepdim=True).clamp(min=1e-300)
    rounding = torch.finfo(torch.float32).eps * max(1.0, math.sqrt(q.shape[3]) / 2)
    off = p * (1.0 - p) * (q.abs() @ k.abs().mT) * scale * rounding
    return 2 * (off @ v.abs())
