"""X1, a lab past the ladder: attention over any mask, tile by tile, with nothing loaded that the mask hides.

What to build
    The masks of P4 to P7 are regular: arithmetic says which tiles a program visits. Packed documents, images in the
    middle of text and vision transformers have masks that no formula computes. So the mask is cut into tiles once,
    before the kernel runs, and the kernel walks lists:

        empty     no pair is visible: not in any list, never loaded
        FULL      every pair is visible: no mask
        CAUSAL    the triangle of the tile's own rows and columns: row r of the tile sees its columns 0 to r
        PARTIAL   anything else: one bit for each pair, packed into words of 32

    For each row of tiles the list holds the FULL tiles, then the CAUSAL ones, then the PARTIAL ones, so that the kernel
    has three loops and never tests the kind of a tile. The lists of all rows lie one after the other (CSR).

Shapes
    q and o (B, Hq, Nq, D); k and v (B, Hkv, Nk, D); Hq a multiple of Hkv. lse (B, Hq, Nq), float32, natural logarithm.
    There is one mask for all batches and heads, or one for each batch, each head or both. A query that sees no key gets
    zeros, and lse = -inf; never NaN.

Three documents of 256, 68 and 188 tokens, tiles of 64 x 64: `F` FULL, `P` PARTIAL

          key tile     0 1 2 3 4 5 6 7
        query tile 0   F F F F
        query tile 4           F P            the second document ends inside key tile 5
        query tile 5           P P P P        two documents meet in these rows
        query tile 6             P F F

Given: the checks, the step that joins the lists of single rows, the launch, the pointers, the loads, the online softmax
(the answer to P3: solve P3 first).
Asked: five gaps, marked TODO: in `row_of_tiles` the kind of each tile and the bits of the PARTIAL ones; in `attend` the
mask of each kind; in `block_sparse_kernel` the walk along the lists, and the finish.

Masks with their right answers, as files: `make sample`; docs/benchmarks.md says what they hold (not in a handout)

Questions that catch most mistakes
    - A tile at the end of the keys: which kinds may it have, and who hides the keys that are not there?
    - The rows of a PARTIAL tile that see nothing: what are their maximum and their sum?
    - Two heads with different masks: whose list does a program walk?

Source: Dao et al., "FlashAttention", 2022, section 3.3 (block-sparse attention); Dong et al., "FlexAttention", 2024,
section 4 (tiles that need a mask, and tiles that do not).
"""

import math
import os
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

HEAD_DIMS = (16, 32, 64, 128, 256)
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
EMPTY, FULL, CAUSAL, PARTIAL = range(4)
WORD = 32  # visible bits in a word
LOG2_E, LN_2 = 1.4426950408889634, 0.6931471805599453
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


# The lists -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tiles:
    """A mask as lists of tiles.

    starts: int32 (maps, query tiles, 4). A map is the mask of one batch and head. For each map and row of tiles: the
    indices in `columns` at which the FULL, CAUSAL and PARTIAL tiles begin, and at which the row ends. columns: int32,
    the key tile of each entry. bits: int32 (PARTIAL entries, block_q, block_k / 32), the visible pairs of each. places:
    int32, the place of a PARTIAL entry in `bits`. batches, heads: how many have masks of their own, 1 if all share one.
    """

    starts: torch.Tensor
    columns: torch.Tensor
    places: torch.Tensor
    bits: torch.Tensor
    block_q: int
    block_k: int
    queries: int
    keys: int
    batches: int = 1
    heads: int = 1

    @property
    def density(self):
        """The part of all tiles that is in the lists."""
        return len(self.columns) / (self.starts.shape[0] * self.starts.shape[1] * -(-self.keys // self.block_k))


def tiles_of_predicate(predicate, queries, keys, block_q=64, block_k=64, device="cpu"):
    """The Tiles of predicate(q_pos, k_pos) -> bool (len(q_pos), len(k_pos)); one row of tiles is held at a time.

    Raises ValueError where a size is not positive or block_k is no multiple of 32.
    """
    check_blocks(queries, keys, block_q, block_k)
    k_pos = torch.arange(keys, device=device)
    rows = (
        row_of_tiles(predicate(torch.arange(i, min(i + block_q, queries), device=device), k_pos), block_q, block_k)
        for i in range(0, queries, block_q)
    )
    return listed(list(rows), block_q, block_k, queries, keys, 1, 1)


def tiles_of_mask(mask, block_q=64, block_k=64):
    """The Tiles of booleans (Nq, Nk), (H, Nq, Nk) or (B, H, Nq, Nk), True where visible; a size of 1 is shared."""
    if mask.dtype != torch.bool or not 2 <= mask.dim() <= 4:
        raise ValueError(f"a mask is booleans of 2 to 4 dimensions; got {mask.dtype}, {tuple(mask.shape)}")
    batches, heads, queries, keys = (1,) * (4 - mask.dim()) + tuple(mask.shape)
    check_blocks(queries, keys, block_q, block_k)
    rows = [
        row_of_tiles(strip, block_q, block_k) for one in mask.reshape(-1, queries, keys) for strip in one.split(block_q)
    ]
    return listed(rows, block_q, block_k, queries, keys, batches, heads)


def check_blocks(queries, keys, block_q, block_k):
    if min(queries, keys, block_q, block_k) < 1:
        raise ValueError(f"sizes must be positive; got {queries} queries, {keys} keys, tiles {block_q} x {block_k}")
    if block_k % WORD:
        raise ValueError(f"block_k must be a multiple of {WORD}; got {block_k}")


def row_of_tiles(strip, block_q, block_k):
    """(kinds, bits): of each tile of `strip` (rows, Nk) its kind, and of the PARTIAL ones the visible pairs, packed."""
    rows, keys = strip.shape
    count = -(-keys // block_k)
    padded = torch.nn.functional.pad(strip, (0, count * block_k - keys))
    tiles = padded.view(rows, count, block_k).transpose(0, 1)  # (count, rows, block_k)
    # TODO 1: the kind of each tile (about 5 lines; then delete the failing line)
    #   `kinds` (count,): EMPTY, FULL, CAUSAL or PARTIAL, judged by the rows of `strip` alone; the last strip may have
    #   fewer rows than block_q
    raise NotImplementedError("TODO 1: the kind of each tile")
    partial = torch.nn.functional.pad(tiles[kinds == PARTIAL], (0, 0, 0, block_q - rows))
    # TODO 2: pack the bits (about 3 lines; then delete the failing line)
    #   `bits` (PARTIAL tiles, block_q, block_k / 32), int32; bit c % 32 of word c // 32 is column c
    raise NotImplementedError("TODO 2: pack the bits")
    return kinds, bits


def listed(rows, block_q, block_k, queries, keys, batches, heads):
    """The Tiles of rows [(kinds, bits)], those of each map one after the other."""
    kinds = torch.stack([kinds for kinds, _ in rows])
    order = torch.argsort(kinds, dim=1, stable=True)  # empty ones first, then FULL, CAUSAL, PARTIAL
    counts = torch.stack([(kinds == kind).sum(1) for kind in (FULL, CAUSAL, PARTIAL)], dim=1)
    begin = counts.sum(1).cumsum(0) - counts.sum(1)
    starts = begin[:, None] + torch.nn.functional.pad(counts.cumsum(1), (1, 0))
    sorted_kinds = kinds.gather(1, order)
    columns = order[sorted_kinds != EMPTY]
    is_partial = sorted_kinds[sorted_kinds != EMPTY] == PARTIAL
    places = is_partial.cumsum(0) - 1
    # Within a row, `columns` and `bits` have the PARTIAL tiles in the same order: by column.
    return Tiles(
        starts.view(batches * heads, -1, 4).to(torch.int32).contiguous(), columns.to(torch.int32),
        places.to(torch.int32), torch.cat([bits for _, bits in rows]), block_q, block_k, queries, keys, batches, heads,
    )  # fmt: skip


# The kernel ----------------------------------------------------------------------------------------------------------


@triton.jit
def attend(
    state, queries, keys, lists, start, end,
    KIND: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Run the online softmax over entries [start, end) of the lists, tile by tile. Return the state.

    KIND: 1 for FULL, 2 for CAUSAL, 3 for PARTIAL.
    """
    acc, row_max, row_sum = state  # (BLOCK_Q, D), (BLOCK_Q,), (BLOCK_Q,)
    q, qk_scale = queries  # (BLOCK_Q, D)
    K, V, stride_kn, stride_vn, Nk = keys
    Columns, Places, Bits = lists
    row, column, d = tl.arange(0, BLOCK_Q), tl.arange(0, BLOCK_K), tl.arange(0, q.shape[1])
    for i in range(start, end):
        k_pos = tl.load(Columns + i) * BLOCK_K + column
        k_ptrs = K + k_pos.to(tl.int64)[:, None] * stride_kn + d[None, :]  # (BLOCK_K, D)
        v_ptrs = V + k_pos.to(tl.int64)[:, None] * stride_vn + d[None, :]
        if KIND == 1:  # FULL: all of its keys exist
            k, v = tl.load(k_ptrs), tl.load(v_ptrs)
        else:
            k = tl.load(k_ptrs, mask=k_pos[:, None] < Nk, other=0.0)
            v = tl.load(v_ptrs, mask=k_pos[:, None] < Nk, other=0.0)
        scores = tl.dot(q, tl.trans(k))  # (BLOCK_Q, BLOCK_K), float32, not yet scaled
        # TODO 4: the mask of this kind (about 7 lines; then delete the failing line)
        #   hide what a CAUSAL or a PARTIAL tile hides; the bits of entry i are those of PARTIAL tile `Places[i]`
        tl.static_assert(False, "TODO 4: the mask of this kind")
        new_max = tl.maximum(row_max, tl.max(scores, 1) * qk_scale)
        # A row that has seen no key yet has the maximum -inf: its pivot must be finite, or exp2(-inf - -inf) is NaN.
        pivot = tl.where(new_max == float("-inf"), 0.0, new_max)
        alpha = tl.exp2(row_max - pivot)
        p = tl.exp2(scores * qk_scale - pivot[:, None])
        row_sum = row_sum * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        row_max = new_max
    return acc, row_max, row_sum


@triton.jit
def block_sparse_kernel(
    Q, K, V, O, Lse, Starts, Columns, Places, Bits,
    stride_qb, stride_qh, stride_qn,
    stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn,
    stride_ob, stride_oh, stride_on,
    Nq, Nk, Hq, group, map_per_batch, map_per_head, qk_scale,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One program: BLOCK_Q queries of one head. Grid: (query tiles, Hq, B).

    Starts, Columns, Places, Bits: as in `Tiles`; the maps of batch 0's heads come first, then those of batch 1.
    map_per_batch, map_per_head: strides, counted in maps, from one batch to the next and from one head to the next; 0
    where all batches, or all heads, share their maps.
    """
    q_tile = tl.program_id(0)
    # B x H x N x D can pass 2^31: offsets of whole heads and of rows are int64.
    head, batch = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    kv_head = head // group
    Q += batch * stride_qb + head * stride_qh
    K += batch * stride_kb + kv_head * stride_kh
    V += batch * stride_vb + kv_head * stride_vh
    O += batch * stride_ob + head * stride_oh

    row, d = tl.arange(0, BLOCK_Q), tl.arange(0, D)
    q_pos = q_tile * BLOCK_Q + row
    in_bounds = q_pos[:, None] < Nq
    q = tl.load(Q + q_pos.to(tl.int64)[:, None] * stride_qn + d[None, :], mask=in_bounds, other=0.0)
    row_max = tl.full([BLOCK_Q], float("-inf"), tl.float32)  # the paper's m, in base 2
    row_sum = tl.zeros([BLOCK_Q], tl.float32)  # the paper's l
    acc = tl.zeros([BLOCK_Q, D], tl.float32)
    state = acc, row_max, row_sum
    queries = q, qk_scale
    keys = K, V, stride_kn, stride_vn, Nk
    lists = Columns, Places, Bits

    # TODO 3: walk the lists (about 6 lines; then delete the failing line)
    #   find the list of this program's row of tiles, then walk its FULL, its CAUSAL and its PARTIAL tiles
    tl.static_assert(False, "TODO 3: walk the lists")
    acc, row_max, row_sum = state

    # TODO 5: the finish (about 3 lines; then delete the failing line)
    #   `o` and `lse`: zeros and -inf for a query that has seen no key
    tl.static_assert(False, "TODO 5: the finish")
    tl.store(O + q_pos.to(tl.int64)[:, None] * stride_on + d[None, :], o.to(O.dtype.element_ty), mask=in_bounds)
    tl.store(Lse + (batch * Hq + head) * Nq + q_pos, lse, mask=q_pos < Nq)


def check_arguments(q, k, v, tiles):
    """Raise ValueError, with the offending values in the text, unless the arguments are legal."""
    shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
    if not q.dim() == k.dim() == v.dim() == 4 or 0 in (*q.shape, *k.shape, *v.shape):
        raise ValueError(f"q, k and v must be (B, H, N, D) with no empty dimension; got {shapes}")
    if k.shape != v.shape or (q.shape[0], q.shape[3]) != (k.shape[0], k.shape[3]):
        raise ValueError(f"k and v must have one shape, and B and D of q; got {shapes}")
    if q.shape[1] % k.shape[1]:
        raise ValueError(f"Hq must be a multiple of Hkv; got Hq={q.shape[1]}, Hkv={k.shape[1]}")
    if q.shape[3] not in HEAD_DIMS:
        raise ValueError(f"head dim must be one of {HEAD_DIMS}; got D={q.shape[3]}")
    if not q.dtype == k.dtype == v.dtype or q.dtype not in DTYPES:
        raise ValueError(f"q, k and v must share one dtype of {DTYPES}; got {q.dtype}, {k.dtype}, {v.dtype}")
    if not q.device == k.device == v.device == tiles.starts.device:
        raise ValueError(f"q, k, v and the tiles must be on one device; got {q.device}, {tiles.starts.device}")
    if not q.stride(3) == k.stride(3) == v.stride(3) == 1:
        raise ValueError(f"the last stride must be 1; got q {q.stride()}, k {k.stride()}, v {v.stride()}")
    if (tiles.queries, tiles.keys) != (q.shape[2], k.shape[2]):
        raise ValueError(
            f"the tiles are of {tiles.queries} queries and {tiles.keys} keys; q has {q.shape[2]}, k {k.shape[2]}"
        )
    if tiles.batches not in (1, q.shape[0]) or tiles.heads not in (1, q.shape[1]):
        raise ValueError(
            f"the tiles are of {tiles.batches} batches and {tiles.heads} heads; q has {q.shape[0]} and {q.shape[1]}"
        )


def shared_bytes(block_q, block_k, D, itemsize, wgmma):
    """Bytes of shared memory that a program's tiles take at two stages: Q, K, V, and a bit for each pair.

    wgmma: whether the dots read K and V in shared memory while the next tiles arrive there, as on Hopper GPUs. Only
    then are K and V there twice. report/TILE_SHAPES.md (not in a handout) has this beside what the compiler takes.
    """
    return itemsize * D * (block_q + 2 * block_k * (2 if wgmma else 1)) + block_q * block_k // 8


def check_shared_memory(q, block_q, block_k):
    """Raise ValueError where the tiles take more than the shared memory of q's GPU."""
    if INTERPRETED or triton.runtime.driver.active.get_current_target().backend != "cuda":
        return  # the formula is of NVIDIA's GPUs; elsewhere Triton itself refuses what does not fit
    limit = torch.cuda.get_device_properties(q.device).shared_memory_per_block_optin
    wgmma = torch.cuda.get_device_capability(q.device)[0] == 9 and block_q >= 64
    needed = shared_bytes(block_q, block_k, q.shape[3], q.element_size(), wgmma)
    if needed > limit:
        raise ValueError(
            f"tiles of {block_q} x {block_k} at D={q.shape[3]} in {q.dtype} take {needed} bytes of shared memory; this "
            f"GPU has {limit}: take smaller tiles"
        )


def block_sparse_attention(q, k, v, tiles, softmax_scale=None):
    """Attention over the visible pairs of `tiles`, in one kernel launch.

    q: (B, Hq, Nq, D). k, v: (B, Hkv, Nk, D), Hq a multiple of Hkv. Last stride 1; one dtype: float16, bfloat16 or
    float32. tiles: Tiles for Nq and Nk, 1 or B batches, 1 or Hq heads; its block sides are powers of two.
    softmax_scale: 1 / sqrt(D) by default.
    Returns o (B, Hq, Nq, D), same dtype, and lse (B, Hq, Nq), float32; zeros and -inf where no key is visible.
    Raises ValueError for arguments that do not fit.
    Method: "FlashAttention" (Dao et al., 2022), section 3.3.
    """
    check_arguments(q, k, v, tiles)
    check_shared_memory(q, tiles.block_q, tiles.block_k)
    B, Hq, Nq, D = q.shape
    scale = 1.0 / math.sqrt(D) if softmax_scale is None else softmax_scale
    o = torch.empty_like(q)
    lse = torch.empty(B, Hq, Nq, dtype=torch.float32, device=q.device)
    query_tiles = tiles.starts.shape[1]
    per_head = 1 if tiles.heads > 1 else 0
    block_sparse_kernel[(query_tiles, Hq, B)](
        q, k, v, o, lse, tiles.starts, tiles.columns, tiles.places, tiles.bits,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        Nq, k.shape[2], Hq, Hq // k.shape[1], tiles.heads if tiles.batches > 1 else 0, per_head, LOG2_E * scale,
        D, tiles.block_q, tiles.block_k, num_warps=4, num_stages=1 if INTERPRETED else 2,
    )  # fmt: skip
    return o, lse
