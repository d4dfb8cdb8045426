"""X3, a lab past the ladder: the backward pass of attention, for causal masks, windows, sinks and shared heads.

What to build
    `attention_forward` is given whole: it is P7's kernel, so solve P7 first. It also returns lse. You write
    `attention_backward`. It gets `do`, the gradient of the forward's output o, and returns the gradients dq, dk and dv.
    With p = exp(scores - lse), the probabilities, which are computed anew from q, k and lse and never stored:

        dv = p^T do        dp = do v^T        ds = p (dp - delta)        dq = scale ds k        dk = scale ds^T q

    delta, one number for each query, is the sum of do * o over the head dim. It is subtracted because the softmax keeps
    the sum of a row of p at 1. Four kernels, without atomics, so that the same inputs give the same bits:

        delta_kernel    delta of a tile of queries
        queries_kernel  owns a tile of queries and walks over keys, as the forward does: dq
        keys_kernel     owns a tile of keys and walks over the tiles of queries that see it: dk and dv
        sinks_kernel    dk and dv of the sinks, in parts, each of a few tiles of queries; the wrapper adds them up

Shapes
    q, o, do and dq (B, Hq, N, D); k, v, dk and dv (B, Hkv, N, D); Hq a multiple of Hkv: dk and dv are the sums over the
    query heads that share a kv head. lse (B, Hq, N), float32, natural logarithm. Query i sees key j when
    j <= i and (i - j < window_size or j < sink_size); window_size None for no window; is_causal=False: all of them.

The new idea is the mask from the key's side: which queries see this tile of keys? BLOCK_Q = BLOCK_K = 4, a window of 6,
2 sinks: 'D' the diagonal, 'E' the window's edge, 'S' queries that see only the sinks of the tile. Every later query
sees the sinks, so a program with sinks would run much longer than all others: sinks have programs of their own.

                  query tile 0 1 2 3 4
        key tile 0           D E E S S      keys 0 and 1 are sinks; the last key, 3, is seen up to query 8
        key tile 1           . D E E .      the last key, 7, is seen up to query 12
        key tile 2           . . D E E

Given: the forward, sinks_kernel, the checks, launches, loads and stores, dq's phases. Asked: nine gaps, marked TODO, in
an order in which each can be tried: dv needs 1 to 4, dk 1 to 3 and 5 to 7, dq 1, 2, 5, 8 and 9 (keys_kernel always runs
and needs 2). What is not computed yet stays zero: delete the failing lines of what you leave for later. The grader says
which of dq, dk and dv are right.

Questions that catch most mistakes
    - Which is the first query that sees a key, and which is the last? Which kernel adds up the queries that see no key
      of a tile but its sinks?
    - p is a probability within the whole row, not within a tile. What must be subtracted from a score before exp, and
      in which base?
    - Over which query heads do dk and dv add up?
    - The scale stands before the softmax. In which of the three gradients does it stand, and how often?

Source: Dao, "FlashAttention-2", 2023, algorithm 2; Dao et al., "FlashAttention", 2022, appendix B.2 (delta from o).
"""

import math
import os

import torch
import triton
import triton.language as tl

HEAD_DIMS = (16, 32, 64, 128, 256)
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # where there is no GPU, Triton runs on the CPU like this


@triton.jit
def is_visible(q_pos, k_pos, N, window_size, sink_size, IS_CAUSAL: tl.constexpr):
    """Whether the queries see the keys: booleans of the shape that the two broadcast to."""
    # TODO 1: the mask (about 4 lines; then delete the failing line)
    #   `visible`, over the two blocks of positions, which broadcast: the key exists; and if IS_CAUSAL, it is not after
    #   the query, and it is in the window or a sink
    tl.static_assert(False, "TODO 1: the mask")
    return visible


# The forward, given --------------------------------------------------------------------------------------------------


@triton.jit
def attend(state, queries, keys, start, end, N, window_size, sink_size, BLOCK_K: tl.constexpr, IS_CAUSAL: tl.constexpr,
           MASKED: tl.constexpr):  # fmt: skip
    """Run the online softmax over keys [start, end), tile by tile, masked by position if MASKED. Return the state."""
    acc, row_max, row_sum = state  # (BLOCK_Q, D), (BLOCK_Q,), (BLOCK_Q,)
    q, q_pos, qk_scale = queries  # (BLOCK_Q, D), (BLOCK_Q,)
    K, V, stride_kn, stride_vn = keys
    d = tl.arange(0, q.shape[1])
    for k_start in range(start, end, BLOCK_K):
        k_pos = k_start + tl.arange(0, BLOCK_K)
        k_ptrs = K + k_pos.to(tl.int64)[:, None] * stride_kn + d[None, :]
        v_ptrs = V + k_pos.to(tl.int64)[:, None] * stride_vn + d[None, :]
        if MASKED:
            k = tl.load(k_ptrs, mask=k_pos[:, None] < N, other=0.0)
            v = tl.load(v_ptrs, mask=k_pos[:, None] < N, other=0.0)
        else:
            k, v = tl.load(k_ptrs), tl.load(v_ptrs)
        scores = tl.dot(q, tl.trans(k)) * qk_scale  # (BLOCK_Q, BLOCK_K), in base 2
        if MASKED:
            seen = k_pos[None, :] < N
            if IS_CAUSAL:
                age = q_pos[:, None] - k_pos[None, :]
                seen = (age >= 0) & ((age < window_size) | (k_pos[None, :] < sink_size))
            scores = tl.where(seen, scores, float("-inf"))
        new_max = tl.maximum(row_max, tl.max(scores, 1))
        pivot = tl.where(new_max == float("-inf"), 0.0, new_max)
        alpha = tl.exp2(row_max - pivot)
        p = tl.exp2(scores - pivot[:, None])
        row_sum = row_sum * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        row_max = new_max
    return acc, row_max, row_sum


@triton.jit
def phases_of_queries(q_start, N, window_size, sink_size, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
                      IS_CAUSAL: tl.constexpr):  # fmt: skip
    """(sink_end, first, inside, masked, end) of a tile of queries: its keys are [0, sink_end) and [first, end), of
    which [inside, masked) need no mask."""
    if IS_CAUSAL:
        first = tl.maximum(0, q_start - window_size + 1) // BLOCK_K * BLOCK_K
        masked = q_start // BLOCK_K * BLOCK_K
        oldest_for_all = tl.maximum(0, q_start + BLOCK_Q - window_size)
        inside = tl.minimum(tl.cdiv(oldest_for_all, BLOCK_K) * BLOCK_K, masked)
        sink_end, end = tl.minimum(sink_size, first), tl.minimum(q_start + BLOCK_Q, N)
    else:
        first, inside, sink_end = q_start * 0, q_start * 0, q_start * 0
        masked, end = N // BLOCK_K * BLOCK_K, N
    return sink_end, first, inside, masked, end


@triton.jit
def forward_kernel(
    Q, K, V, O, Lse, SinkLogits,
    stride_qb, stride_qh, stride_qn,
    stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn,
    stride_ob, stride_oh, stride_on,
    N, group, window_size, sink_size, qk_scale,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, IS_CAUSAL: tl.constexpr,
):  # fmt: skip
    """One program: BLOCK_Q queries of one head. Grid: (query tiles, Hq, B). SinkLogits (Hq,), or None."""
    q_start = (tl.num_programs(0) - 1 - tl.program_id(0)) * BLOCK_Q  # the longest row starts first
    head, batch = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    Lse += (batch * tl.num_programs(1) + head) * N
    Q += batch * stride_qb + head * stride_qh
    K += batch * stride_kb + head // group * stride_kh
    V += batch * stride_vb + head // group * stride_vh
    O += batch * stride_ob + head * stride_oh
    q_pos, d = q_start + tl.arange(0, BLOCK_Q), tl.arange(0, D)
    q = tl.load(Q + q_pos.to(tl.int64)[:, None] * stride_qn + d[None, :], mask=q_pos[:, None] < N, other=0.0)
    row_max, row_sum = tl.full([BLOCK_Q], float("-inf"), tl.float32), tl.zeros([BLOCK_Q], tl.float32)
    if SinkLogits is not None:  # each row has met a key with this score, and a value of 0
        row_max, row_sum = tl.zeros([BLOCK_Q], tl.float32) + tl.load(SinkLogits + head) * LOG2_E, row_sum + 1.0
    state = tl.zeros([BLOCK_Q, D], tl.float32), row_max, row_sum
    queries = q, q_pos, qk_scale
    keys = K, V, stride_kn, stride_vn
    sink_end, first, inside, masked, end = phases_of_queries(
        q_start, N, window_size, sink_size, BLOCK_Q, BLOCK_K, IS_CAUSAL
    )
    state = attend(state, queries, keys, 0, sink_end, N, window_size, sink_size, BLOCK_K, IS_CAUSAL, True)
    state = attend(state, queries, keys, first, inside, N, window_size, sink_size, BLOCK_K, IS_CAUSAL, True)
    state = attend(state, queries, keys, inside, masked, N, window_size, sink_size, BLOCK_K, IS_CAUSAL, False)
    state = attend(state, queries, keys, masked, end, N, window_size, sink_size, BLOCK_K, IS_CAUSAL, True)
    acc, row_max, row_sum = state
    o_ptrs = O + q_pos.to(tl.int64)[:, None] * stride_on + d[None, :]
    tl.store(o_ptrs, (acc / row_sum[:, None]).to(O.dtype.element_ty), mask=q_pos[:, None] < N)
    tl.store(Lse + q_pos, (row_max + tl.log2(row_sum)) * LN_2, mask=q_pos < N)


# The backward --------------------------------------------------------------------------------------------------------


@triton.jit
def delta_kernel(
    O, DO, Delta,
    stride_ob, stride_oh, stride_on,
    stride_dob, stride_doh, stride_don,
    N, D: tl.constexpr, BLOCK_Q: tl.constexpr,
):  # fmt: skip
    """One program: delta of BLOCK_Q queries of one head. Grid: (query tiles, Hq, B)."""
    head, batch = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    Delta += (batch * tl.num_programs(1) + head) * N
    q_pos, d = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q), tl.arange(0, D)
    rows = q_pos.to(tl.int64)[:, None]
    o_ptrs = O + batch * stride_ob + head * stride_oh + rows * stride_on + d[None, :]
    do_ptrs = DO + batch * stride_dob + head * stride_doh + rows * stride_don + d[None, :]
    o = tl.load(o_ptrs, mask=q_pos[:, None] < N, other=0.0).to(tl.float32)  # (BLOCK_Q, D)
    do = tl.load(do_ptrs, mask=q_pos[:, None] < N, other=0.0).to(tl.float32)
    delta = tl.zeros([BLOCK_Q], tl.float32)
    # TODO 5: delta (about 1 line; then delete the failing line)
    #   `delta` (BLOCK_Q,), float32
    tl.static_assert(False, "TODO 5: delta")
    tl.store(Delta + q_pos, delta, mask=q_pos < N)


@triton.jit
def add_queries(state, keys, queries, start, end, N, window_size, sink_size, BLOCK_Q: tl.constexpr,
                IS_CAUSAL: tl.constexpr, MASKED: tl.constexpr):  # fmt: skip
    """dk (not scaled) and dv of a tile of keys, with the queries [start, end) of one head added, tile by tile.

    Masked by position if MASKED. Scores, p, dp and ds have the keys first: (BLOCK_K, BLOCK_Q).
    """
    dk, dv = state  # (BLOCK_K, D) each, float32
    k, v, k_pos, qk_scale = keys  # (BLOCK_K, D), (BLOCK_K, D), (BLOCK_K,)
    Q, DO, Lse, Delta, stride_qn, stride_don = queries
    d = tl.arange(0, k.shape[1])
    for q_start in range(start, end, BLOCK_Q):
        q_pos = q_start + tl.arange(0, BLOCK_Q)
        q_ptrs = Q + q_pos.to(tl.int64)[:, None] * stride_qn + d[None, :]
        do_ptrs = DO + q_pos.to(tl.int64)[:, None] * stride_don + d[None, :]
        if MASKED:
            q = tl.load(q_ptrs, mask=q_pos[:, None] < N, other=0.0)  # (BLOCK_Q, D)
            do = tl.load(do_ptrs, mask=q_pos[:, None] < N, other=0.0)
            lse = tl.load(Lse + q_pos, mask=q_pos < N, other=0.0)  # (BLOCK_Q,), natural logarithm
            delta = tl.load(Delta + q_pos, mask=q_pos < N, other=0.0)
        else:
            q, do, lse, delta = tl.load(q_ptrs), tl.load(do_ptrs), tl.load(Lse + q_pos), tl.load(Delta + q_pos)
        # TODO 3: the probabilities (about 4 lines; then delete the failing line)
        #   `p` (BLOCK_K, BLOCK_Q), float32: from the scores and lse, 0 where the mask hides the pair if MASKED
        tl.static_assert(False, "TODO 3: the probabilities")
        dp = tl.dot(v, tl.trans(do))  # before dv: two products that do not wait for each other are 3 to 5 % faster
        # TODO 4: dv with these queries added (about 1 line; then delete the failing line)
        #   `dv`
        tl.static_assert(False, "TODO 4: dv with these queries added")
        # TODO 6: dk with these queries added, before its scale (about 2 lines; then delete the failing line)
        #   ds, and `dk`
        tl.static_assert(False, "TODO 6: dk with these queries added, before its scale")
    return dk, dv


@triton.jit
def sinks_kernel(
    Q, K, V, DO, Lse, Delta, PartDK, PartDV,
    stride_qb, stride_qh, stride_qn,
    stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn,
    stride_dob, stride_doh, stride_don,
    stride_lb, stride_lh,
    N, group, window_size, sink_size, scale, qk_scale, parts, span,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    """One program: what `span` queries add to dk and dv of BLOCK_S sinks, for one kv head.

    Grid: (sink tiles x parts, Hkv, B); PartDK and PartDV (B, Hkv, parts, sink_size, D), float32.
    """
    part, k_start = tl.program_id(0) % parts, tl.program_id(0) // parts * BLOCK_S
    kv_head, batch = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    Hkv = tl.num_programs(1)
    k_pos, d = k_start + tl.arange(0, BLOCK_S), tl.arange(0, D)
    rows = k_pos.to(tl.int64)[:, None]
    k_ptrs = K + batch * stride_kb + kv_head * stride_kh + rows * stride_kn + d[None, :]
    v_ptrs = V + batch * stride_vb + kv_head * stride_vh + rows * stride_vn + d[None, :]
    k = tl.load(k_ptrs, mask=k_pos[:, None] < N, other=0.0)
    v = tl.load(v_ptrs, mask=k_pos[:, None] < N, other=0.0)
    first = tl.maximum(part * span, k_start // BLOCK_Q * BLOCK_Q)
    end = tl.minimum(N, part * span + span)
    state = tl.zeros([BLOCK_S, D], tl.float32), tl.zeros([BLOCK_S, D], tl.float32)
    keys = k, v, k_pos, qk_scale
    for member in range(group):
        head = kv_head * group + member
        queries = (
            Q + batch * stride_qb + head * stride_qh, DO + batch * stride_dob + head * stride_doh,
            Lse + batch * stride_lb + head * stride_lh, Delta + (batch * Hkv * group + head) * N,
            stride_qn, stride_don,
        )  # fmt: skip
        state = add_queries(state, keys, queries, first, end, N, window_size, sink_size, BLOCK_Q, True, True)
    dk, dv = state
    at = (((batch * Hkv + kv_head) * parts + part) * sink_size + rows) * D + d[None, :]
    tl.store(PartDK + at, dk * scale, mask=k_pos[:, None] < sink_size)
    tl.store(PartDV + at, dv, mask=k_pos[:, None] < sink_size)


@triton.jit
def keys_kernel(
    Q, K, V, DO, Lse, Delta, DK, DV,
    stride_qb, stride_qh, stride_qn,
    stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn,
    stride_dob, stride_doh, stride_don,
    stride_lb, stride_lh,
    N, group, window_size, sink_size, scale, qk_scale,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, IS_CAUSAL: tl.constexpr,
):  # fmt: skip
    """One program: dk and dv of BLOCK_K keys of one kv head. Grid: (key tiles, Hkv, B); dk and dv are contiguous.

    sinks_kernel computes those of the sinks: they are not stored here.
    """
    k_start = tl.program_id(0) * BLOCK_K  # the first keys are seen by the most queries
    kv_head, batch = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    Hkv = tl.num_programs(1)
    K += batch * stride_kb + kv_head * stride_kh
    V += batch * stride_vb + kv_head * stride_vh
    k_pos, d = k_start + tl.arange(0, BLOCK_K), tl.arange(0, D)
    rows = k_pos.to(tl.int64)[:, None]
    k = tl.load(K + rows * stride_kn + d[None, :], mask=k_pos[:, None] < N, other=0.0)
    v = tl.load(V + rows * stride_vn + d[None, :], mask=k_pos[:, None] < N, other=0.0)
    # TODO 2: the queries that see this tile by causal mask and window (about 8 lines; then delete the failing line)
    #   four positions of queries; here a sink counts as any other key; all but `end` are multiples of BLOCK_Q:
    #   `first`: queries before it come before every key of the tile
    #   `diagonal_end`: queries from it on come at or after the tile's last key
    #   `inside_end`: the window of queries before it still reaches the tile's first key
    #   `end`: queries from it on do not exist, or their window reaches no key of the tile
    #   The loops below mask [first, the smaller of diagonal_end and end) and [the larger of diagonal_end and
    #   inside_end, end), and use no mask in [diagonal_end, inside_end). If not IS_CAUSAL, every query sees every key:
    #   only the ragged last tile of queries needs the mask
    tl.static_assert(False, "TODO 2: the queries that see this tile by causal mask and window")

    state = tl.zeros([BLOCK_K, D], tl.float32), tl.zeros([BLOCK_K, D], tl.float32)
    keys = k, v, k_pos, qk_scale
    for member in range(group):  # the query heads that share this kv head
        head = kv_head * group + member
        queries = (
            Q + batch * stride_qb + head * stride_qh, DO + batch * stride_dob + head * stride_doh,
            Lse + batch * stride_lb + head * stride_lh, Delta + (batch * Hkv * group + head) * N,
            stride_qn, stride_don,
        )  # fmt: skip
        state = add_queries(state, keys, queries, first, tl.minimum(diagonal_end, end), N, window_size, sink_size,
                            BLOCK_Q, IS_CAUSAL, True)  # fmt: skip
        state = add_queries(state, keys, queries, diagonal_end, inside_end, N, window_size, sink_size,
                            BLOCK_Q, IS_CAUSAL, False)  # fmt: skip
        state = add_queries(state, keys, queries, tl.maximum(diagonal_end, inside_end), end, N, window_size, sink_size,
                            BLOCK_Q, IS_CAUSAL, True)  # fmt: skip
    dk, dv = state
    # TODO 7: the scale (about 1 line; then delete the failing line)
    #   of `dk`, of `dv`, or of both
    tl.static_assert(False, "TODO 7: the scale")
    at = (batch * Hkv + kv_head) * N * D + rows * D + d[None, :]
    own = (k_pos[:, None] < N) & (k_pos[:, None] >= sink_size)
    tl.store(DK + at, dk.to(DK.dtype.element_ty), mask=own)
    tl.store(DV + at, dv.to(DV.dtype.element_ty), mask=own)


@triton.jit
def add_keys(dq, queries, keys, start, end, N, window_size, sink_size, BLOCK_K: tl.constexpr, IS_CAUSAL: tl.constexpr,
             MASKED: tl.constexpr):  # fmt: skip
    """dq (not scaled) of a tile of queries, with the keys [start, end) added, tile by tile; masked if MASKED."""
    q, do, q_pos, lse, delta, qk_scale = queries  # (BLOCK_Q, D), (BLOCK_Q, D), and (BLOCK_Q,) each
    K, V, stride_kn, stride_vn = keys
    d = tl.arange(0, q.shape[1])
    for k_start in range(start, end, BLOCK_K):
        k_pos = k_start + tl.arange(0, BLOCK_K)
        k_ptrs = K + k_pos.to(tl.int64)[:, None] * stride_kn + d[None, :]
        v_ptrs = V + k_pos.to(tl.int64)[:, None] * stride_vn + d[None, :]
        if MASKED:
            k = tl.load(k_ptrs, mask=k_pos[:, None] < N, other=0.0)  # (BLOCK_K, D)
            v = tl.load(v_ptrs, mask=k_pos[:, None] < N, other=0.0)
        else:
            k, v = tl.load(k_ptrs), tl.load(v_ptrs)
        # TODO 8: dq with these keys added, before its scale (about 6 lines; then delete the failing line)
        #   `p` as for dv, but (BLOCK_Q, BLOCK_K); ds, and `dq`
        tl.static_assert(False, "TODO 8: dq with these keys added, before its scale")
    return dq


@triton.jit
def queries_kernel(
    Q, K, V, DO, Lse, Delta, DQ,
    stride_qb, stride_qh, stride_qn,
    stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn,
    stride_dob, stride_doh, stride_don,
    stride_lb, stride_lh,
    N, group, window_size, sink_size, scale, qk_scale,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_S: tl.constexpr, IS_CAUSAL: tl.constexpr,
):  # fmt: skip
    """One program: dq of BLOCK_Q queries of one head. Grid: (query tiles, Hq, B); dq is contiguous.

    BLOCK_S: keys of a tile of sinks; BLOCK_K would be too large where sinks are few.
    """
    q_start = (tl.num_programs(0) - 1 - tl.program_id(0)) * BLOCK_Q  # the longest row starts first
    head, batch = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    of_head = batch * tl.num_programs(1) + head
    K += batch * stride_kb + head // group * stride_kh
    V += batch * stride_vb + head // group * stride_vh
    q_pos, d = q_start + tl.arange(0, BLOCK_Q), tl.arange(0, D)
    rows, in_bounds = q_pos.to(tl.int64)[:, None], q_pos < N
    q_ptrs = Q + batch * stride_qb + head * stride_qh + rows * stride_qn + d[None, :]
    do_ptrs = DO + batch * stride_dob + head * stride_doh + rows * stride_don + d[None, :]
    q = tl.load(q_ptrs, mask=in_bounds[:, None], other=0.0)
    do = tl.load(do_ptrs, mask=in_bounds[:, None], other=0.0)
    lse = tl.load(Lse + batch * stride_lb + head * stride_lh + q_pos, mask=in_bounds, other=0.0)
    delta = tl.load(Delta + of_head * N + q_pos, mask=in_bounds, other=0.0)
    dq = tl.zeros([BLOCK_Q, D], tl.float32)
    queries = q, do, q_pos, lse, delta, qk_scale
    keys = K, V, stride_kn, stride_vn
    sink_end, first, inside, masked, end = phases_of_queries(
        q_start, N, window_size, sink_size, BLOCK_Q, BLOCK_K, IS_CAUSAL
    )
    dq = add_keys(dq, queries, keys, 0, sink_end, N, window_size, sink_size, BLOCK_S, IS_CAUSAL, True)
    dq = add_keys(dq, queries, keys, first, inside, N, window_size, sink_size, BLOCK_K, IS_CAUSAL, True)
    dq = add_keys(dq, queries, keys, inside, masked, N, window_size, sink_size, BLOCK_K, IS_CAUSAL, False)
    dq = add_keys(dq, queries, keys, masked, end, N, window_size, sink_size, BLOCK_K, IS_CAUSAL, True)
    # TODO 9: the scale of dq (about 1 line; then delete the failing line)
    #   `dq`
    tl.static_assert(False, "TODO 9: the scale of dq")
    tl.store(DQ + of_head * N * D + rows * D + d[None, :], dq.to(DQ.dtype.element_ty), mask=in_bounds[:, None])


# The wrappers --------------------------------------------------------------------------------------------------------

# (BLOCK_Q, BLOCK_K, num_warps, num_stages) by head dim, the fastest on an H200 first: the first that fits is taken.
FORWARD = {
    16: [(64, 64, 4, 3)],
    32: [(64, 64, 4, 3)],
    64: [(64, 64, 4, 3)],
    128: [(64, 64, 4, 3), (64, 64, 4, 2)],
    256: [(128, 64, 8, 2), (64, 32, 4, 2)],
}
KEYS = {
    16: [(64, 64, 4, 3)],
    32: [(64, 64, 4, 3)],
    64: [(64, 64, 4, 3), (32, 64, 4, 2)],
    128: [(64, 128, 8, 3), (32, 64, 4, 2)],
    256: [(64, 64, 8, 2), (32, 64, 8, 1), (16, 32, 4, 1)],
}
QUERIES = {
    16: [(64, 64, 4, 3)],
    32: [(64, 64, 4, 3)],
    64: [(64, 64, 4, 3), (64, 32, 4, 2)],
    128: [(128, 64, 8, 3), (64, 32, 4, 2)],
    256: [(128, 64, 8, 1), (64, 32, 8, 1), (32, 16, 4, 1)],
}
# With a short window smaller tiles compute fewer hidden pairs.
SHORT_WINDOW = 2048
KEYS_IN_WINDOW = KEYS | {128: [(32, 64, 4, 3), (32, 64, 4, 2)]}
QUERIES_IN_WINDOW = QUERIES | {128: [(64, 64, 4, 2), (64, 32, 4, 2)]}
BLOCK_S = 16  # sinks of a tile
SINKS = {
    16: [(64, BLOCK_S, 4, 3)],
    32: [(64, BLOCK_S, 4, 3)],
    64: [(64, BLOCK_S, 4, 3)],
    128: [(64, BLOCK_S, 4, 3), (32, BLOCK_S, 4, 2)],
    256: [(64, BLOCK_S, 4, 2), (32, BLOCK_S, 4, 1)],
}
SPAN = 8  # tiles of queries of a program of sinks_kernel
FLOAT32 = [(32, 32, 4, 1), (16, 16, 4, 1)]
TILES_INTERPRETER = (64, 32, 4, 1)  # some cases set other tiles, (16, 64) among them


def choose_tiles(q, tiles, by_keys=False):
    """BLOCK_Q, BLOCK_K, num_warps, num_stages for q out of `tiles`: what fits into shared memory.

    by_keys: True where a program keeps its tile of K and V and walks over queries, False the other way round.
    """
    if INTERPRETED:
        return TILES_INTERPRETER
    D = q.shape[-1]
    limit = torch.cuda.get_device_properties(q.device).shared_memory_per_block_optin
    for found in FLOAT32 if q.dtype == torch.float32 else tiles[D]:
        BLOCK_Q, BLOCK_K, _, num_stages = found
        kept, walked = (BLOCK_K, BLOCK_Q) if by_keys else (BLOCK_Q, BLOCK_K)
        if q.element_size() * D * 2 * (kept + walked * num_stages) <= limit:  # two tensors each, once for each stage
            break
    return found


def check_arguments(q, k, v, is_causal, window_size, sink_size, others=()):
    """Raise ValueError, with the offending values in the text, unless the arguments are legal.

    others: (name, tensor) of those that must have the shape of q.
    """
    shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
    if not q.dim() == k.dim() == v.dim() == 4 or 0 in (*q.shape, *k.shape, *v.shape):
        raise ValueError(f"q, k and v must be (B, H, N, D) with no empty dimension; got {shapes}")
    if k.shape != v.shape or (q.shape[0], *q.shape[2:]) != (k.shape[0], *k.shape[2:]):
        raise ValueError(f"k and v must have one shape, and B, N and D of q; got {shapes}")
    if q.shape[1] % k.shape[1]:
        raise ValueError(f"Hq must be a multiple of Hkv; got Hq={q.shape[1]}, Hkv={k.shape[1]}")
    if q.shape[3] not in HEAD_DIMS:
        raise ValueError(f"head dim must be one of {HEAD_DIMS}; got D={q.shape[3]}")
    named = (("q", q), ("k", k), ("v", v), *others)
    for name, x in others:
        if x.shape != q.shape:
            raise ValueError(f"{name} must have the shape of q, {tuple(q.shape)}; got {tuple(x.shape)}")
    if q.dtype not in DTYPES or any(x.dtype != q.dtype for _, x in named):
        raise ValueError(
            f"all tensors must share one dtype of {DTYPES}; got {', '.join(f'{n} {x.dtype}' for n, x in named)}"
        )
    if any(x.device != q.device for _, x in named):
        raise ValueError(f"all tensors must be on one device; got {', '.join(f'{n} {x.device}' for n, x in named)}")
    if any(x.stride(3) != 1 for _, x in named):
        raise ValueError(f"the last stride must be 1; got {', '.join(f'{n} {x.stride()}' for n, x in named)}")
    if not is_causal and (window_size is not None or sink_size):
        raise ValueError(f"a window and sinks look back only; got is_causal={is_causal}, window_size={window_size}, "
                         f"sink_size={sink_size}")  # fmt: skip
    if window_size is not None and window_size < 1:
        raise ValueError(f"window_size must be at least 1, or None; got window_size={window_size}")
    if sink_size < 0:
        raise ValueError(f"sink_size must not be negative; got sink_size={sink_size}")


def check_sink_logits(sink_logits, q):
    """Raise ValueError unless they are None, or (Hq,) of float32 on the device of q."""
    if sink_logits is None:
        return
    found = tuple(sink_logits.shape), sink_logits.dtype, sink_logits.device
    if found != ((q.shape[1],), torch.float32, q.device) or not sink_logits.is_contiguous():
        raise ValueError(f"sink_logits must be ({q.shape[1]},), float32, contiguous, on {q.device}; got "
                         f"{found[0]}, {found[1]}, on {found[2]}")  # fmt: skip


def attention_forward(q, k, v, is_causal=True, window_size=None, sink_size=0, sink_logits=None):
    """Attention with lse in one kernel launch; given, and as P7 for windows and sinks.

    q: (B, Hq, N, D). k, v: (B, Hkv, N, D). Last stride 1; one dtype: float16, bfloat16 or float32. window_size: in
    tokens, the query's own included; None for no window. sink_size: in tokens, from the first one on. sink_logits:
    (Hq,), float32, or None: learned sinks, which the lab does not ask for. exp(sink_logits) of its head joins the sum
    of exponentials of every row, and has no value; lse is the logarithm of that sum.
    Returns o (B, Hq, N, D), same dtype, and lse (B, Hq, N), float32, natural logarithm.
    Raises ValueError for arguments that do not fit.
    """
    check_arguments(q, k, v, is_causal, window_size, sink_size)
    B, Hq, N, D = q.shape
    check_sink_logits(sink_logits, q)
    window_size, sink_size = min(window_size or N, N), min(sink_size, N)
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    BLOCK_Q, BLOCK_K, num_warps, num_stages = choose_tiles(q, FORWARD)
    forward_kernel[(triton.cdiv(N, BLOCK_Q), Hq, B)](
        q, k, v, o, lse, sink_logits, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        N, Hq // k.shape[1], window_size, sink_size, 1.4426950408889634 / math.sqrt(D),
        D, BLOCK_Q, BLOCK_K, is_causal, num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
    return o, lse


def gradient_of_sink_logits(sink_logits, lse, delta):
    """(Hq,), float32. A learned sink has no value: its dp is 0, and ds = p (0 - delta). lse and delta: (B, Hq, N)."""
    return -(torch.exp(sink_logits[:, None] - lse) * delta).sum((0, 2))


def attention_backward(do, q, k, v, o, lse, is_causal=True, window_size=None, sink_size=0, sink_logits=None):
    """The gradients of q, k and v from that of o, in three launches, four with sinks; no N x N elements are stored.

    do, q, o: (B, Hq, N, D). k, v: (B, Hkv, N, D). Last stride 1; any other strides, 0 included (autograd passes
    expanded gradients). One dtype: float16, bfloat16 or float32. lse: (B, Hq, N), float32, natural logarithm, last
    stride 1. is_causal, window_size, sink_size, sink_logits: as in the forward.
    Returns dq, dk and dv, of the shapes and the dtype of q, k and v; with sink_logits their gradient, too.
    Raises ValueError for arguments that do not fit.
    Method: "FlashAttention-2" (Dao, 2023), algorithm 2, with a kernel of its own for dq in place of atomics.
    """
    check_arguments(q, k, v, is_causal, window_size, sink_size, (("do", do), ("o", o)))
    check_sink_logits(sink_logits, q)
    if lse.shape != q.shape[:3] or lse.dtype != torch.float32 or lse.device != q.device or lse.stride(2) != 1:
        raise ValueError(f"lse must be float32 {tuple(q.shape[:3])} on {q.device}, its last stride 1; got {lse.dtype} "
                         f"{tuple(lse.shape)} on {lse.device}, strides {lse.stride()}")  # fmt: skip
    B, Hq, N, D = q.shape
    Hkv = k.shape[1]
    window_size = min(window_size or N, N)
    sink_size = min(sink_size, N) if window_size < N else 0  # without a window a sink is like any other key
    scale, short = 1.0 / math.sqrt(D), window_size < min(N, SHORT_WINDOW)
    delta = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    dq = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    dk = torch.empty(k.shape, dtype=k.dtype, device=k.device)
    dv = torch.empty(v.shape, dtype=v.dtype, device=v.device)
    strides = (*q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *do.stride()[:3], *lse.stride()[:2])
    sizes = (N, Hq // Hkv, window_size, sink_size, scale, scale * 1.4426950408889634)

    BLOCK_Q, BLOCK_K, num_warps, num_stages = choose_tiles(q, QUERIES_IN_WINDOW if short else QUERIES)
    delta_kernel[(triton.cdiv(N, BLOCK_Q), Hq, B)](o, do, delta, *o.stride()[:3], *do.stride()[:3], N, D, BLOCK_Q)
    queries_kernel[(triton.cdiv(N, BLOCK_Q), Hq, B)](
        q, k, v, do, lse, delta, dq, *strides, *sizes,
        D, BLOCK_Q, BLOCK_K, BLOCK_S if sink_size <= BLOCK_S else BLOCK_K, is_causal,
        num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
    BLOCK_Q, BLOCK_K, num_warps, num_stages = choose_tiles(q, KEYS_IN_WINDOW if short else KEYS, by_keys=True)
    keys_kernel[(triton.cdiv(N, BLOCK_K), Hkv, B)](
        q, k, v, do, lse, delta, dk, dv, *strides, *sizes,
        D, BLOCK_Q, BLOCK_K, is_causal, num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
    if sink_size:
        BLOCK_Q, _, num_warps, num_stages = choose_tiles(q, SINKS, by_keys=True)
        span = SPAN * BLOCK_Q
        tiles, parts = triton.cdiv(sink_size, BLOCK_S), triton.cdiv(N, span)
        of_parts = torch.empty(2, B, Hkv, parts, sink_size, D, device=q.device)
        sinks_kernel[(tiles * parts, Hkv, B)](
            q, k, v, do, lse, delta, *of_parts, *strides, *sizes, parts, span,
            D, BLOCK_Q, BLOCK_S, num_warps=num_warps, num_stages=num_stages,
        )  # fmt: skip
        dk[:, :, :sink_size], dv[:, :, :sink_size] = of_parts.sum(3)
    if sink_logits is not None:
        return dq, dk, dv, gradient_of_sink_logits(sink_logits, lse, delta)
    return dq, dk, dv
