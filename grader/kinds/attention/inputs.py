"""Case and seed -> tensors: which values, and how they lie in memory."""

import math

import torch

from grader.course.tensors import Placed
from grader.engine.values import HUGE, OFFSET, SLOPE, frame
from grader.engine.values import generator as generator_of
from grader.engine.values import place as place_any

POISON_ROWS = 128  # past the end of each head: as many as the largest tile would read too far
UNEVEN = 6.0  # q and k apart from zero by this much: scores of +-36 * sqrt(D)
PEAK = 1000.0  # the highest score of a row: not even float64 takes its exp without the maximum
LOUD = 200.0  # k against the others: float32 does not take exp of such scores without a maximum
NEEDLES = 40  # keys, of which one is loud
LONG = 20.0  # q and k in halves of the head dim that the other leaves nearly empty
LOW, LOWER = 320.0, 416.0  # of a column of q and of -k, exact in bfloat16: scores of -12800 at D = 64, -10816 at 256
FAR_SCORE = 120_000.0  # beyond float16, and beyond a maximum that begins at -30000
FARTHEST_SCORE = 1_300_000.0  # beyond a hidden score of -1e6; float32 tells scores of this size 0.125 apart
FLAT = 1024.0  # of q, where float16 must hold it
WIDE = 2.0**18  # of q, where another dtype may: as float16 it is infinite


def make(case, seed):
    """q, k, v of `case` as Placed tensors on the CPU; the same case and seed always give the same numbers."""
    generator = generator_of(case, seed)
    q, k, v = VALUES[case.values](case, generator)
    dtype = getattr(torch, case.dtype)
    return tuple(place(values.to(dtype), case.layout, which) for which, values in (("q", q), ("k", k), ("v", v)))


# Values: float32 q (B, Hq, N, D), k and v (B, Hkv, Nk, D) ------------------------------------------------------------


def normal(case, generator):
    """Independent standard normal numbers, so that no two heads, batches or rows agree by chance."""
    q = torch.randn(case.B, case.Hq, case.N, case.D, generator=generator)
    k = torch.randn(case.B, case.kv_heads, case.num_keys, case.D, generator=generator)
    v = torch.randn(case.B, case.kv_heads, case.num_keys, case.D, generator=generator)
    return q, k, v


def sloped(sign):
    """Scores that rise or fall by about SLOPE with every key, over hundreds in all, around zero."""

    def values(case, generator):
        q, k, v = normal(case, generator)
        position = torch.arange(case.num_keys) - (case.num_keys - 1) / 2
        q = 4.0 + 0.5 * q
        k = (sign * SLOPE * position / (4.0 * math.sqrt(case.D)))[:, None] + 0.3 * k
        return q, k, v

    return values


def peaked(case, generator):
    """Scores that rise to PEAK at a key between the ends, and fall: no tile at an end knows a row's maximum."""
    q, k, v = normal(case, generator)
    top = case.num_keys * (0.4 + 0.2 * torch.rand(1, generator=generator))
    score = PEAK - SLOPE * (torch.arange(case.num_keys) - top).abs()
    return 4.0 + 0.1 * q, (score / (4.0 * math.sqrt(case.D)))[:, None] + 0.1 * k, v


def uneven(case, generator):
    """Scores hundreds above, or below, those of the next query and of the next head: each row needs its own maximum."""
    q, k, v = normal(case, generator)
    sign = 1.0 - 2.0 * ((torch.arange(case.Hq)[:, None] + torch.arange(case.N)) % 2)
    return q + UNEVEN * sign[..., None], k + UNEVEN, v


def low(case, generator):
    """All scores below -10000: a hidden score of -10000 would be the highest of its row."""
    q, k, v = normal(case, generator)
    column = LOW if case.D <= 64 else LOWER
    q[..., 0], k[..., 0] = column, -column
    return q, k, v


def level(score, spread=1.0):
    """All scores around `score`: one column of q and one of k, the same in every row, so that their rounding is, too.

    The others are multiples of what float32 tells apart in a sum of this size: in whatever order it is added up, it is
    exact, and what differs between honest kernels is how they scale it.
    """

    def values(case, generator):
        q, k, v = normal(case, generator)
        column = FLAT if case.dtype == "float16" else WIDE
        of_k = torch.tensor(score / case.scale / column).to(torch.bfloat16)
        apart = 2.0 ** (math.ceil(math.log2(abs(score) / case.scale)) - 24)
        step = max(0.5, 2 * apart)
        q, k = (spread * q / step).round() * step, (2 * k).round() / 2
        q[..., 0], k[..., 0] = column, of_k
        return q, k, v

    return values


def late(case, generator):
    """Small scores, but for a few keys of the last third, hundreds above or below: a look at some keys tells nothing.

    In float32 these keys have any direction, so that no bound on all scores is near a row's maximum. A narrower dtype
    would round q by more than scores may differ: there two keys lie along one axis, on both sides of zero.
    """
    q, k, v = normal(case, generator)
    last = case.num_keys - 1 - torch.randperm(max(1, case.num_keys // 3), generator=generator)
    if case.dtype == "float32":
        k[:, :, last[: max(1, case.num_keys // NEEDLES)]] *= LOUD
    else:
        axis = torch.randint(case.D, (), generator=generator)
        k[:, :, last[:2]] = 0.0
        k[:, :, last[:2], axis] = torch.tensor([PEAK, -PEAK])[: len(last)] * math.sqrt(case.D)
    return q, k, v


def orthogonal(case, generator):
    """Queries and keys a hundred times as long as their scores tell: a bound on a row's maximum says nothing of it."""
    q, k, v = normal(case, generator)
    first = torch.arange(case.D) < case.D // 2
    return torch.where(first, LONG * q, q / LONG), torch.where(first, k / LONG, LONG * k), v


def offset(case, generator):
    """Nearly equal scores and values around OFFSET: sums over keys grow large before they are divided."""
    q, k, v = normal(case, generator)
    return 0.1 * q, k, OFFSET + v


def zero_row(case, generator):
    """Normal numbers, but for one query of zeros: all its scores are exactly 0, which is no sign of a hidden key."""
    q, k, v = normal(case, generator)
    q[:, :, case.N // 2] = 0.0
    return q, k, v


VALUES = {
    "normal": normal, "falling": sloped(-1), "rising": sloped(+1), "uneven": uneven, "offset": offset,
    "orthogonal": orthogonal, "peaked": peaked, "late": late, "low": low, "zero row": zero_row,
    "lower": level(-FAR_SCORE), "lowest": level(-FARTHEST_SCORE, 4.0), "high": level(FAR_SCORE),
}  # fmt: skip

# Layouts: the last stride is 1; rows start at multiples of 16 bytes, as tensor descriptors demand, but in "odd rows" --

# By layout and tensor, the dim whose offsets pass 2**31 elements while its stride fits int32 (0 batches, 1 heads, 2
# rows); it must have three or more. No tensor can have two and be nested, so problems take turns.
FAR = {
    "far rows of q": {"q": 2, "k": 1, "v": 0}, "far rows of k": {"q": 0, "k": 2, "v": 1},
    "far rows of v": {"q": 1, "k": 0, "v": 2}, "far caches": {"k": 1, "v": 0},
}  # fmt: skip


def place(values, layout, which):
    """`values` (B, H, N, D) in a buffer of their own, laid out as `layout` says; what is left over is poison."""
    if layout == "mixed":
        layout = {"q": "contiguous", "k": "one token more", "v": "tokens first"}[which]
    if layout in FAR:
        return place_far(values, FAR[layout].get(which, 2))
    if layout in ("contiguous", "slice", "odd rows"):
        return place_any(values, layout)
    B, H, N, D = values.shape
    fill, size, window = {
        "interleaved": (0.0, (B, N, H, D), lambda t: t.transpose(1, 2)),
        "one token more": (HUGE, (B, N + 1, H, D), lambda t: t[:, :N].transpose(1, 2)),  # no stride of k is one of q
        "tokens first": (0.0, (N, H, B, D), lambda t: t.permute(2, 1, 0, 3)),
        "poisoned tail": (math.nan, (B, H, N + POISON_ROWS, D), lambda t: t[:, :, :N]),
    }[layout]
    return frame(values, fill, size, window)


def place_far(values, dim):
    """`values` with the offsets of one dim beyond int32; rows start at multiples of 16 elements, the others inside."""
    sizes, strides, below = values.shape, [0, 0, 0, 1], values.shape[3]
    for other in (2, 1, 0):
        if other != dim:
            strides[other], below = below, below * sizes[other]
    least = -(-(2**31) // max(1, sizes[dim] - 1))
    strides[dim] = max(-(-least // 16) * 16, below)
    return Placed(values.contiguous().reshape(-1), tuple(sizes), tuple(strides), sparse=True)
