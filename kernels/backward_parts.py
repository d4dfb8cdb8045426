"""What stands before and after the fast backward pass (fast_backward.py), in plain Triton: delta, the sinks, rounding.

    prepare_kernel   delta, lse in the units of q k^T, and dq = 0; the gradient of learned sinks, in parts
    sinks_kernel     every later query sees the sinks: one program of the main kernel for them would run longest by
                     far. Here each program has some queries: their dq begins with what the sinks add, and dk and dv of
                     the sinks come in parts
    sum_parts_kernel adds them up
    finish_kernel    dq times the scale, rounded

Source: Dao, "FlashAttention-2", 2023, algorithm 2; Xiao et al., "Attention Sinks", 2023, section 3, for the mask.
"""

import triton
import triton.language as tl

BLOCK_S, QUERIES, SPAN = 16, 32, 512  # of sinks_kernel: sinks and queries of a tile, queries of a program


@triton.jit
def prepare_kernel(
    O, DO, Lse, Rows, DQ, SinkLogits, OfLogits,
    stride_ob, stride_oh, stride_on,
    stride_dob, stride_doh, stride_don,
    stride_lb, stride_lh,
    N, padded, lse_scale, D: tl.constexpr, ROWS: tl.constexpr, ZERO_DQ: tl.constexpr,
):  # fmt: skip
    """Of ROWS queries delta, and lse * lse_scale; past the end the latter is so large that p is 0 there.

    Grid: (tiles, Hq, B). Rows (2, B, Hq, padded), delta second; DQ (B, Hq, N, D); float32. SinkLogits (Hq,) and the
    parts of its gradient, OfLogits (B, Hq, tiles), or None: a learned sink has no value, its ds is p (0 - delta).
    """
    head, batch = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    of_all = batch * tl.num_programs(1) + head
    rows, d = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, D)
    at, exists = rows.to(tl.int64)[:, None], rows < N
    o = tl.load(O + batch * stride_ob + head * stride_oh + at * stride_on + d[None, :], mask=exists[:, None], other=0.0)
    do_ptrs = DO + batch * stride_dob + head * stride_doh + at * stride_don + d[None, :]
    do = tl.load(do_ptrs, mask=exists[:, None], other=0.0)
    lse = tl.load(Lse + batch * stride_lb + head * stride_lh + rows, mask=exists, other=1e30)
    heads = tl.num_programs(2).to(tl.int64) * tl.num_programs(1)  # of all batches
    tl.store(Rows + of_all * padded + rows, lse * lse_scale)
    delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)
    tl.store(Rows + (heads + of_all) * padded + rows, delta)
    if SinkLogits is not None:
        p = tl.exp(tl.load(SinkLogits + head) - lse)
        tl.store(OfLogits + of_all * tl.num_programs(0) + tl.program_id(0), -tl.sum(p * delta))
    if ZERO_DQ:
        tl.store(DQ + of_all * N * D + at * D + d[None, :], tl.zeros([ROWS, D], tl.float32), mask=exists[:, None])


@triton.jit
def sinks_kernel(
    Q, K, V, DO, Rows, DQ, PartDK, PartDV,
    stride_qb, stride_qh, stride_qn,
    stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn,
    stride_dob, stride_doh, stride_don,
    N, padded, group, sink_size, scale, qk_scale,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_S: tl.constexpr, SPAN: tl.constexpr,
):  # fmt: skip
    """SPAN queries of one head and all sinks: dq begins here, dk and dv of the sinks are parts of a sum.

    Grid: (parts, Hq, B). DQ (B, Hq, N, D), not scaled; PartDK and PartDV (B, Hq, parts, sink_size, D); float32.
    """
    part, head, batch = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    heads = tl.num_programs(2).to(tl.int64) * tl.num_programs(1)  # of all batches
    of_all, kv_head, d = batch * tl.num_programs(1) + head, head // group, tl.arange(0, D)
    for k_start in range(0, sink_size, BLOCK_S):
        k_pos = k_start + tl.arange(0, BLOCK_S)
        is_sink, rows = (k_pos < sink_size)[:, None], k_pos.to(tl.int64)[:, None]
        k_ptrs = K + batch * stride_kb + kv_head * stride_kh + rows * stride_kn + d[None, :]
        v_ptrs = V + batch * stride_vb + kv_head * stride_vh + rows * stride_vn + d[None, :]
        k, v = tl.load(k_ptrs, mask=is_sink, other=0.0), tl.load(v_ptrs, mask=is_sink, other=0.0)  # (BLOCK_S, D)
        dk, dv = tl.zeros([BLOCK_S, D], tl.float32), tl.zeros([BLOCK_S, D], tl.float32)
        for q_start in range(part * SPAN, tl.minimum(part * SPAN + SPAN, N), BLOCK_Q):
            q_pos = q_start + tl.arange(0, BLOCK_Q)
            at, exists = q_pos.to(tl.int64)[:, None], (q_pos < N)[:, None]
            q_ptrs = Q + batch * stride_qb + head * stride_qh + at * stride_qn + d[None, :]
            do_ptrs = DO + batch * stride_dob + head * stride_doh + at * stride_don + d[None, :]
            q, do = tl.load(q_ptrs, mask=exists, other=0.0), tl.load(do_ptrs, mask=exists, other=0.0)
            first_s = tl.load(Rows + of_all * padded + q_pos, mask=q_pos < N, other=0.0)
            delta = tl.load(Rows + (heads + of_all) * padded + q_pos, mask=q_pos < N, other=0.0)
            p = tl.exp2((tl.dot(k, tl.trans(q)) - first_s[None, :]) * qk_scale)  # (BLOCK_S, BLOCK_Q)
            p = tl.where(is_sink & (k_pos[:, None] <= q_pos[None, :]), p, 0.0)
            ds = (p * (tl.dot(v, tl.trans(do)) - delta[None, :])).to(q.dtype)
            dv = tl.dot(p.to(do.dtype), do, dv)
            dk = tl.dot(ds, q, dk)
            dq_ptrs = DQ + of_all * N * D + at * D + d[None, :]
            dq = tl.dot(tl.trans(ds), k)
            if k_start > 0:
                dq += tl.load(dq_ptrs, mask=exists, other=0.0)
            tl.store(dq_ptrs, dq, mask=exists)
        tl.debug_barrier()  # in the next round other threads may read this dq
        at = ((of_all * tl.num_programs(0) + part) * sink_size + rows) * D + d[None, :]
        tl.store(PartDK + at, dk * scale, mask=is_sink)
        tl.store(PartDV + at, dv, mask=is_sink)


@triton.jit
def sum_parts_kernel(PartDK, PartDV, DK, DV, N, parts, sink_size, D: tl.constexpr, BLOCK: tl.constexpr):
    """dk and dv of one sink, the sums of all parts, those of a group's heads included. Grid: (sink_size, Hkv, B)."""
    sink, d = tl.program_id(0), tl.arange(0, D)
    head = tl.program_id(2).to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
    dk, dv = tl.zeros([BLOCK, D], tl.float32), tl.zeros([BLOCK, D], tl.float32)
    for start in range(0, parts, BLOCK):
        part = start + tl.arange(0, BLOCK)[:, None]
        at = ((head * parts + part) * sink_size + sink) * D + d[None, :]
        dk += tl.load(PartDK + at, mask=part < parts, other=0.0)
        dv += tl.load(PartDV + at, mask=part < parts, other=0.0)
    at = (head * N + sink) * D + d
    tl.store(DK + at, tl.sum(dk, 0).to(DK.dtype.element_ty))
    tl.store(DV + at, tl.sum(dv, 0).to(DV.dtype.element_ty))


@triton.jit
def finish_kernel(DQ, Out, scale, count, BLOCK: tl.constexpr):
    """Out = DQ * scale, in its dtype. Grid: (cdiv(count, BLOCK),)."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    dq = tl.load(DQ + at, mask=at < count, other=0.0)
    tl.store(Out + at, (dq * scale).to(Out.dtype.element_ty), mask=at < count)
