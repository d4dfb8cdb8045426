"""Block-sparse attention in plain Triton, one idea at a time: four kernels over the lists of the lab X1. No problem.

    simple         the lab's kernel as it stands, each tile loaded when it is needed: no pipelining
    prefetch       the same kernel, software-pipelined: tiles are on their way while earlier ones are computed
    row_pairs      a program takes two rows of tiles, or two query heads, that share K and V: it walks the union of
                   their lists, loads each tile of K and V once, and each row's own kind decides what it sees of it
    longest_first  the order of the programs: the longest lists first, heads whose K and V fit into L2 together

Each is `kernel(q, k, v, tiles, prepared=None, softmax_scale=None) -> (o, lse)` with the arguments, the results and the
errors of `block_sparse_attention`. What depends on the mask alone (unions of lists, the order of rows) is made once by
`prepare(name, tiles, ...)`, as the lists are.

Rows 5 and 6 of the lab's three documents, and their union: each tile of K and V is loaded once

        row 5   P P P P        row 6     P F F        union   P P P P
                                                                P F F

Source: Dao et al., "FlashAttention", 2022, section 3.3; Tillet, Triton's tutorial on fused attention, for pipelining;
Graham, "Bounds on multiprocessing timing anomalies", 1969, for the longest first.
"""

import math
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from solutions.x1_block_sparse import INTERPRETED, LOG2_E, attend, block_sparse_kernel, check_arguments

# (num_warps, num_stages) by the rows of queries of a program: what was fastest on an H200 at D = 64 and 16k tokens,
# though four warps spill some bytes at 128 rows.
LAUNCH = {
    "simple": {64: (4, 1), 128: (4, 1)},
    "prefetch": {64: (4, 3), 128: (4, 2)},
    "row_pairs": {128: (4, 2), 256: (8, 2)},
    "longest_first": {64: (4, 3), 128: (4, 2)},
}
STEP = 64  # keys that row_pairs takes at a time: its scores are twice as tall
L2_BYTES = 32 << 20  # of K and V that the heads at work together may have


def launch(name, rows):
    """{"num_warps", "num_stages"} for programs of that many rows; the interpreter has no stages."""
    warps, stages = LAUNCH[name].get(rows, (4, 2))
    return {"num_warps": warps, "num_stages": 1 if INTERPRETED else stages}


def outputs(q, tiles):
    """(o, lse, numbers of the maps): new tensors, and by how many maps a batch and a head lie apart."""
    o = torch.empty_like(q)
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    return o, lse, (tiles.heads if tiles.batches > 1 else 0, int(tiles.heads > 1))


def scale_of(q, softmax_scale):
    """The scale of the scores in base 2."""
    return LOG2_E * (1.0 / math.sqrt(q.shape[3]) if softmax_scale is None else softmax_scale)


# Simple, and prefetch -------------------------------------------------------------------------------------------------


def lab_kernel(name, q, k, v, tiles, softmax_scale):
    """The lab's kernel, launched as LAUNCH says for `name`."""
    check_arguments(q, k, v, tiles)
    o, lse, maps = outputs(q, tiles)
    B, Hq, Nq, D = q.shape
    block_sparse_kernel[(tiles.starts.shape[1], Hq, B)](
        q, k, v, o, lse, tiles.starts, tiles.columns, tiles.places, tiles.bits,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        Nq, k.shape[2], Hq, Hq // k.shape[1], *maps, scale_of(q, softmax_scale),
        D, tiles.block_q, tiles.block_k, **launch(name, tiles.block_q),
    )  # fmt: skip
    return o, lse


def simple(q, k, v, tiles, prepared=None, softmax_scale=None):
    return lab_kernel("simple", q, k, v, tiles, softmax_scale)


def prefetch(q, k, v, tiles, prepared=None, softmax_scale=None):
    return lab_kernel("prefetch", q, k, v, tiles, softmax_scale)


# Shared K and V -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Unions:
    """The lists of several rows of tiles as one.

    starts: int32 (maps, turns of `rows` rows, 3), where in `columns` the tiles begin that are FULL for all rows, where
    the others do, and where they end. columns: int32, the key tile of each entry. kinds, places: int32 (entries, rows),
    of each row what that tile is for it, and where its bits lie if it is PARTIAL.
    """

    starts: torch.Tensor
    columns: torch.Tensor
    kinds: torch.Tensor
    places: torch.Tensor
    rows: int


def unions(tiles, rows):
    """The Unions of each `rows` neighbouring rows of tiles."""
    maps, query_tiles, _ = tiles.starts.shape
    key_tiles = -(-tiles.keys // tiles.block_k)
    lengths = tiles.starts.diff().flatten().long()  # of FULL, CAUSAL and PARTIAL tiles of each row
    line = torch.arange(maps * query_tiles, device=lengths.device).repeat_interleave(3).repeat_interleave(lengths)
    kind = torch.arange(1, 4, device=lengths.device).repeat(maps * query_tiles).repeat_interleave(lengths)
    grid = torch.zeros(2, maps * query_tiles, key_tiles, dtype=torch.int32, device=lengths.device)
    grid[0, line, tiles.columns.long()] = kind.int()
    grid[1, line, tiles.columns.long()] = torch.where(kind == 3, tiles.places, 0)
    turns = -(-query_tiles // rows)
    grid = torch.nn.functional.pad(grid.view(2, maps, query_tiles, key_tiles), (0, 0, 0, turns * rows - query_tiles))
    kinds, places = grid.view(2, maps * turns, rows, key_tiles).transpose(2, 3)  # (maps * turns, key tiles, rows) each
    full, some = (kinds == 1).all(2), (kinds != 0).any(2)
    group = torch.where(full, 0, torch.where(some, 1, 2))
    order = torch.argsort(group, dim=1, stable=True)
    listed = group.gather(1, order) < 2
    ends = torch.stack([torch.zeros_like(full.sum(1)), full.sum(1), some.sum(1)], dim=1)
    starts = (some.sum(1).cumsum(0) - some.sum(1))[:, None] + ends
    at = order[..., None].expand(-1, -1, rows)
    kinds, places = (of.gather(1, at)[listed].contiguous() for of in (kinds, places))
    return Unions(starts.view(maps, turns, 3).int().contiguous(), order[listed].int(), kinds, places, rows)


def members(tiles, group):
    """(rows of tiles, query heads) of a row_pairs program: two heads that share K, V and the map, or else two rows."""
    return (1, 2) if group % 2 == 0 and tiles.heads == 1 else (2, 1)


@triton.jit
def shared_step(
    acc, row_max, row_sum, q, K, V, k_start, row, kind, Words, stride_kn, stride_vn, Nk, qk_scale, first,
    D: tl.constexpr, STEP: tl.constexpr, MIXED: tl.constexpr,
):  # fmt: skip
    """One step of the online softmax for all members; MIXED: each row's `kind` says what it sees of this tile.

    k_start: of the first of STEP keys, which is column `first` of its tile. Words: where each row's words lie.
    """
    column, d = tl.arange(0, STEP), tl.arange(0, D)
    k_pos = k_start + column
    k_ptrs = K + k_pos.to(tl.int64)[:, None] * stride_kn + d[None, :]  # (STEP, D)
    v_ptrs = V + k_pos.to(tl.int64)[:, None] * stride_vn + d[None, :]
    if MIXED:
        k = tl.load(k_ptrs, mask=k_pos[:, None] < Nk, other=0.0)
        v = tl.load(v_ptrs, mask=k_pos[:, None] < Nk, other=0.0)
    else:
        k, v = tl.load(k_ptrs), tl.load(v_ptrs)
    scores = tl.dot(q, tl.trans(k))  # (members * BLOCK_Q, STEP), float32, not yet scaled
    if MIXED:
        column += first
        word = first // 32 + tl.arange(0, STEP // 32)
        words = tl.load(Words[:, None] + word[None, :], mask=kind[:, None] == 3, other=0)
        visible = ((words[:, :, None] >> tl.arange(0, 32)[None, None, :]) & 1).reshape(row.shape[0], STEP) != 0
        visible |= (kind[:, None] == 1) | ((kind[:, None] == 2) & (row[:, None] >= column[None, :]))
        scores = tl.where(visible, scores, float("-inf"))
    new_max = tl.maximum(row_max, tl.max(scores, 1) * qk_scale)
    pivot = tl.where(new_max == float("-inf"), 0.0, new_max)  # finite also where a row has seen no key yet
    alpha = tl.exp2(row_max - pivot)
    p = tl.exp2(scores * qk_scale - pivot[:, None])
    row_sum = row_sum * alpha + tl.sum(p, 1)
    acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
    return acc, new_max, row_sum


@triton.jit
def row_pairs_kernel(
    Q, K, V, O, Lse, Starts, Columns, Kinds, Places, Bits,
    stride_qb, stride_qh, stride_qn,
    stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn,
    stride_ob, stride_oh, stride_on,
    Nq, Nk, Hq, group, map_per_batch, map_per_head, qk_scale,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, STEP: tl.constexpr,
    ROWS: tl.constexpr, HEADS: tl.constexpr,
):  # fmt: skip
    """One program: ROWS rows of tiles of HEADS query heads that share a kv head. Grid: (turns, Hq / HEADS, B)."""
    turn, batch = tl.program_id(0), tl.program_id(2).to(tl.int64)
    first_head = (tl.program_id(1) * HEADS).to(tl.int64)
    K += batch * stride_kb + first_head // group * stride_kh
    V += batch * stride_vb + first_head // group * stride_vh

    m, d = tl.arange(0, ROWS * HEADS * BLOCK_Q), tl.arange(0, D)
    row, member = m % BLOCK_Q, m // BLOCK_Q // HEADS  # within its tile; which row of tiles
    head = first_head + m // BLOCK_Q % HEADS
    q_pos = (turn * ROWS + member) * BLOCK_Q + row
    in_bounds = q_pos < Nq
    q_ptrs = Q + batch * stride_qb + head[:, None] * stride_qh + q_pos.to(tl.int64)[:, None] * stride_qn + d[None, :]
    q = tl.load(q_ptrs, mask=in_bounds[:, None], other=0.0)
    row_max = tl.full([ROWS * HEADS * BLOCK_Q], float("-inf"), tl.float32)  # the paper's m, in base 2
    row_sum = tl.zeros([ROWS * HEADS * BLOCK_Q], tl.float32)  # the paper's l
    acc = tl.zeros([ROWS * HEADS * BLOCK_Q, D], tl.float32)

    PARTS: tl.constexpr = BLOCK_K // STEP
    WORDS: tl.constexpr = BLOCK_K // 32
    Starts += ((batch * map_per_batch + first_head * map_per_head) * tl.num_programs(0) + turn) * 3
    full, mixed, end = tl.load(Starts), tl.load(Starts + 1), tl.load(Starts + 2)
    for i in range(full * PARTS, mixed * PARTS):
        first = i % PARTS * STEP
        k_start = tl.load(Columns + i // PARTS) * BLOCK_K + first
        acc, row_max, row_sum = shared_step(
            acc, row_max, row_sum, q, K, V, k_start, row, member, Bits, stride_kn, stride_vn, Nk, qk_scale, first,
            D, STEP, False,
        )  # fmt: skip
    for i in range(mixed * PARTS, end * PARTS):
        first = i % PARTS * STEP
        k_start = tl.load(Columns + i // PARTS) * BLOCK_K + first
        entry = i // PARTS * ROWS + member.to(tl.int64)
        words = Bits + (tl.load(Places + entry).to(tl.int64) * BLOCK_Q + row) * WORDS
        acc, row_max, row_sum = shared_step(
            acc, row_max, row_sum, q, K, V, k_start, row, tl.load(Kinds + entry), words, stride_kn, stride_vn, Nk,
            qk_scale, first, D, STEP, True,
        )  # fmt: skip

    seen = row_sum > 0
    total = tl.where(seen, row_sum, 1.0)
    o = acc / total[:, None]
    lse = tl.where(seen, row_max * 0.6931471805599453 + tl.log(total), float("-inf"))
    o_ptrs = O + batch * stride_ob + head[:, None] * stride_oh + q_pos.to(tl.int64)[:, None] * stride_on + d[None, :]
    tl.store(o_ptrs, o.to(O.dtype.element_ty), mask=in_bounds[:, None])
    tl.store(Lse + (batch * Hq + head) * Nq + q_pos, lse, mask=in_bounds)


def row_pairs(q, k, v, tiles, prepared=None, softmax_scale=None):
    check_arguments(q, k, v, tiles)
    o, lse, maps = outputs(q, tiles)
    B, Hq, Nq, D = q.shape
    group = Hq // k.shape[1]
    rows, heads = members(tiles, group)
    union = prepared or unions(tiles, rows)
    row_pairs_kernel[(union.starts.shape[1], Hq // heads, B)](
        q, k, v, o, lse, union.starts, union.columns, union.kinds, union.places, tiles.bits,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        Nq, k.shape[2], Hq, group, *maps, scale_of(q, softmax_scale),
        D, tiles.block_q, tiles.block_k, min(STEP, tiles.block_k), rows, heads,
        **launch("row_pairs", rows * heads * tiles.block_q),
    )  # fmt: skip
    return o, lse


# Swizzled -------------------------------------------------------------------------------------------------------------


def rows_by_length(tiles):
    """int32 (maps, query tiles): the rows of tiles of each map, those with the longest lists first."""
    return torch.argsort(tiles.starts[..., 3] - tiles.starts[..., 0], dim=1, descending=True, stable=True).int()


@triton.jit
def longest_first_kernel(
    Q, K, V, O, Lse, Starts, Columns, Places, Bits, Order,
    stride_qb, stride_qh, stride_qn,
    stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn,
    stride_ob, stride_oh, stride_on,
    Nq, Nk, Hq, group, map_per_batch, map_per_head, query_tiles, all_heads, heads_together, qk_scale,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One program: BLOCK_Q queries of one head. Grid: (query tiles x Hq x B,), in the order told above."""
    size = heads_together * query_tiles
    first_head = tl.program_id(0) // size * heads_together
    heads_here = tl.minimum(heads_together, all_heads - first_head)  # the last heads may be fewer
    left = tl.program_id(0) % size
    flat_head = (first_head + left % heads_here).to(tl.int64)  # neighbours share K and V where heads do
    batch, head = flat_head // Hq, flat_head % Hq
    this_map = batch * map_per_batch + head * map_per_head
    q_tile = tl.load(Order + this_map * query_tiles + left // heads_here)

    Q += batch * stride_qb + head * stride_qh
    K += batch * stride_kb + head // group * stride_kh
    V += batch * stride_vb + head // group * stride_vh
    O += batch * stride_ob + head * stride_oh
    row, d = tl.arange(0, BLOCK_Q), tl.arange(0, D)
    q_pos = q_tile * BLOCK_Q + row
    in_bounds = q_pos[:, None] < Nq
    q = tl.load(Q + q_pos.to(tl.int64)[:, None] * stride_qn + d[None, :], mask=in_bounds, other=0.0)
    row_max = tl.full([BLOCK_Q], float("-inf"), tl.float32)  # the paper's m, in base 2
    row_sum = tl.zeros([BLOCK_Q], tl.float32)  # the paper's l
    acc = tl.zeros([BLOCK_Q, D], tl.float32)

    Starts += (this_map * query_tiles + q_tile) * 4
    full, causal, partial, end = tl.load(Starts), tl.load(Starts + 1), tl.load(Starts + 2), tl.load(Starts + 3)
    state = acc, row_max, row_sum
    queries = q, qk_scale
    keys = K, V, stride_kn, stride_vn, Nk
    lists = Columns, Places, Bits
    state = attend(state, queries, keys, lists, full, causal, 1, BLOCK_Q, BLOCK_K)
    state = attend(state, queries, keys, lists, causal, partial, 2, BLOCK_Q, BLOCK_K)
    state = attend(state, queries, keys, lists, partial, end, 3, BLOCK_Q, BLOCK_K)
    acc, row_max, row_sum = state

    seen = row_sum > 0
    total = tl.where(seen, row_sum, 1.0)
    lse = tl.where(seen, row_max * 0.6931471805599453 + tl.log(total), float("-inf"))
    o = (acc / total[:, None]).to(O.dtype.element_ty)
    tl.store(O + q_pos.to(tl.int64)[:, None] * stride_on + d[None, :], o, mask=in_bounds)
    tl.store(Lse + flat_head * Nq + q_pos, lse, mask=q_pos < Nq)


def longest_first(q, k, v, tiles, prepared=None, softmax_scale=None):
    check_arguments(q, k, v, tiles)
    o, lse, maps = outputs(q, tiles)
    B, Hq, Nq, D = q.shape
    group, query_tiles = Hq // k.shape[1], tiles.starts.shape[1]
    of_a_head = 2 * k.shape[2] * D * k.element_size()  # bytes of K and V
    together = group * max(1, min(B * k.shape[1], L2_BYTES // of_a_head))
    order = rows_by_length(tiles) if prepared is None else prepared
    longest_first_kernel[(query_tiles * Hq * B,)](
        q, k, v, o, lse, tiles.starts, tiles.columns, tiles.places, tiles.bits, order,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        Nq, k.shape[2], Hq, group, *maps, query_tiles, B * Hq, together, scale_of(q, softmax_scale),
        D, tiles.block_q, tiles.block_k, **launch("longest_first", tiles.block_q),
    )  # fmt: skip
    return o, lse


KERNELS = {"simple": simple, "prefetch": prefetch, "row_pairs": row_pairs, "longest_first": longest_first}


def prepare(name, tiles, group=1):
    """What kernel `name` makes of a map once, for `group` query heads a kv head; None where it needs nothing."""
    if name == "row_pairs":
        return unions(tiles, members(tiles, group)[0])
    return rows_by_length(tiles) if name == "longest_first" else None
