"""P4: causal FlashAttention.

What to build
    P3's kernel for causal attention, where query i sees the keys 0 to i. Half of the tiles hold nothing that any of
    their queries may see: they are never loaded. Of the rest, only those that the diagonal cuts need a mask.

    So one program runs two phases:
      - phase 1, the tiles wholly below the diagonal: no mask, the same cheap step as in P3;
      - phase 2, the tiles that the diagonal cuts: masked by position.

Shapes
    q, k, v and o (B, H, N, D) as in P3. is_causal=False gives full attention: phase 1 is then all whole tiles and
    phase 2 the ragged tail.

The tiles of three programs, BLOCK_Q = 2 * BLOCK_K: '>' no mask, 'D' masked, '.' never loaded

                  key tile 0 1 2 3 4 5
        query tile 0       D D . . . .
        query tile 1       > > D D . .
        query tile 2       > > > > D D

Given: the checks, the launch, the pointers, the loads, the finish. Asked: three gaps, marked TODO: where the phases
begin and end, the mask, the online softmax (yours from P3).

Questions that catch most mistakes
    - Does a query see itself?
    - Phase 1 takes whole tiles of keys; the diagonal may be at any token. What if BLOCK_Q and BLOCK_K differ?
    - Where does phase 2 end when the last tile of queries is ragged?
    - A hidden key has the score -inf. Can all keys of a row's first tile be hidden from that row?

Source: Dao, "FlashAttention-2", 2023, section 3.1.1 (causal masking).
"""

import math
import os

import torch
import triton
import triton.language as tl

HEAD_DIMS = (16, 32, 64, 128, 256)
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
LOG2_E = 1.4426950408889634
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # where there is no GPU, Triton runs on the CPU like this


@triton.jit
def attend(state, queries, keys, start, end, BLOCK_K: tl.constexpr, IS_CAUSAL: tl.constexpr, MASKED: tl.constexpr):
    """Run the online softmax over keys [start, end), tile by tile, masked by position if MASKED. Return the state."""
    acc, row_max, row_sum = state  # (BLOCK_Q, D), (BLOCK_Q,), (BLOCK_Q,)
    q, q_pos, qk_scale = queries  # (BLOCK_Q, D), (BLOCK_Q,)
    K, V, stride_kn, stride_vn, N = keys
    d = tl.arange(0, q.shape[1])
    for k_start in range(start, end, BLOCK_K):
        k_pos = k_start + tl.arange(0, BLOCK_K)
        in_bounds = k_pos[:, None] < N
        k_ptrs = K + k_pos.to(tl.int64)[:, None] * stride_kn + d[None, :]  # (BLOCK_K, D)
        v_ptrs = V + k_pos.to(tl.int64)[:, None] * stride_vn + d[None, :]  # (BLOCK_K, D)
        if MASKED:
            k = tl.load(k_ptrs, mask=in_bounds, other=0.0)
            v = tl.load(v_ptrs, mask=in_bounds, other=0.0)
        else:
            k = tl.load(k_ptrs)
            v = tl.load(v_ptrs)

        # TODO 2: the scores of this tile and their mask (about 6 lines; then delete the failing line)
        #   `scores` = q k^T, not yet scaled (BLOCK_Q, BLOCK_K); if MASKED, the keys past the end hidden and, if
        #   IS_CAUSAL, those after the query
        tl.static_assert(False, "TODO 2: the scores of this tile and their mask")
        # TODO 3: the online softmax (about 5 lines; then delete the failing line)
        #   `new_max`, then `row_sum` and `acc` with this tile added; in base 2
        tl.static_assert(False, "TODO 3: the online softmax")
        row_max = new_max
    return acc, row_max, row_sum


@triton.jit
def flash_attention_kernel(
    Q, K, V, O,
    stride_qb, stride_qh, stride_qn,
    stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn,
    stride_ob, stride_oh, stride_on,
    N, qk_scale,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, IS_CAUSAL: tl.constexpr,
):  # fmt: skip
    """One program: BLOCK_Q queries of one head. Grid: (query tiles, H, B)."""
    # Program 0 takes the last tile of queries, which sees the most keys: the longest programs start first.
    q_start = (tl.num_programs(0) - 1 - tl.program_id(0)) * BLOCK_Q
    # B x H x N x D can pass 2^31: offsets of whole heads and of rows are int64.
    head = tl.program_id(1).to(tl.int64)
    batch = tl.program_id(2).to(tl.int64)
    Q += batch * stride_qb + head * stride_qh
    K += batch * stride_kb + head * stride_kh
    V += batch * stride_vb + head * stride_vh
    O += batch * stride_ob + head * stride_oh

    q_pos = q_start + tl.arange(0, BLOCK_Q)
    d = tl.arange(0, D)
    q_ptrs = Q + q_pos.to(tl.int64)[:, None] * stride_qn + d[None, :]  # (BLOCK_Q, D)
    q = tl.load(q_ptrs, mask=q_pos[:, None] < N, other=0.0)

    row_max = tl.full([BLOCK_Q], float("-inf"), tl.float32)  # the paper's m, in base 2
    row_sum = tl.zeros([BLOCK_Q], tl.float32)  # the paper's l
    acc = tl.zeros([BLOCK_Q, D], tl.float32)
    state = acc, row_max, row_sum
    queries = q, q_pos, qk_scale
    keys = K, V, stride_kn, stride_vn, N

    # TODO 1: where the two phases begin and end (about 6 lines; then delete the failing line)
    #   `masked_start`, where phase 1 ends and phase 2 begins, a multiple of BLOCK_K; `k_end`, where phase 2 ends
    tl.static_assert(False, "TODO 1: where the two phases begin and end")
    # Phase 1: every query of this tile sees every key; no mask.
    state = attend(state, queries, keys, 0, masked_start, BLOCK_K, IS_CAUSAL, MASKED=False)
    # Phase 2: the diagonal, or the ragged tail.
    state = attend(state, queries, keys, masked_start, k_end, BLOCK_K, IS_CAUSAL, MASKED=True)
    acc, _, row_sum = state

    o = acc / row_sum[:, None]
    o_ptrs = O + q_pos.to(tl.int64)[:, None] * stride_on + d[None, :]  # (BLOCK_Q, D)
    tl.store(o_ptrs, o.to(O.dtype.element_ty), mask=q_pos[:, None] < N)


# (BLOCK_Q, BLOCK_K, num_warps, num_stages) by head dim, the fastest first; the first whose tiles fit is taken.
TILES = {
    16: [(128, 64, 4, 3)],
    32: [(128, 64, 4, 3)],
    64: [(128, 64, 4, 3)],
    128: [(128, 128, 8, 3), (128, 64, 8, 3), (64, 64, 4, 2)],
    256: [(128, 64, 8, 2), (64, 64, 4, 2), (64, 32, 4, 2)],
}
TILES_FLOAT32 = {
    16: [(128, 32, 4, 2)],
    32: [(128, 32, 4, 2)],
    64: [(128, 32, 4, 2)],
    128: [(128, 64, 8, 2), (128, 32, 4, 2), (32, 32, 4, 2)],
    256: [(32, 32, 4, 2), (32, 16, 4, 2)],
}
TILES_INTERPRETER = (64, 32, 4, 1)  # some cases set other tiles, (16, 64) among them


def choose_tiles(q):
    """BLOCK_Q, BLOCK_K, num_warps, num_stages for q: what fits into shared memory; small tiles in the interpreter."""
    if INTERPRETED:
        return TILES_INTERPRETER
    D = q.shape[-1]
    limit = torch.cuda.get_device_properties(q.device).shared_memory_per_block_optin
    for tiles in (TILES_FLOAT32 if q.dtype == torch.float32 else TILES)[D]:
        BLOCK_Q, BLOCK_K, _, num_stages = tiles
        if q.element_size() * D * (BLOCK_Q + 2 * BLOCK_K * num_stages) <= limit:  # Q once, K and V for each stage
            break
    return tiles


def check_arguments(q, k, v):
    """Raise ValueError, with the offending values in the text, unless the arguments are legal self-attention."""
    shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
    if not q.dim() == k.dim() == v.dim() == 4 or 0 in (*q.shape, *k.shape, *v.shape):
        raise ValueError(f"q, k and v must be (B, H, N, D) with no empty dimension; got {shapes}")
    if not q.shape == k.shape == v.shape:
        raise ValueError(f"q, k and v must have one shape; got {shapes}")
    if q.shape[3] not in HEAD_DIMS:
        raise ValueError(f"head dim must be one of {HEAD_DIMS}; got D={q.shape[3]}")
    if not q.dtype == k.dtype == v.dtype or q.dtype not in DTYPES:
        raise ValueError(f"q, k and v must share one dtype of {DTYPES}; got {q.dtype}, {k.dtype}, {v.dtype}")
    if not q.device == k.device == v.device:
        raise ValueError(f"q, k and v must be on one device; got {q.device}, {k.device}, {v.device}")
    if not q.stride(3) == k.stride(3) == v.stride(3) == 1:
        raise ValueError(f"the last stride must be 1; got q {q.stride()}, k {k.stride()}, v {v.stride()}")


def flash_attention_forward(q, k, v, is_causal=True):
    """Causal (or full) attention in one kernel launch; tiles above the diagonal are never loaded.

    q, k, v: (B, H, N, D), last stride 1. One dtype: float16, bfloat16 or float32. Returns o (B, H, N, D), same dtype.
    Raises ValueError for shapes, dtypes, devices or strides that do not fit.
    Method: "FlashAttention-2" (Dao, 2023), algorithm 1 and section 3.1.1.
    """
    check_arguments(q, k, v)
    B, H, N, D = q.shape
    o = torch.empty_like(q)
    BLOCK_Q, BLOCK_K, num_warps, num_stages = choose_tiles(q)
    grid = (triton.cdiv(N, BLOCK_Q), H, B)
    flash_attention_kernel[grid](
        q, k, v, o,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        N, LOG2_E / math.sqrt(D),
        D, BLOCK_Q, BLOCK_K, is_causal, num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
    return o
