"""Packed sequences under a mask of blocks: the form of X1 that training and vision models call. No problem of its own.

What it does
    Sequences of any length, 0 among them, lie one after the other without padding: sequence b has the tokens
    cu_seqlens[b] to cu_seqlens[b + 1]. What each may look at is a grid of blocks, 0 or 1, coarse enough to be chosen by
    a model. A block is row_factor x col_factor tiles of the kernel; those of a 0 are in no list and are never loaded.

        base mask        tiles of block 128 x 128, tile 64 x 64        under is_causal
          1 . .            F F . . . .                                   C . . . . .
          . 1 .            F F . . . .                                   F C . . . .
          1 . 1            . . F F . .                                   . . C . . .
                           . . F F . .                                   . . F C . .
                           F F . . F F                                   F F . . C .
                           F F . . F F                                   F F . . F C

    Each head is sparse, under the base mask, or dense: it walks all tiles. Causal is aligned at the bottom right, as in
    FlashAttention since 2.1: query i of Nq sees key j of Nk when j <= i + Nk - Nq. The last query sees all; where
    Nq > Nk, the first Nq - Nk see nothing.

Shapes
    q and o (total_q, Hq, D); k and v (total_k, Hkv, D); Hq a multiple of Hkv; any strides but the last, which is 1:
    slices of one (total, 3, H, D) will do. lse (Hq, total_q), float32, natural logarithm. A query that sees no key gets
    zeros, and lse = -inf; never NaN.

Dropout
    Philox-4x32-10 under the seed says which probabilities are kept, from (key, query, head, sequence) alone, positions
    being those within the sequence: no tile shape, list or neighbour in the batch changes it. dropout_pattern.py gives
    the same pattern densely. Kept ones are divided by 1 - p_dropout; lse is that of the softmax before dropout.

Source: Dao et al., "FlashAttention", 2022, section 3.3 (blocks) and appendix B (dropout); Salmon et al., "Parallel
random numbers: as easy as 1, 2, 3", 2011 (Philox).
"""

import math
import os
from dataclasses import dataclass
from itertools import pairwise

import torch
import triton
import triton.language as tl

HEAD_DIMS = (16, 32, 64, 128, 256)
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
LOG2_E = 1.4426950408889634
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


# The lists -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TileLists:
    """The tiles of keys that each program visits; made once, they serve every layer of a model.

    programs: int32 (programs, 2), each a sequence and a tile of its queries. columns: int32, the tiles of keys of all
    lists. bounds: int32 (maps, programs, 3), where in `columns` a program's list begins, where in it the tiles that
    need a mask begin, and where it ends. maps: int32 (Hq,), the map of each head. totals: tokens of q and of k.
    """

    programs: torch.Tensor
    columns: torch.Tensor
    bounds: torch.Tensor
    maps: torch.Tensor
    cu_seqlens_q: torch.Tensor
    cu_seqlens_k: torch.Tensor
    totals: tuple[int, int]
    tile: tuple[int, int]
    is_causal: bool


def tile_lists(cu_seqlens_q, cu_seqlens_k, Hq, base_mask=None, block=(128, 128), sparse_heads=None, is_causal=False,
               tile=(64, 64)):  # fmt: skip
    """The TileLists of a batch; arguments as in `packed_block_sparse_attention`. Waits for the GPU."""
    check_sizes(block, tile)
    q_lengths, k_lengths = lengths_of(cu_seqlens_q, "cu_seqlens_q"), lengths_of(cu_seqlens_k, "cu_seqlens_k")
    if len(q_lengths) != len(k_lengths):
        raise ValueError(f"cu_seqlens_q is of {len(q_lengths)} sequences, cu_seqlens_k of {len(k_lengths)}")
    (tile_q, tile_k), device = tile, cu_seqlens_q.device
    if cu_seqlens_k.device != device:
        raise ValueError(f"both cu_seqlens must be on one device; got {device} and {cu_seqlens_k.device}")
    shape = (len(q_lengths), Hq, -(-max(q_lengths) // block[0]), -(-max(k_lengths) // block[1]))
    visible, maps = maps_of(base_mask, sparse_heads, shape, device)
    visible = visible.repeat_interleave(block[1] // tile_k, dim=3)  # (B, maps, rows of blocks, tiles of keys)
    counts = visible.sum(3)
    begin = (counts.flatten().cumsum(0) - counts.flatten()).view(counts.shape)  # all tiles of a block share its list
    before = begin[..., None] + torch.nn.functional.pad(visible.cumsum(3), (1, 0))  # entries before a tile of keys

    programs = [(b, i) for b, n in enumerate(q_lengths) for i in range(-(-n // tile_q))]
    programs = torch.tensor(programs, dtype=torch.long, device=device).view(-1, 2)
    batch, first = programs[:, 0], programs[:, 1] * tile_q
    Nq, Nk = cu_seqlens_q.diff().long()[batch], cu_seqlens_k.diff().long()[batch]
    seen_by_all = seen_by_any = Nk
    if is_causal:
        seen_by_all = torch.minimum(first + 1 + Nk - Nq, Nk).clamp(min=0)
        seen_by_any = torch.minimum(first + tile_q + Nk - Nq, Nk).clamp(min=0)
    limits = torch.stack([torch.zeros_like(Nk), seen_by_all // tile_k, -(-seen_by_any // tile_k)])  # tiles of keys
    bounds = before[batch, :, first // block[0]].gather(2, limits.T[:, None].expand(-1, before.shape[1], -1))
    return TileLists(
        programs.int(), visible.nonzero()[:, 3].int(), bounds.transpose(0, 1).int().contiguous(), maps,
        cu_seqlens_q, cu_seqlens_k, (sum(q_lengths), sum(k_lengths)), tuple(tile), is_causal,
    )  # fmt: skip


def maps_of(base_mask, sparse_heads, shape, device):
    """(visible (B, maps, rows, columns) booleans by block, the map of each head); the last map is dense if one is."""
    B, Hq, rows, columns = shape
    dense = torch.ones(B, 1, rows, columns, dtype=torch.bool, device=device)
    if base_mask is None:
        if sparse_heads is not None and any(sparse_heads):
            raise ValueError(f"sparse heads need a base mask; got none, and {sum(map(bool, sparse_heads))} such heads")
        return dense, torch.zeros(Hq, dtype=torch.int32, device=device)
    sparse = [True] * Hq if sparse_heads is None else [bool(one) for one in sparse_heads]
    if len(sparse) != Hq:
        raise ValueError(f"sparse_heads must say of each head whether it is sparse; got {len(sparse)} for Hq={Hq}")
    if base_mask.dtype.is_floating_point or base_mask.dtype.is_complex:
        raise ValueError(f"a base mask is of booleans or integers; got {base_mask.dtype}")
    if base_mask.device != device:
        raise ValueError(f"the base mask must be where cu_seqlens_q is, on {device}; got {base_mask.device}")
    got, wanted = tuple(base_mask.shape), [(B, heads, rows, columns) for heads in (1, Hq)]
    if got not in wanted:
        raise ValueError(f"for these lengths and blocks the base mask must be {wanted[0]} or {wanted[1]}; got {got}")
    if not ((base_mask == 0) | (base_mask == 1)).all():
        raise ValueError(f"a base mask holds 0 and 1; got values from {base_mask.min()} to {base_mask.max()}")
    several = base_mask.shape[1] > 1
    maps = [(h if several else 0) if one else base_mask.shape[1] for h, one in enumerate(sparse)]
    visible = base_mask.bool() if all(sparse) else torch.cat([base_mask.bool(), dense], dim=1)
    return visible, torch.tensor(maps, dtype=torch.int32, device=device)


def choose_tile(block, D):
    """(tile_q, tile_k) for blocks of that many tokens: the fastest on an H200 in 16 bits that divides them."""
    at_once = (128, 64, 32, 16) if D <= 64 else (64, 32, 16)  # keys; of queries 64 were never slower than 128
    return tuple(next((tile for tile in tiles if size % tile == 0), 64)
                 for size, tiles in zip(block, ((64, 32, 16), at_once), strict=True))  # fmt: skip


def check_sizes(block, tile):
    for name, size, of in zip(("q", "k"), block, tile, strict=True):
        if of < 16 or of & (of - 1):
            raise ValueError(f"tile_{name} must be a power of two from 16 on; got {of}")
        if size < 1 or size % of:
            raise ValueError(f"block_{name} must be a multiple of the kernel's tile_{name}={of}; got {size}")


def lengths_of(cu_seqlens, name):
    """The lengths of the sequences, as a list."""
    if cu_seqlens.dtype != torch.int32 or cu_seqlens.dim() != 1 or len(cu_seqlens) < 2:
        raise ValueError(f"{name} must be int32 (B + 1,), B >= 1; got {cu_seqlens.dtype}, {tuple(cu_seqlens.shape)}")
    ends = cu_seqlens.tolist()
    if ends[0]:
        raise ValueError(f"{name} must start at 0; got {ends[0]}")
    for b, (begin, end) in enumerate(pairwise(ends)):
        if end < begin:
            raise ValueError(f"{name} must not decrease; got {begin} and then {end} at sequence {b}")
    return [end - begin for begin, end in pairwise(ends)]


# The kernel ----------------------------------------------------------------------------------------------------------


@triton.jit
def attend_tile(
    acc, row_max, row_sum, q, q_pos, K, V, k_tile, stride_kn, stride_vn, Nq, Nk, qk_scale, batch, head, seed, threshold,
    D: tl.constexpr, BLOCK_K: tl.constexpr, MASKED: tl.constexpr, IS_CAUSAL: tl.constexpr, DROPOUT: tl.constexpr,
):  # fmt: skip
    """One step of the online softmax over a tile of keys, masked by position if MASKED."""
    k_pos, d = k_tile * BLOCK_K + tl.arange(0, BLOCK_K), tl.arange(0, D)
    k_ptrs = K + k_pos.to(tl.int64)[:, None] * stride_kn + d[None, :]  # (BLOCK_K, D)
    v_ptrs = V + k_pos.to(tl.int64)[:, None] * stride_vn + d[None, :]
    if MASKED:
        k = tl.load(k_ptrs, mask=k_pos[:, None] < Nk, other=0.0)
        v = tl.load(v_ptrs, mask=k_pos[:, None] < Nk, other=0.0)
    else:
        k, v = tl.load(k_ptrs), tl.load(v_ptrs)
    scores = tl.dot(q, tl.trans(k))  # (BLOCK_Q, BLOCK_K), float32, not yet scaled
    if MASKED:
        scores = tl.where(k_pos[None, :] < Nk, scores, float("-inf"))
        if IS_CAUSAL:
            scores = tl.where(k_pos[None, :] <= q_pos[:, None] + (Nk - Nq), scores, float("-inf"))
    new_max = tl.maximum(row_max, tl.max(scores, 1) * qk_scale)
    # A row that has seen no key yet has the maximum -inf: its pivot must be finite, or exp2(-inf - -inf) is NaN.
    pivot = tl.where(new_max == float("-inf"), 0.0, new_max)
    alpha = tl.exp2(row_max - pivot)
    p = tl.exp2(scores * qk_scale - pivot[:, None])
    row_sum = row_sum * alpha + tl.sum(p, 1)
    if DROPOUT:  # after the sum: the softmax is that of all keys
        bits, _, _, _ = tl.philox(seed, k_pos[None, :], q_pos[:, None], head, batch)
        p = tl.where((bits >> 1).to(tl.int32) >= threshold, p, 0.0)
    acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
    return acc, new_max, row_sum


@triton.jit(do_not_specialize=["seed"])
def packed_block_sparse_kernel(
    Q, K, V, O, Lse, Cu_q, Cu_k, Programs, Columns, Bounds, Maps,
    stride_qn, stride_qh, stride_kn, stride_kh, stride_vn, stride_vh, stride_on, stride_oh,
    total_q, group, qk_scale, seed, threshold, keep_scale,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, IS_CAUSAL: tl.constexpr, DROPOUT: tl.constexpr,
):  # fmt: skip
    """One program: BLOCK_Q queries of one sequence and one head. Grid: (programs, Hq)."""
    program, head = tl.program_id(0), tl.program_id(1)
    batch = tl.load(Programs + 2 * program)
    q_pos = tl.load(Programs + 2 * program + 1) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    q_first, k_first = tl.load(Cu_q + batch), tl.load(Cu_k + batch)
    Nq, Nk = tl.load(Cu_q + batch + 1) - q_first, tl.load(Cu_k + batch + 1) - k_first
    # total x H x D can pass 2^31: offsets of rows and heads are int64.
    head_64, rows = head.to(tl.int64), (q_first + q_pos).to(tl.int64)
    K += k_first.to(tl.int64) * stride_kn + head_64 // group * stride_kh
    V += k_first.to(tl.int64) * stride_vn + head_64 // group * stride_vh
    d = tl.arange(0, D)
    q_ptrs = Q + head_64 * stride_qh + rows[:, None] * stride_qn + d[None, :]  # (BLOCK_Q, D)
    q = tl.load(q_ptrs, mask=q_pos[:, None] < Nq, other=0.0)
    row_max = tl.full([BLOCK_Q], float("-inf"), tl.float32)  # the paper's m, in base 2
    row_sum = tl.zeros([BLOCK_Q], tl.float32)  # the paper's l
    acc = tl.zeros([BLOCK_Q, D], tl.float32)

    Bounds += (tl.load(Maps + head) * tl.num_programs(0) + program) * 3
    begin, masked, end = tl.load(Bounds), tl.load(Bounds + 1), tl.load(Bounds + 2)
    for i in range(begin, masked):
        acc, row_max, row_sum = attend_tile(
            acc, row_max, row_sum, q, q_pos, K, V, tl.load(Columns + i), stride_kn, stride_vn, Nq, Nk, qk_scale,
            batch, head, seed, threshold, D, BLOCK_K, False, IS_CAUSAL, DROPOUT,
        )  # fmt: skip
    for i in range(masked, end):
        acc, row_max, row_sum = attend_tile(
            acc, row_max, row_sum, q, q_pos, K, V, tl.load(Columns + i), stride_kn, stride_vn, Nq, Nk, qk_scale,
            batch, head, seed, threshold, D, BLOCK_K, True, IS_CAUSAL, DROPOUT,
        )  # fmt: skip

    seen = row_sum > 0
    o = acc * (keep_scale / tl.where(seen, row_sum, 1.0))[:, None]
    lse = tl.where(seen, row_max * 0.6931471805599453 + tl.log(tl.where(seen, row_sum, 1.0)), float("-inf"))
    o_ptrs = O + head_64 * stride_oh + rows[:, None] * stride_on + d[None, :]
    tl.store(o_ptrs, o.to(O.dtype.element_ty), mask=q_pos[:, None] < Nq)
    tl.store(Lse + head_64 * total_q + rows, lse, mask=q_pos < Nq)


# The wrapper ---------------------------------------------------------------------------------------------------------


def check_arguments(q, k, v, lists, p_dropout, seed):
    """Raise ValueError, with the offending values in the text, unless the arguments are legal."""
    shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
    if not q.dim() == k.dim() == v.dim() == 3 or 0 in (*q.shape[1:], *k.shape[1:]):
        raise ValueError(f"q, k and v must be (total, H, D), H and D not 0; got {shapes}")
    if k.shape != v.shape or q.shape[2] != k.shape[2]:
        raise ValueError(f"k and v must have one shape, and D of q; got {shapes}")
    if q.shape[1] % k.shape[1]:
        raise ValueError(f"Hq must be a multiple of Hkv; got Hq={q.shape[1]}, Hkv={k.shape[1]}")
    if q.shape[2] not in HEAD_DIMS:
        raise ValueError(f"head dim must be one of {HEAD_DIMS}; got D={q.shape[2]}")
    if not q.dtype == k.dtype == v.dtype or q.dtype not in DTYPES:
        raise ValueError(f"q, k and v must share one dtype of {DTYPES}; got {q.dtype}, {k.dtype}, {v.dtype}")
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        raise ValueError(
            "forward only: q, k or v requires a gradient, and this kernel has no backward. Call it under "
            "torch.no_grad(), or train with torch.nn.attention.flex_attention, whose block masks have one"
        )
    places = [x.device for x in (q, k, v, lists.columns)]
    if len(set(places)) > 1:
        raise ValueError(f"q, k, v and cu_seqlens must be on one device; got {', '.join(map(str, places))}")
    if not q.stride(2) == k.stride(2) == v.stride(2) == 1:
        raise ValueError(f"the last stride must be 1; got q {q.stride()}, k {k.stride()}, v {v.stride()}")
    for name, x, total in zip("qk", (q, k), lists.totals, strict=True):
        if len(x) != total:
            raise ValueError(f"cu_seqlens_{name} must end at the tokens of {name}, {len(x)}; got {total}")
    if len(lists.maps) != q.shape[1]:
        raise ValueError(f"the lists are of {len(lists.maps)} heads; q has {q.shape[1]}")
    if not 0 <= p_dropout < 1:
        raise ValueError(f"p_dropout must be at least 0 and less than 1; got {p_dropout}")
    if not 0 <= seed < 1 << 63:
        raise ValueError(f"seed must be at least 0 and less than 2^63; got {seed}")


def shared_bytes(block_q, block_k, D, itemsize, wgmma):
    """Bytes of shared memory that a program's tiles take at two stages: Q, K and V; a report page has the compiler's.

    wgmma: whether the dots read shared memory while the next tiles arrive there, as on Hopper GPUs; K and V are then
    there twice. Elsewhere operands wait in registers.
    """
    return itemsize * D * (block_q + 2 * block_k * (2 if wgmma else 1))


def choose_stages(q, tile):
    """Stages of the pipeline of loads: at D = 128 a third takes a sixth of the time away on an H200, where it fits."""
    if INTERPRETED:
        return 1
    return 3 if q.shape[2] == 128 and q.element_size() == 2 and tuple(tile) == (64, 64) else 2


def check_shared_memory(q, tile):
    """Raise ValueError where the tiles are more than the shared memory of this GPU."""
    if INTERPRETED or triton.runtime.driver.active.get_current_target().backend != "cuda":
        return  # the formula is of NVIDIA's GPUs; elsewhere Triton itself refuses what does not fit
    limit = torch.cuda.get_device_properties(q.device).shared_memory_per_block_optin
    wgmma = torch.cuda.get_device_capability(q.device)[0] == 9 and tile[0] >= 64
    needed = shared_bytes(*tile, q.shape[2], q.element_size(), wgmma)
    if needed > limit:
        raise ValueError(
            f"tiles of {tile[0]} x {tile[1]} at D={q.shape[2]} in {q.dtype} take {needed} bytes of shared memory; "
            f"this GPU has {limit}: take smaller tiles"
        )


def attend(q, k, v, lists, softmax_scale=None, p_dropout=0.0, seed=0):
    """`packed_block_sparse_attention` over lists that `tile_lists` made before, in one kernel launch."""
    check_arguments(q, k, v, lists, p_dropout, seed)
    check_shared_memory(q, lists.tile)
    (total_q, Hq, D), (tile_q, tile_k) = q.shape, lists.tile
    scale = 1.0 / math.sqrt(D) if softmax_scale is None else softmax_scale
    o = torch.empty(total_q, Hq, D, dtype=q.dtype, device=q.device)
    lse = torch.empty(Hq, total_q, dtype=torch.float32, device=q.device)
    if total_q:
        packed_block_sparse_kernel[(len(lists.programs), Hq)](
            q, k, v, o, lse, lists.cu_seqlens_q, lists.cu_seqlens_k, lists.programs, lists.columns, lists.bounds,
            lists.maps, *q.stride()[:2], *k.stride()[:2], *v.stride()[:2], *o.stride()[:2],
            total_q, Hq // k.shape[1], LOG2_E * scale, seed, int(p_dropout * 2**31), 1.0 / (1.0 - p_dropout),
            D, tile_q, tile_k, lists.is_causal, p_dropout > 0,
            num_warps=4 if tile_q <= 64 else 8, num_stages=choose_stages(q, lists.tile),
        )  # fmt: skip
    return o, lse


def packed_block_sparse_attention(
    q, k, v, cu_seqlens_q, cu_seqlens_k, base_mask=None, block=(128, 128), sparse_heads=None, is_causal=False,
    softmax_scale=None, p_dropout=0.0, seed=0, tile=None,
):  # fmt: skip
    """Attention of packed sequences under a mask of blocks.

    q: (total_q, Hq, D). k, v: (total_k, Hkv, D), Hq a multiple of Hkv. Last stride 1; one dtype: float16, bfloat16 or
    float32. cu_seqlens_q, cu_seqlens_k: int32 (B + 1,), where each sequence begins, and the end.
    base_mask: booleans or integers 0 and 1, (B, 1 or Hq, blocks of the longest queries, blocks of the longest keys);
    None: all is visible. block: (block_q, block_k), its tokens, multiples of tile. sparse_heads: Hq booleans, which
    heads are under the base mask, the others being dense; all by default. is_causal: aligned at the bottom right.
    softmax_scale: 1 / sqrt(D) by default. p_dropout: the part of probabilities that is dropped, in [0, 1). seed: of the
    dropout, in [0, 2^63). tile: (tile_q, tile_k) of the kernel, powers of two; by default what `choose_tile` says.
    Returns o (total_q, Hq, D), same dtype, and lse (Hq, total_q), float32; zeros and -inf where no key is visible.
    Raises ValueError for arguments that do not fit.
    """
    if q.dim() != 3:
        raise ValueError(f"q must be (total_q, Hq, D); got {tuple(q.shape)}")
    tile = tile or choose_tile(block, q.shape[2])
    lists = tile_lists(cu_seqlens_q, cu_seqlens_k, q.shape[1], base_mask, block, sparse_heads, is_causal, tile)
    return attend(q, k, v, lists, softmax_scale, p_dropout, seed)
