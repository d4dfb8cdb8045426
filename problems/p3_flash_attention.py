"""P3: FlashAttention in one Triton kernel.

What to build
    P2's loop as a GPU kernel. One *program* owns one tile of queries of one head: it loads the tile once, streams the
    tiles of K and V past it, keeps row_max, row_sum and acc in registers, and writes its rows of o once.

    Two changes against P2 make it fast:
      - exp2, which the hardware has as an instruction: exp(x) = exp2(x * log2(e)), so log2(e) is folded
        into the scale (`qk_scale`) and the maximum is kept in base 2 as well;
      - whole tiles take no mask at all. Only the last tile of keys, where N is not a multiple of BLOCK_K, pays for one.

Shapes
    q, k, v and o (B, H, N, D): float16, bfloat16 or float32; any strides, as long as the last one is 1.
    N is any length from 1; D is 16, 32, 64, 128 or 256.

The tiles of one program (N = 5.4 tiles): '>' no mask, 'r' the ragged tail, masked

                  key tile 0 1 2 3 4 5
        query tile 3       > > > > > r

Given: the checks, the launch, the pointers, the loads, the loop, the finish. Asked: three short gaps, marked TODO. All
three are in `attend`, one after the other: together they are one step of the online softmax.

Triton's reference is at triton-lang.org; you need tl.dot, tl.trans, tl.where, tl.maximum, tl.max, tl.sum, tl.exp2.

Questions that catch most mistakes
    - A key past the end is loaded as zeros. Which score does a zero key get, and what does softmax make of it?
    - `row_max` is a score times log2(e). Does everything you subtract it from have this factor, too?
    - p is float32 and v is float16. What does tl.dot want, and in which dtype does it add up?
    - Which two running values were measured against the old maximum?

Source: Dao, "FlashAttention-2", 2023, section 3.1; the loop is algorithm 1 there.
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
def attend(state, queries, keys, start, end, BLOCK_K: tl.constexpr, MASKED: tl.constexpr):
    """Run the online softmax over keys [start, end), tile by tile, masked past N if MASKED. Return the state."""
    acc, row_max, row_sum = state  # (BLOCK_Q, D), (BLOCK_Q,), (BLOCK_Q,)
    q, qk_scale = queries  # (BLOCK_Q, D)
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

        # TODO 1: the scores of this tile (about 3 lines; then delete the failing line)
        #   `scores` = q k^T, not yet scaled (BLOCK_Q, BLOCK_K), float32; if MASKED, the keys past the end hidden
        tl.static_assert(False, "TODO 1: the scores of this tile")

        # TODO 2: the new maximum and what follows from it (about 3 lines; then delete the failing line)
        #   scaled scores are scores times qk_scale; `row_max` (BLOCK_Q,) is each query's largest scaled score so far.
        #   Compute `new_max` (BLOCK_Q,), the largest with this tile included; `alpha` (BLOCK_Q,), by which everything
        #   older must be multiplied; `p` (BLOCK_Q, BLOCK_K) = exp2(scaled scores - new_max). The loop's last
        #   line sets row_max to new_max
        tl.static_assert(False, "TODO 2: the new maximum and what follows from it")

        # TODO 3: rescale what earlier tiles added, and add this tile (about 2 lines; then delete the failing line)
        #   `row_sum` (BLOCK_Q,) and `acc` (BLOCK_Q, D)
        tl.static_assert(False, "TODO 3: rescale what earlier tiles added, and add this tile")
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
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One program: BLOCK_Q queries of one head. Grid: (query tiles, H, B)."""
    q_start = tl.program_id(0) * BLOCK_Q
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
    queries = q, qk_scale
    keys = K, V, stride_kn, stride_vn, N

    full_end = N // BLOCK_K * BLOCK_K
    # Phase 1: whole tiles, no mask.
    state = attend(state, queries, keys, 0, full_end, BLOCK_K, MASKED=False)
    # Phase 2: the ragged tail.
    state = attend(state, queries, keys, full_end, N, BLOCK_K, MASKED=True)
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


def flash_attention_forward(q, k, v, is_causal=False):
    """Full attention in one kernel launch.

    q, k, v: (B, H, N, D), last stride 1. One dtype: float16, bfloat16 or float32. Returns o (B, H, N, D), same dtype.
    Raises ValueError for arguments that do not fit, is_causal=True among them: causal attention is P4.
    Method: "FlashAttention-2" (Dao, 2023), algorithm 1.
    """
    check_arguments(q, k, v)
    if is_causal:
        raise ValueError(f"P3 is full attention; got is_causal={is_causal}: P4 builds the causal kernel")
    B, H, N, D = q.shape
    o = torch.empty_like(q)
    BLOCK_Q, BLOCK_K, num_warps, num_stages = choose_tiles(q)
    grid = (triton.cdiv(N, BLOCK_Q), H, B)
    flash_attention_kernel[grid](
        q, k, v, o,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        N, LOG2_E / math.sqrt(D),
        D, BLOCK_Q, BLOCK_K, num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
    return o
