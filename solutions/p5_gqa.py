"""P5: causal FlashAttention with grouped-query attention (GQA).

What to build
    P4's kernel for models whose query heads share key/value heads. Of Hq query heads and Hkv key/value
    heads, each group = Hq // Hkv neighbouring query heads read the same K and V:

        kv_head = head // group

    The kernel gets this by pointer arithmetic alone. K and V are never copied out to Hq heads: the smaller K and V are
    the whole point.

Shapes
    q and o (B, Hq, N, D); k and v (B, Hkv, N, D); Hq a multiple of Hkv. Hkv = Hq is P4; Hkv = 1 is multi-query
    attention.

Who reads whom, for Hq = 6 and Hkv = 2

        query head   0 1 2   3 4 5
        kv head        0       1

The tiles are P4's: '>' no mask, 'D' masked, '.' never loaded

                  key tile 0 1 2 3
        query tile 2       > > D .

Given: the checks, the launch, the loads, the finish. Asked: three gaps, marked TODO: the heads, the phases, one step of
the online softmax with its mask (yours from P4).

Questions that catch most mistakes
    - Which query heads share a kv head: neighbours, or every Hkv-th?
    - Which pointers move with `head` and which with `kv_head`?
    - K and V have strides of their own. Is every one of them used where it belongs?

Source: Ainslie et al., "GQA", 2023, section 2.2; Shazeer, "Fast Transformer Decoding", 2019, for one kv head.
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

        # gap 3: one step of the online softmax
        #   `new_max`, and `row_sum` and `acc` with this tile added; if MASKED, the keys past the end hidden and, if
        #   IS_CAUSAL, those after the query
        scores = tl.dot(q, tl.trans(k))  # (BLOCK_Q, BLOCK_K), float32, not yet scaled
        if MASKED:
            visible = k_pos[None, :] < N
            if IS_CAUSAL:
                visible &= k_pos[None, :] <= q_pos[:, None]
            scores = tl.where(visible, scores, float("-inf"))
        new_max = tl.maximum(row_max, tl.max(scores, 1) * qk_scale)
        alpha = tl.exp2(row_max - new_max)
        p = tl.exp2(scores * qk_scale - new_max[:, None])
        row_sum = row_sum * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        # end gap
        row_max = new_max
    return acc, row_max, row_sum


@triton.jit
def flash_attention_kernel(
    Q, K, V, O,
    stride_qb, stride_qh, stride_qn,
    stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn,
    stride_ob, stride_oh, stride_on,
    N, group, qk_scale,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, IS_CAUSAL: tl.constexpr,
):  # fmt: skip
    """One program: BLOCK_Q queries of one head. Grid: (query tiles, Hq, B)."""
    # Program 0 takes the last tile of queries, which sees the most keys: the longest programs start first.
    q_start = (tl.num_programs(0) - 1 - tl.program_id(0)) * BLOCK_Q
    # B x H x N x D can pass 2^31: offsets of whole heads and of rows are int64.
    head = tl.program_id(1).to(tl.int64)
    batch = tl.program_id(2).to(tl.int64)
    # gap 1: who reads which head
    #   `kv_head`, and the pointers `Q`, `K`, `V` and `O` moved to their batch and head
    kv_head = head // group
    Q += batch * stride_qb + head * stride_qh
    K += batch * stride_kb + kv_head * stride_kh
    V += batch * stride_vb + kv_head * stride_vh
    O += batch * stride_ob + head * stride_oh
    # end gap

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

    # gap 2: where the two phases begin and end
    #   `masked_start`, where phase 1 ends and phase 2 begins, a multiple of BLOCK_K; `k_end`, where phase 2 ends
    if IS_CAUSAL:
        masked_start = q_start // BLOCK_K * BLOCK_K
        k_end = tl.minimum(q_start + BLOCK_Q, N)
    else:
        masked_start = N // BLOCK_K * BLOCK_K
        k_end = N
    # end gap
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


def flash_attention_forward(q, k, v, is_causal=True):
    """Causal (or full) grouped-query attention in one kernel launch; K and V are read where they lie.

    q: (B, Hq, N, D). k, v: (B, Hkv, N, D). Last stride 1; one dtype: float16, bfloat16 or float32.
    Returns o (B, Hq, N, D), same dtype.
    Raises ValueError for shapes, head counts, dtypes, devices or strides that do not fit.
    Method: "FlashAttention-2" (Dao, 2023), section 3.1, on the heads of "GQA" (Ainslie et al., 2023).
    """
    check_arguments(q, k, v)
    B, Hq, N, D = q.shape
    o = torch.empty_like(q)
    BLOCK_Q, BLOCK_K, num_warps, num_stages = choose_tiles(q)
    grid = (triton.cdiv(N, BLOCK_Q), Hq, B)
    flash_attention_kernel[grid](
        q, k, v, o,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        N, Hq // k.shape[1], LOG2_E / math.sqrt(D),
        D, BLOCK_Q, BLOCK_K, is_causal, num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
    return o
