"""X1's tile lists built by the GPU, from a predicate that is a function of the kernel's own language. No problem.

x1's `tiles_of_predicate` asks a Python function for one row of tiles after the other and writes each mask to memory: at
16k tokens 268 million booleans. Here a program looks at one tile, and what it finds never leaves the multiprocessor:

    kinds       one program a tile: how many pairs are visible, how many differ from the triangle?  -> EMPTY ... PARTIAL
    ranks       one program a row of tiles: the index of each within its kind, and how many there are
    lists       sums of those give each tile its entry; only their totals come back to the CPU, to allocate the lists
    entries     one program a tile: its column, and where it is PARTIAL its bits

A predicate takes positions that broadcast, (BLOCK_Q, 1) and (1, BLOCK_K), and a pointer to int32 data of its own. It is
never asked about positions past the end. The result is that of x1, bit for bit.

Source: Dong et al., "FlexAttention", 2024, section 4.1, for masks as functions and lists made of them ahead of time.
"""

import torch
import triton
import triton.language as tl

from solutions.x1_block_sparse import WORD, Tiles, check_blocks

MOST_PAIRS = 32768  # in a tile: two counts of its pairs are summed in one integer

# Predicates -----------------------------------------------------------------------------------------------------------


@triton.jit
def causal(q_pos, k_pos, Data):
    return q_pos >= k_pos


@triton.jit
def sliding_window(q_pos, k_pos, Data):
    """Data: the window and the number of sinks."""
    return (q_pos >= k_pos) & ((q_pos - k_pos < tl.load(Data)) | (k_pos < tl.load(Data + 1)))


@triton.jit
def documents(q_pos, k_pos, Data):
    """Data: the number of the document of each position, as `numbers_of` makes it."""
    return tl.load(Data + q_pos) == tl.load(Data + k_pos)


@triton.jit
def interleaved(q_pos, k_pos, Data):
    """Text and images by turns, text first. Data: the number of the segment of each position."""
    q_segment, k_segment = tl.load(Data + q_pos), tl.load(Data + k_pos)
    inside = (q_segment % 2 == 1) | (q_pos >= k_pos)
    return (k_segment < q_segment) | ((k_segment == q_segment) & inside)


def numbers_of(lengths, device="cuda"):
    """int32 (sum of lengths): the number of the segment of each position."""
    lengths = torch.tensor(lengths, device=device)
    return torch.repeat_interleave(lengths).to(torch.int32)


# From a predicate to lists --------------------------------------------------------------------------------------------


@triton.jit
def visible_pairs(VISIBLE: tl.constexpr, Data, q_pos, k_pos, queries, keys):
    """(BLOCK_Q, BLOCK_K), False past the last key; rows past the last query are copies of it."""
    visible = VISIBLE(tl.minimum(q_pos, queries - 1)[:, None], tl.minimum(k_pos, keys - 1)[None, :], Data)
    return visible & (k_pos < keys)[None, :] & (q_pos >= 0)[:, None]  # the last to give it its full shape


@triton.jit
def kinds_kernel(Kinds, Data, queries, keys, VISIBLE: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr):
    """One tile: 0 EMPTY, 1 FULL, 2 CAUSAL or 3 PARTIAL. Grid: (key tiles, query tiles)."""
    row, column = tl.arange(0, BLOCK_Q), tl.arange(0, BLOCK_K)
    q_pos, k_pos = tl.program_id(1) * BLOCK_Q + row, tl.program_id(0) * BLOCK_K + column
    visible = visible_pairs(VISIBLE, Data, q_pos, k_pos, queries, keys)
    unlike = visible != (row[:, None] >= column[None, :])
    # Both counts in one sum: neither passes MOST_PAIRS. If that many differ it wraps, and the tile is still PARTIAL.
    both = tl.where((q_pos < queries)[:, None], visible.to(tl.int32) + unlike.to(tl.int32) * 65536, 0)
    counts = tl.sum(tl.sum(both, 1), 0)
    seen, differ = counts % 65536, counts // 65536
    kind = tl.where(differ == 0, 2, 3)
    kind = tl.where(seen == tl.minimum(BLOCK_Q, queries - tl.program_id(1) * BLOCK_Q) * BLOCK_K, 1, kind)
    tl.store(Kinds + tl.program_id(1) * tl.num_programs(0) + tl.program_id(0), tl.where(seen == 0, 0, kind))


@triton.jit
def ranks_kernel(Kinds, Ranks, Counts, key_tiles, BLOCK: tl.constexpr):
    """One row of tiles: the rank of each tile among those of its kind, and the counts of FULL, CAUSAL and PARTIAL."""
    row = tl.program_id(0)
    tile = tl.arange(0, BLOCK)
    kinds = tl.load(Kinds + row * key_tiles + tile, mask=tile < key_tiles, other=0)
    ranks = tl.zeros([BLOCK], tl.int32)
    for kind in tl.static_range(1, 4):
        is_kind = (kinds == kind).to(tl.int32)
        ranks = tl.where(is_kind == 1, tl.cumsum(is_kind, 0) - 1, ranks)
        tl.store(Counts + row * 3 + kind - 1, tl.sum(is_kind, 0))
    tl.store(Ranks + row * key_tiles + tile, ranks, mask=tile < key_tiles)


@triton.jit
def entries_kernel(
    Kinds, Ranks, Starts, FirstPlace, Columns, Places, Bits, Data, queries, keys,
    VISIBLE: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One tile's entry: its column, its place and, where it is PARTIAL, its bits. Grid: (key tiles, query tiles)."""
    column_tile, row_tile = tl.program_id(0), tl.program_id(1)
    here = row_tile * tl.num_programs(0) + column_tile
    kind, rank = tl.load(Kinds + here), tl.load(Ranks + here)
    if kind > 0:
        entry = tl.load(Starts + row_tile * 4 + kind - 1) + rank
        place = tl.load(FirstPlace + row_tile) + tl.where(kind == 3, rank, -1)  # of others: of the last one so far
        tl.store(Columns + entry, column_tile)
        tl.store(Places + entry, place)
        if kind == 3:
            row, column = tl.arange(0, BLOCK_Q), tl.arange(0, BLOCK_K)
            q_pos, k_pos = row_tile * BLOCK_Q + row, column_tile * BLOCK_K + column
            visible = visible_pairs(VISIBLE, Data, q_pos, k_pos, queries, keys) & (q_pos < queries)[:, None]
            bits = visible.to(tl.int32).reshape(BLOCK_Q, BLOCK_K // 32, 32) << tl.arange(0, 32)[None, None, :]
            word = tl.arange(0, BLOCK_K // 32)
            at = place.to(tl.int64) * BLOCK_Q * (BLOCK_K // 32) + row[:, None] * (BLOCK_K // 32) + word[None, :]
            tl.store(Bits + at, tl.sum(bits, 2))


def tiles_of(visible, data, queries, keys, block_q=64, block_k=64):
    """x1's Tiles of a predicate, on the device of its data.

    visible: a jit function (q_pos, k_pos, Data) -> booleans. data: int32, what it reads, for positions of queries and
    of keys where it is asked about both.
    Raises ValueError where a size is not positive, a side is no power of two (block_q from 16 on, block_k from 32 on),
    or a tile has more than 32768 pairs.
    """
    check_blocks(queries, keys, block_q, block_k)
    for name, block, least in (("block_q", block_q, 16), ("block_k", block_k, WORD)):
        if block & (block - 1) or block < least:
            raise ValueError(f"{name} must be a power of two, at least {least}; got {block}")
    if block_q * block_k > MOST_PAIRS:
        raise ValueError(f"a tile may have at most {MOST_PAIRS} pairs; got {block_q} x {block_k}")
    rows, columns, device = triton.cdiv(queries, block_q), triton.cdiv(keys, block_k), data.device
    kinds, ranks = torch.empty(2, rows, columns, dtype=torch.int32, device=device)
    counts = torch.empty(rows, 3, dtype=torch.int32, device=device)
    grid = (columns, rows)
    kinds_kernel[grid](kinds, data, queries, keys, visible, block_q, block_k, num_warps=4)
    ranks_kernel[(rows,)](kinds, ranks, counts, columns, triton.next_power_of_2(columns))
    ends = counts.flatten().cumsum(0, dtype=torch.int32).view(rows, 3)
    starts = torch.cat([ends[:, 2:] - counts.sum(1, keepdim=True, dtype=torch.int32), ends], dim=1)
    places_so_far = counts[:, 2].cumsum(0, dtype=torch.int32)
    entries, partial = torch.stack([ends[-1, 2], places_so_far[-1]]).tolist()  # the one wait for the GPU
    listed, places = torch.empty(2, entries, dtype=torch.int32, device=device)
    bits = torch.empty(partial, block_q, block_k // 32, dtype=torch.int32, device=device)
    entries_kernel[grid](
        kinds, ranks, starts, places_so_far - counts[:, 2], listed, places, bits, data, queries, keys,
        visible, block_q, block_k, num_warps=4,
    )  # fmt: skip
    return Tiles(starts[None].contiguous(), listed, places, bits, block_q, block_k, queries, keys)
