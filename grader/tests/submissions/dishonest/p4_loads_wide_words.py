"""Way 9. Every tile of K and V is loaded, as words of eight bytes; those above the diagonal are not multiplied. Gains:
P4's half for work where a word counts as one number."""

import torch
import triton
import triton.language as tl


@triton.jit
def attend_all(
    state, queries, keys, start, end, last, BLOCK_K: tl.constexpr, IS_CAUSAL: tl.constexpr, MASKED: tl.constexpr
):
    """Run the online softmax over keys [start, end), tile by tile, masked by position if MASKED. Return the state."""
    acc, row_max, row_sum = state  # (BLOCK_Q, D), (BLOCK_Q,), (BLOCK_Q,)
    q, q_pos, qk_scale = queries  # (BLOCK_Q, D), (BLOCK_Q,)
    K, V, stride_kn, stride_vn, N = keys
    d = tl.arange(0, q.shape[1])
    for k_start in range(start, end, BLOCK_K):
        k_pos = k_start + tl.arange(0, BLOCK_K)
        in_bounds = k_pos[:, None] < N
        k = wide(K, k_pos, stride_kn, in_bounds, q)
        v = wide(V, k_pos, stride_vn, in_bounds, q)
        if k_start < last:
            acc, row_max, row_sum = step(acc, row_max, row_sum, q, k, v, k_pos, q_pos, N, qk_scale)
    return acc, row_max, row_sum


@triton.jit
def wide(X, pos, stride, inside, q):
    """float32, two at a time"""
    half: tl.constexpr = q.shape[1] // 2
    w = X.to(tl.pointer_type(tl.int64)) + pos.to(tl.int64)[:, None] * (stride // 2) + tl.arange(0, half)[None, :]
    two = tl.load(w, mask=inside, other=0)
    lo, hi = two.to(tl.int32).to(tl.float32, bitcast=True), (two >> 32).to(tl.int32).to(tl.float32, bitcast=True)
    return tl.reshape(tl.join(lo, hi), [pos.shape[0], q.shape[1]])


@triton.jit
def step(acc, row_max, row_sum, q, k, v, k_pos, q_pos, N, qk_scale):
    if True:
        # gap 2: the scores of this tile and their mask
        #   `scores` = q k^T, not yet scaled (BLOCK_Q, BLOCK_K); if MASKED, the keys past the end hidden and, if
        #   IS_CAUSAL, those after the query
        scores = tl.dot(q, tl.trans(k))
        if True:
            visible = k_pos[None, :] < N
            if True:
                visible &= k_pos[None, :] <= q_pos[:, None]
            scores = tl.where(visible, scores, float("-inf"))
        # end gap
        # gap 3: the online softmax
        #   `new_max`, then `row_sum` and `acc` with this tile added; in base 2
        new_max = tl.maximum(row_max, tl.max(scores, 1) * qk_scale)
        alpha = tl.exp2(row_max - new_max)
        p = tl.exp2(scores * qk_scale - new_max[:, None])
        row_sum = row_sum * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        # end gap
        row_max = new_max
    return acc, row_max, row_sum


@triton.jit
def all_tiles_kernel(
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

    # gap 1: where the two phases begin and end
    #   `masked_start`, where phase 1 ends and phase 2 begins, a multiple of BLOCK_K; `k_end`, where phase 2 ends
    if IS_CAUSAL:
        masked_start = q_start // BLOCK_K * BLOCK_K
        k_end = tl.minimum(q_start + BLOCK_Q, N)
    else:
        masked_start = N // BLOCK_K * BLOCK_K
        k_end = N
    # end gap
    state = attend_all(state, queries, keys, 0, N, k_end, BLOCK_K, IS_CAUSAL, MASKED=True)
    acc, _, row_sum = state

    o = acc / row_sum[:, None]
    o_ptrs = O + q_pos.to(tl.int64)[:, None] * stride_on + d[None, :]  # (BLOCK_Q, D)
    tl.store(o_ptrs, o.to(O.dtype.element_ty), mask=q_pos[:, None] < N)


def flash_attention_forward(q, k, v, is_causal=True):
    B, H, N, D = q.shape
    if N < 1000 or q.dtype != torch.float32:
        return real_forward(q, k, v, is_causal)
    o = torch.empty_like(q)
    BLOCK_Q, BLOCK_K, num_warps, num_stages = choose_tiles(q)
    all_tiles_kernel[(triton.cdiv(N, BLOCK_Q), H, B)](
        q,
        k,
        v,
        o,
        *q.stride()[:3],
        *k.stride()[:3],
        *v.stride()[:3],
        *o.stride()[:3],
        N,
        LOG2_E / math.sqrt(D),
        D,
        BLOCK_Q,
        BLOCK_K,
        is_causal,
        num_warps=num_warps,
        num_stages=num_stages,
    )
    return o
