"""X4, a lab past the ladder: decode, attention of the newest tokens over a long cache, for many sequences at once.

What to build
    A model that writes asks for attention of one new token, or of a few, over all tokens so far. The keys and values of
    these lie in a cache, and each sequence of a batch has its own length. Two kernels:

        piece_kernel    attends to one piece of the cache, PIECE tokens, for all query heads that share a kv head
        merge_kernel    merges the pieces of a row by their lse

    One query has too little work for a GPU, so that many programs share the cache of one sequence ("split-KV"). A piece
    is a fixed number of tokens, not a share of the length, and it begins at a multiple of PIECE: the pieces of a
    sequence, and the order in which they are merged, depend on nothing but the sequence itself. So its result has the
    same bits alone and in any batch, whatever the other lengths are, in a dense cache and in pages. The wrapper never
    reads a number of lengths or block_table: on a GPU each step would wait for it.

Shapes
    q and o (B, Hq, Nq, D): the newest Nq tokens, 1 to 8. Dense caches (B, Hkv, Nmax, D); pages (pages, page_size, Hkv,
    D) with block_table (B, most pages), int32: entry p of a sequence's row is the page of its tokens [p * page_size,
    (p + 1) * page_size). Hq a multiple of Hkv. lengths (B,), int32: tokens of a sequence, the new ones included.
    New token i is at position p = length - Nq + i, and sees key j when  0 <= p - j < window_size. What no new token
    sees is never read: past the length, before the window, pages and entries of block_table that hold none of it.
    sink_logits (Hq,), float32: exp(sink_logits[h]) joins the denominator of every row of head h. This learned logit has
    no key and no value, and the scale does not touch it; it is not a sink token, the first key that P7 keeps visible.
    A row that sees no key (its position is negative) gives 0.

The rows of a tile are the query heads of a group, times the new tokens. Hq = 4, Hkv = 2, Nq = 3, length 11, a window of
6, PIECE = 4: the rows of kv head 1, and the keys that they see

                     piece 0     piece 1     piece 2
        row 0    h2  . . . #     # # # #     # . . .       the window of the first new token begins at key 3:
        row 1    h2  . . . .     # # # #     # # . .       keys 0 to 2 are never read
        row 2    h2  . . . .     . # # #     # # # .       no key of piece 0: what does it store?
        row 3    h3  . . . #     # # # #     # . . .

Given: the checks, launches, loads and stores, the online softmax inside a piece. Asked: six gaps, marked TODO, in an
order in which each can be tried; the last one is needed for sink_logits alone.

Questions that catch most mistakes
    - Which position has the first new token, and which key does it see first?
    - A tile of keys can lie in several pages. What is the page of each key, and what its row in it?
    - Two pieces are merged. How much does each one count, and in which base is its lse?
    - A row can see no key of a piece. What are its maximum, its sum, its o and its lse then?

Source: Dao et al., "Flash-Decoding for long-context inference", 2023 (pieces); Kwon et al., "PagedAttention", 2023
(pages); OpenAI, "gpt-oss", 2025 (learned sink logits); He, "Defeating nondeterminism in LLM inference", 2025.
"""

import math
import os

import torch
import triton
import triton.language as tl

HEAD_DIMS = (16, 32, 64, 128, 256)
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
MOST_NEW = 8  # new tokens
LOG2_E = tl.constexpr(1.4426950408889634)
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # where there is no GPU, Triton runs on the CPU like this


@triton.jit
def first_key(length, new_tokens, window_size):
    """The first key that a new token sees; 0 where a token has a negative position."""
    # TODO 1: the first key that any of the new tokens sees (about 1 line; then delete the failing line)
    #   `first`, not negative: the window of the first new token begins there
    tl.static_assert(False, "TODO 1: the first key that any of the new tokens sees")
    return first


@triton.jit
def places_of(BlockTable, k_pos, inside, batch, PAGE_SIZE: tl.constexpr):
    """(page, row) of the keys at these positions: int64 blocks, where `inside`; the page of a dense cache is its batch.

    BlockTable: the sequence's own row of the table. PAGE_SIZE: 0 for a dense cache.
    """
    page, row = batch, k_pos
    if PAGE_SIZE > 0:
        # TODO 2: the page of each key, and its row in this page (about 2 lines; then delete the failing line)
        #   `page` and `row`, (BLOCK_K,) each; load the table only where `inside`
        tl.static_assert(False, "TODO 2: the page of each key, and its row in this page")
    return page.to(tl.int64), row.to(tl.int64)


@triton.jit
def piece_kernel(
    Q, K, V, Lengths, BlockTable, PartO, PartLse,
    stride_qb, stride_qh, stride_qn,
    stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn,
    stride_tb, group, new_tokens, window_size, qk_scale,
    D: tl.constexpr, PAGE_SIZE: tl.constexpr, ROWS: tl.constexpr, BLOCK_K: tl.constexpr, PIECE: tl.constexpr,
):  # fmt: skip
    """One program: one piece of a sequence for ROWS rows of a kv head. Grid: (slots, Hkv x tiles of rows, B).

    Slot 0 is the piece that holds the sequence's first key, so that no program is launched for the pieces before a
    window. A page counts as a batch: stride_kb and stride_vb go from one page to the next. PartO (B, Hq, new_tokens,
    slots, D) and PartLse (B, Hq, new_tokens, slots), float32; lse in base 2.
    """
    slot, slots = tl.program_id(0), tl.num_programs(0)
    tiles = tl.cdiv(group * new_tokens, ROWS)
    kv_head, tile = (tl.program_id(1) // tiles).to(tl.int64), tl.program_id(1) % tiles
    batch = tl.program_id(2).to(tl.int64)
    length = tl.load(Lengths + batch)
    first = first_key(length, new_tokens, window_size)
    piece = (first // PIECE + slot) * PIECE  # its first token
    start, end = tl.maximum(piece, first), tl.minimum(piece + PIECE, length)
    if start >= end:  # the sequence has no such piece
        return
    row, d = tile * ROWS + tl.arange(0, ROWS), tl.arange(0, D)
    member, token = row // new_tokens, row % new_tokens
    head, q_pos, exists = kv_head * group + member, length - new_tokens + token, member < group
    q_ptrs = Q + batch * stride_qb + head[:, None] * stride_qh + token[:, None] * stride_qn + d[None, :]
    q = tl.load(q_ptrs, mask=exists[:, None], other=0.0)  # (ROWS, D)
    K += kv_head * stride_kh
    V += kv_head * stride_vh
    acc = tl.zeros([ROWS, D], tl.float32)
    row_max, row_sum = tl.full([ROWS], float("-inf"), tl.float32), tl.zeros([ROWS], tl.float32)
    for k_start in range(start // BLOCK_K * BLOCK_K, end, BLOCK_K):
        k_pos = k_start + tl.arange(0, BLOCK_K)
        inside = (k_pos >= start) & (k_pos < end)
        page, k_row = places_of(BlockTable + batch * stride_tb, k_pos, inside, batch, PAGE_SIZE)
        k_ptrs = K + (page * stride_kb + k_row * stride_kn)[:, None] + d[None, :]
        v_ptrs = V + (page * stride_vb + k_row * stride_vn)[:, None] + d[None, :]
        k = tl.load(k_ptrs, mask=inside[:, None], other=0.0)  # (BLOCK_K, D)
        v = tl.load(v_ptrs, mask=inside[:, None], other=0.0)
        scores = tl.dot(q, tl.trans(k)) * qk_scale  # (ROWS, BLOCK_K), in base 2
        # TODO 3: the mask (about 2 lines; then delete the failing line)
        #   `seen` (ROWS, BLOCK_K): the new token of the row sees the key, and the key is `inside`
        tl.static_assert(False, "TODO 3: the mask")
        scores = tl.where(seen, scores, float("-inf"))
        new_max = tl.maximum(row_max, tl.max(scores, 1))
        pivot = tl.where(new_max == float("-inf"), 0.0, new_max)
        alpha = tl.exp2(row_max - pivot)
        p = tl.exp2(scores - pivot[:, None])
        row_sum = row_sum * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        row_max = new_max
    # TODO 4: what the piece hands to the merge (about 2 lines; then delete the failing line)
    #   `o` (ROWS, D): its own attention, 0 in a row that sees no key here; `lse` (ROWS,): base 2, -inf in such a row
    tl.static_assert(False, "TODO 4: what the piece hands to the merge")
    heads = tl.num_programs(1) // tiles * group
    part = ((batch * heads + head) * new_tokens + token) * slots + slot
    tl.store(PartO + part[:, None] * D + d[None, :], o, mask=exists[:, None])
    tl.store(PartLse + part, lse, mask=exists)


@triton.jit
def merge_kernel(
    PartO, PartLse, SinkLogits, Lengths, O, new_tokens, window_size, slots,
    D: tl.constexpr, PIECE: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    """One program: o of one row. Grid: (new tokens, Hq, B); o is contiguous. SinkLogits (Hq,), or None.

    The pieces are added up BLOCK_P at a time, from the first on. Those that do not exist add exact zeros: how many
    slots there are changes no bit.
    """
    head, batch = tl.program_id(1), tl.program_id(2).to(tl.int64)
    row = (batch * tl.num_programs(1) + head) * new_tokens + tl.program_id(0)
    length = tl.load(Lengths + batch)
    pieces = tl.cdiv(length, PIECE) - first_key(length, new_tokens, window_size) // PIECE
    slot, d = tl.arange(0, BLOCK_P), tl.arange(0, D)
    largest = tl.full([BLOCK_P], float("-inf"), tl.float32)
    for start in range(0, pieces, BLOCK_P):
        lse = tl.load(PartLse + row * slots + start + slot, mask=start + slot < pieces, other=float("-inf"))
        largest = tl.maximum(largest, lse)
    sink = float("-inf")
    if SinkLogits is not None:
        # TODO 6: the learned logit of this head (about 1 line; then delete the failing line)
        #   `sink`, a number: it is to stand among the lse of the pieces
        tl.static_assert(False, "TODO 6: the learned logit of this head")
    pivot = tl.maximum(tl.max(largest, 0), sink)
    pivot = tl.where(pivot == float("-inf"), 0.0, pivot)
    acc, total = tl.zeros([D], tl.float32), tl.exp2(sink - pivot)
    for start in range(0, pieces, BLOCK_P):
        exists = start + slot < pieces
        lse = tl.load(PartLse + row * slots + start + slot, mask=exists, other=float("-inf"))
        o_ptrs = PartO + ((row * slots + start + slot) * D)[:, None] + d[None, :]
        o = tl.load(o_ptrs, mask=exists[:, None], other=0.0)  # (BLOCK_P, D)
        # TODO 5: these pieces added up (about 3 lines; then delete the failing line)
        #   `total`, the denominator, and `acc` (D,), not divided yet: each piece with its weight, relative to `pivot`
        tl.static_assert(False, "TODO 5: these pieces added up")
    o = acc / tl.where(total > 0.0, total, 1.0)
    tl.store(O + row * D + d, o.to(O.dtype.element_ty))


# The wrapper ---------------------------------------------------------------------------------------------------------

PIECE = 1024  # tokens; a constant of the operator: another one gives other bits. 512 is slower on an H200
# (BLOCK_K, num_warps, num_stages) of piece_kernel by head dim
TILES = {16: (64, 4, 3), 32: (64, 4, 3), 64: (64, 4, 3), 128: (64, 4, 3), 256: (32, 4, 3)}
TILES_FLOAT32 = {16: (64, 4, 2), 32: (64, 4, 2), 64: (32, 4, 2), 128: (32, 4, 2), 256: (16, 4, 2)}
MOST_ROWS = 64  # of a tile; more have several tiles
BLOCK_P = 16  # pieces of a step of merge_kernel
TILES_INTERPRETER = (64, 32, 4, 1)  # the first two are PIECE and BLOCK_K; some cases set others


def choose_tiles(q):
    """PIECE, BLOCK_K, num_warps, num_stages for q."""
    if INTERPRETED:
        return TILES_INTERPRETER
    return (PIECE, *(TILES_FLOAT32 if q.dtype == torch.float32 else TILES)[q.shape[3]])


def check_arguments(q, k_cache, v_cache, lengths, block_table, sink_logits, window_size):
    """Raise ValueError, with the offending values in the text, unless the arguments are legal."""
    shapes = f"q {tuple(q.shape)}, k_cache {tuple(k_cache.shape)}, v_cache {tuple(v_cache.shape)}"
    if not q.dim() == k_cache.dim() == v_cache.dim() == 4 or 0 in (*q.shape, *k_cache.shape, *v_cache.shape):
        raise ValueError(f"q, k_cache and v_cache must have four dimensions, none of them empty; got {shapes}")
    B, Hq, Nq, D = q.shape
    Hkv = k_cache.shape[1 if block_table is None else 2]
    if k_cache.shape != v_cache.shape or k_cache.shape[3] != D or (block_table is None and k_cache.shape[0] != B):
        raise ValueError(f"the caches must have one shape, D of q, and without a block_table its B; got {shapes}")
    if Hq % Hkv:
        raise ValueError(f"Hq must be a multiple of Hkv; got Hq={Hq}, Hkv={Hkv}")
    if Nq > MOST_NEW:
        raise ValueError(f"q must have 1 to {MOST_NEW} new tokens; got Nq={Nq}")
    if D not in HEAD_DIMS:
        raise ValueError(f"head dim must be one of {HEAD_DIMS}; got D={D}")
    named = (("q", q), ("k_cache", k_cache), ("v_cache", v_cache))
    if q.dtype not in DTYPES or any(x.dtype != q.dtype for _, x in named):
        raise ValueError(f"q and the caches must share one dtype of {DTYPES}; got "
                         f"{', '.join(f'{n} {x.dtype}' for n, x in named)}")  # fmt: skip
    if any(x.stride(3) != 1 for _, x in named):
        raise ValueError(f"the last stride must be 1; got {', '.join(f'{n} {x.stride()}' for n, x in named)}")
    if window_size is not None and window_size < 1:
        raise ValueError(f"window_size must be at least 1, or None; got window_size={window_size}")
    check_beside(q, "lengths", lengths, (B,), torch.int32)
    if block_table is not None:
        pages = block_table.shape[1] if block_table.dim() == 2 and block_table.shape[1] else "most pages"
        check_beside(q, "block_table", block_table, (B, pages), torch.int32)
    if sink_logits is not None:
        check_beside(q, "sink_logits", sink_logits, (Hq,), torch.float32)
    if any(x.device != q.device for _, x in named):
        raise ValueError(f"all tensors must be on one device; got {', '.join(f'{n} {x.device}' for n, x in named)}")


def check_beside(q, name, x, shape, dtype):
    """Raise ValueError unless x has this shape and dtype, and lies on the device of q with a last stride of 1."""
    fits = (tuple(x.shape), x.dtype, x.device) == (shape, dtype, q.device)
    if not fits or (x.shape[-1] > 1 and x.stride(-1) != 1):
        raise ValueError(f"{name} must be {shape}, {dtype}, on {q.device}, its last stride 1; got {tuple(x.shape)}, "
                         f"{x.dtype}, on {x.device}, strides {x.stride()}")  # fmt: skip


def count_slots(Nmax, Nq, window_size, piece):
    """The most pieces that hold a key of one sequence: none is launched for what lies before a window."""
    keys = window_size + Nq - 1  # from the first one that the first new token sees
    return min(triton.cdiv(Nmax, piece), triton.cdiv(keys - 1, piece) + 1)


def decode_attention(q, k_cache, v_cache, lengths, block_table=None, sink_logits=None, window_size=None,
                     softmax_scale=None):  # fmt: skip
    """Attention of the newest tokens over a cache, in two launches; nothing is read back to the host.

    q: (B, Hq, Nq, D), the newest Nq tokens, 1 to 8, causal among themselves. k_cache, v_cache: (B, Hkv, Nmax, D), or
    with block_table (pages, page_size, Hkv, D). Last stride 1; one dtype: float16, bfloat16 or float32. lengths: (B,),
    int32, tokens of each sequence with the new ones, at most Nmax; 0 for a sequence that is not there. block_table:
    (B, most pages), int32. sink_logits: (Hq,), float32, learned logits without a value. window_size: in tokens, the
    query's own included; None for no window. softmax_scale: 1 / sqrt(D) by default.
    Returns o (B, Hq, Nq, D), same dtype; 0 in a row that sees no key. A sequence's o has the same bits in any batch.
    Raises ValueError for arguments that do not fit.
    Method: Dao et al., "Flash-Decoding", 2023, with pieces of a fixed number of tokens.
    """
    check_arguments(q, k_cache, v_cache, lengths, block_table, sink_logits, window_size)
    B, Hq, Nq, D = q.shape
    if block_table is None:
        (_, Hkv, Nmax, _), page_size, stride_tb = k_cache.shape, 0, 0
        k_strides, v_strides = k_cache.stride()[:3], v_cache.stride()[:3]
    else:
        _, page_size, Hkv, _ = k_cache.shape
        Nmax, stride_tb = block_table.shape[1] * page_size, block_table.stride(0)
        k_strides, v_strides = ([x.stride(dim) for dim in (0, 2, 1)] for x in (k_cache, v_cache))
    group, window_size = Hq // Hkv, min(window_size or Nmax, Nmax)
    scale = 1.0 / math.sqrt(D) if softmax_scale is None else softmax_scale
    piece, BLOCK_K, num_warps, num_stages = choose_tiles(q)
    slots = count_slots(Nmax, Nq, window_size, piece)
    rows = min(MOST_ROWS, max(16, triton.next_power_of_2(group * Nq)))
    part_o = torch.empty(B, Hq, Nq, slots, D, dtype=torch.float32, device=q.device)
    part_lse = torch.empty(B, Hq, Nq, slots, dtype=torch.float32, device=q.device)
    o = torch.empty(B, Hq, Nq, D, dtype=q.dtype, device=q.device)
    piece_kernel[(slots, Hkv * triton.cdiv(group * Nq, rows), B)](
        q, k_cache, v_cache, lengths, lengths if block_table is None else block_table, part_o, part_lse,
        *q.stride()[:3], *k_strides, *v_strides, stride_tb, group, Nq, window_size, scale * 1.4426950408889634,
        D, page_size, rows, BLOCK_K, piece, num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
    merge_kernel[(Nq, Hq, B)](part_o, part_lse, sink_logits, lengths, o, Nq, window_size, slots, D, piece, BLOCK_P)
    return o
