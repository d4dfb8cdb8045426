"""P7: attention sinks with a sliding window.

What to build
    P6's kernel with sinks: the first sink_size tokens stay visible for ever. Query i sees key j when

        j <= i  and  (i - j < window_size  or  j < sink_size)

    This is what keeps a streaming language model stable when its window has moved on. These sinks are *tokens*, not the
    learned logit that some models add to the softmax.

    One program: sinks, window, diagonal; and no key may be counted twice, though sinks and window can overlap in a
    tile, in many tiles, or wholly.

Shapes
    q and o (B, Hq, N, D); k and v (B, Hkv, N, D); Hq a multiple of Hkv; window_size >= 1; sink_size >= 0, also larger
    than the window or than N; sink_size = 0 is P6.

The tiles of some programs, BLOCK_Q = BLOCK_K = 4, window_size = 4, sink_size = 5: 'S' sinks, the rest as in P6

                  key tile 0 1 2 3 4
        query tile 0       D . . . .
        query tile 2       S E D . .        tile 1 holds the sink 4 and the window's edge: who counts key 4?
        query tile 4       S S . E D        tile 2 holds no sink, and no query looks back that far: never loaded

Given: the checks, the launch, the loads, the phase of the diagonal, the finish. Asked: four gaps, marked TODO; this is
the last problem, and they are large.

Questions that catch most mistakes
    - Which phase owns a tile that holds both sinks and window keys? What must the mask of the other phases say?
    - Where does the sink phase end: at sink_size, or earlier?
    - Is a sink visible to queries that come before it?
    - The softmax gives the same result in any order of tiles. Why are the sinks visited first nevertheless?

Source: Xiao et al., "Efficient Streaming Language Models with Attention Sinks", 2023, section 3.
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
def attend(state, queries, keys, start, end, window_size, sink_size, BLOCK_K: tl.constexpr, MASKED: tl.constexpr):
    """Run the online softmax over keys [start, end), tile by tile, masked by position if MASKED. Return the state."""
    acc, row_max, row_sum = state  # (BLOCK_Q, D), (BLOCK_Q,), (BLOCK_Q,)
    q, q_pos, qk_scale = queries  # (BLOCK_Q, D), (BLOCK_Q,)
    K, V, stride_kn, stride_vn, N = keys
    d = tl.arange(0, q.shape[1])
    for k_start in range(start, end, BLOCK_K):
        k_pos = k_start + tl.arange(0, BLOCK_K)
        in_bounds = k_pos[:, None] < N
        k_ptrs = K + k_pos.to(tl.int64)[:, None] * stride_kn + d[None, :]
        v_ptrs = V + k_pos.to(tl.int64)[:, None] * stride_vn + d[None, :]
        if MASKED:
            k = tl.load(k_ptrs, mask=in_bounds, other=0.0)
            v = tl.load(v_ptrs, mask=in_bounds, other=0.0)
        else:
            k = tl.load(k_ptrs)
            v = tl.load(v_ptrs)

        # TODO 4: one step of the online softmax, with this mask (about 11 lines; then delete the failing line)
        #   hide what neither the window nor the sinks show; then `new_max`, and `row_sum` and `acc` with this tile
        #   added
        tl.static_assert(False, "TODO 4: one step of the online softmax, with this mask")
        row_max = new_max
    return acc, row_max, row_sum


@triton.jit
def flash_attention_kernel(
    Q, K, V, O,
    stride_qb, stride_qh, stride_qn,
    stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn,
    stride_ob, stride_oh, stride_on,
    N, group, window_size, sink_size, qk_scale,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One program: BLOCK_Q queries of one head. Grid: (query tiles, Hq, B)."""
    # Program 0 takes the last tile of queries: the first tiles see fewer keys, and short programs should start last.
    q_start = (tl.num_programs(0) - 1 - tl.program_id(0)) * BLOCK_Q
    # B x H x N x D can pass 2^31: offsets of whole heads and of rows are int64.
    head = tl.program_id(1).to(tl.int64)
    batch = tl.program_id(2).to(tl.int64)
    # TODO 1: who reads which head (about 5 lines; then delete the failing line)
    #   `kv_head`, and the pointers `Q`, `K`, `V` and `O` moved to their batch and head, as in P5
    tl.static_assert(False, "TODO 1: who reads which head")

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

    # TODO 2: where the phases begin and end (about 6 lines; then delete the failing line)
    #   as in P6: `first`, the start of the window's first tile; `inside`, the start of the first tile that every query
    #   sees whole; `diagonal`, the start of the first tile that the diagonal cuts; `k_end`, one past the last key.
    #   New: `sink_end`, one past the last sink that the sink phase visits, so that no key is in two phases
    tl.static_assert(False, "TODO 2: where the phases begin and end")
    # TODO 3: the phases before the diagonal (about 3 lines; then delete the failing line)
    #   the sinks; the window's edge, with the sinks in it; the inside, with no mask
    tl.static_assert(False, "TODO 3: the phases before the diagonal")
    # The diagonal.
    state = attend(state, queries, keys, diagonal, k_end, window_size, sink_size, BLOCK_K, MASKED=True)
    acc, _, row_sum = state

    o = acc / row_sum[:, None]
    o_ptrs = O + q_pos.to(tl.int64)[:, None] * stride_on + d[None, :]  # (BLOCK_Q, D)
    tl.store(o_ptrs, o.to(O.dtype.element_ty), mask=q_pos[:, None] < N)


# (BLOCK_Q, BLOCK_K, num_warps, num_stages) by head dim, the fastest first; the first whose tiles fit is taken.
TILES = {
    16: [(64, 64, 4, 3)],
    32: [(64, 64, 4, 3)],
    64: [(64, 64, 4, 3)],
    128: [(64, 64, 4, 3), (64, 64, 4, 2)],
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


def check_arguments(q, k, v, is_causal, window_size, sink_size):
    """Raise ValueError, with the offending values in the text, unless the arguments are legal."""
    shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
    if not q.dim() == k.dim() == v.dim() == 4 or 0 in (*q.shape, *k.shape, *v.shape):
        raise ValueError(f"q, k and v must be (B, H, N, D) with no empty dimension; got {shapes}")
    if k.shape != v.shape or (q.shape[0], *q.shape[2:]) != (k.shape[0], *k.shape[2:]):
        raise ValueError(f"k and v must have one shape, and B, N and D of q; got {shapes}")
    if q.shape[1] % k.shape[1]:
        raise ValueError(f"Hq must be a multiple of Hkv; got Hq={q.shape[1]}, Hkv={k.shape[1]}")
    if q.shape[3] not in HEAD_DIMS:
        raise ValueError(f"head dim must be one of {HEAD_DIMS}; got D={q.shape[3]}")
    if not q.dtype == k.dtype == v.dtype or q.dtype not in DTYPES:
        raise ValueError(f"q, k and v must share one dtype of {DTYPES}; got {q.dtype}, {k.dtype}, {v.dtype}")
    if not q.device == k.device == v.device:
        raise ValueError(f"q, k and v must be on one device; got {q.device}, {k.device}, {v.device}")
    if not q.stride(3) == k.stride(3) == v.stride(3) == 1:
        raise ValueError(f"the last stride must be 1; got q {q.stride()}, k {k.stride()}, v {v.stride()}")
    if not is_causal:
        raise ValueError(f"a sliding window looks back only; got is_causal={is_causal}")
    if window_size < 1:
        raise ValueError(f"window_size must be at least 1; got window_size={window_size}")
    if sink_size < 0:
        raise ValueError(f"sink_size must not be negative; got sink_size={sink_size}")


def flash_attention_forward(q, k, v, is_causal=True, window_size=128, sink_size=4):
    """Sliding-window attention with sinks in one kernel launch; the cost is O(N x (window_size + sink_size)).

    q: (B, Hq, N, D). k, v: (B, Hkv, N, D). Last stride 1; one dtype: float16, bfloat16 or float32.
    window_size: in tokens, the query's own included. sink_size: in tokens, from the first one on.
    Returns o (B, Hq, N, D), same dtype.
    Raises ValueError for arguments that do not fit: is_causal=False, window_size < 1 and sink_size < 0 among them.
    Method: "FlashAttention-2" (Dao, 2023), section 3.1, over the mask of Xiao et al., 2023, section 3.
    """
    check_arguments(q, k, v, is_causal, window_size, sink_size)
    B, Hq, N, D = q.shape
    window_size, sink_size = min(window_size, N), min(sink_size, N)  # the same mask; a size of "all" cannot overflow
    o = torch.empty_like(q)
    BLOCK_Q, BLOCK_K, num_warps, num_stages = choose_tiles(q)
    grid = (triton.cdiv(N, BLOCK_Q), Hq, B)
    flash_attention_kernel[grid](
        q, k, v, o,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        N, Hq // k.shape[1], window_size, sink_size, LOG2_E / math.sqrt(D),
        D, BLOCK_Q, BLOCK_K, num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
    return o
