"""What is right, in float64, and how far a careful kernel may be from it."""

import math
from dataclasses import dataclass

import torch

CHUNK = 512  # queries at a time, so that long sequences fit in memory

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
FLOAT32_STEPS = (
    8  # roundings on the way from a score to o that every kernel has: scale, exp, rescale, sum, division ...
)


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
    k_pos = torch.arange(k.shape[2], device=q.device)
    parts = []
    for start in range(0, q.shape[2], CHUNK):
        rows = q[:, :, start : start + CHUNK]
        q_pos = torch.arange(start, start + rows.shape[2], device=q.device)
        scores = (rows @ k.mT * scale).masked_fill(~mask(q_pos, k_pos), -math.inf)
        lse = scores.logsumexp(-1)
        p = torch.exp(scores - torch.where(lse.isinf(), 0.0, lse)[..., None])
        parts.append((p @ v, lse, p @ v.abs()))
    return tuple(torch.cat(part, dim=2) for part in zip(*parts, strict=True))


def careful_kernels(q, k, v, mask, tf32, scale=None):
    """(o, lse) of every careful kernel."""
    for form in CAREFUL:
        yield careful(q, k, v, mask, *form, tf32, scale)
    yield merged(q, k, v, mask, MERGED_TILE, tf32, scale)


def careful(q, k, v, mask, tile, exp, direction, early, tf32, scale=None):
    """A careful kernel in the dtype of q: o rounded to it, as a kernel would store it, then float64; lse float32."""
    o, lse = unrounded(q, k, v, mask, tile, exp, direction, early, tf32, scale)
    return o.to(q.dtype).double(), lse


def unrounded(q, k, v, mask, tile, exp, direction, early, tf32, scale=None):
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
        k_pos = torch.arange(start, start + k_tile.shape[2], device=q.device)
        scores = (q @ k_tile.mT * scale).masked_fill(~mask(q_pos, k_pos), -math.inf)
        new_max = torch.maximum(row_max, scores.amax(-1, keepdim=True))
        pivot = new_max.masked_fill(new_max == -math.inf, 0.0)
        alpha, p = power(row_max - pivot), power(scores - pivot)
        rounded = p.to(dtype).float()
        row_sum = row_sum * alpha + (rounded if early else p).sum(-1, keepdim=True)
        acc = acc * alpha + dot_input(rounded) @ v_tile
        row_max = new_max
    o = acc / row_sum.masked_fill(row_sum == 0.0, 1.0)
    return o, (row_max / base + row_sum.log()).squeeze(-1)


def merged(q, k, v, mask, tile, tf32, scale=None):
    """A careful kernel that finishes every tile by itself and merges the parts through their lse, as split-K does.

    Takes and returns what `careful` does. Method: Dao et al., "Flash-Decoding for long-context inference", 2023.
    """
    parts = []
    for start in range(0, k.shape[2], tile):
        k_tile, v_tile = k[:, :, start : start + tile], v[:, :, start : start + tile]

        def shifted(q_pos, k_pos, start=start):
            return mask(q_pos, k_pos + start)

        parts.append(unrounded(q, k_tile, v_tile, shifted, tile, "exp", 1, False, tf32, scale))
    o, lse = parts[0]
    for o_part, lse_part in parts[1:]:
        both = torch.logaddexp(lse, lse_part)
        pivot = both.masked_fill(both == -math.inf, 0.0)
        o = torch.exp(lse - pivot)[..., None] * o + torch.exp(lse_part - pivot)[..., None] * o_part
        lse = both
    return o.to(q.dtype).double(), lse


def drop_to_tf32(x):
    """float32 with the 13 low bits of the mantissa dropped: what the tensor core reads of a float32."""
    return (x.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)


def expect(q, k, v, visibility, tf32=False, scale=None):
    """Expected for tensors in the input's dtype.

    The allowance is twice the error that careful kernels make on these very inputs, relative to the size of what is
    added up (the sum of p * |v|), and never below twice the dtype's rounding of it and the few float32 roundings that
    every kernel has: with few elements, chance alone would make the measured error too small. lse is computed in
    float32 whatever the dtype, and is allowed twice the error of the careful kernels' lse; -inf must be met exactly.

    Why twice: 40 honest forms (tiles of 16 keys up to all, in three orders; exp or exp2; q scaled in its dtype or not;
    p rounded before its sum or not), on every case at 20 seeds, use at most 0.84 of what is allowed for o and 0.81 for
    lse: 1.68 times would do, and a sixth is left for forms not thought of. An accumulator in float16 is rejected in
    each of P1 to P7 at each of the seeds. tests/reference/honest_forms.py measures it.
    """
    o, lse, size = attention(q, k, v, visibility.mask, scale)
    error_o = error_lse = 0.0
    lse_size = lse.abs().clamp(min=1.0).masked_fill(lse.isinf(), 1.0)
    for near_o, near_lse in careful_kernels(q, k, v, visibility.mask, tf32, scale):
        error_o = max(error_o, ((near_o - o).abs() / size.clamp(min=1e-300)).max().item())
        off = torch.where(lse.isinf(), 0.0, (near_lse.double() - lse).abs() / lse_size)  # some rows see nothing
        error_lse = max(error_lse, off.max().item())
    info = torch.finfo(q.dtype)
    statistics = FLOAT32_STEPS * torch.finfo(torch.float32).eps / 2
    relative = 2 * max(error_o, info.eps / 2 + statistics)
    relative_lse = 2 * max(error_lse, statistics)
    return Expected(o, lse, relative * size + info.smallest_normal * info.eps, relative_lse * lse_size, relative)
