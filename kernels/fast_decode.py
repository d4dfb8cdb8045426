"""The fast form of X4: decode for Hopper GPUs, at the speed of the memory. No problem: read it last.

A decode step reads each key and value once and computes little, so that the memory limits it. Two things must hold:
programs ask for keys without a pause, and the work before and after the reads is short. That work is the last products,
parts of results that are written and read again, and a second launch for the merge. X4 has more of it than it needs,
for the sake of its bits: each piece is a program, though a GPU that has many sequences needs no pieces.

Here the order of a row's sum is fixed, and who computes which part of it is not:

    piece     1,024 keys, from a multiple of 1,024 on. Each begins with a softmax of its own
    run       up to 8 pieces, added up from the first to the last
    row       its runs, merged at the end

    few sequences     a program has a piece. `merge_kernel` adds up the pieces of each run, and merges the runs
    more              a program has a run, and adds up its pieces itself
    one part a row    a program has all of a row, up to 8,192 keys: nothing is left to merge, there is one launch

All three do the same operations in the same order, so that a sequence has the same bits alone and in any batch. The
compiler could still fuse a product and a sum in one kernel and not in the other; `enable_fp_fusion=False` forbids it.

    a producer   one warp asks for tiles of 64 keys and values, in whatever pages they lie, as in fast_attention.py
    a consumer   keys are the rows of the products: scores = k q^T (64 keys, queries), o += v^T p (D, queries). A tile
                 then needs 8 queries at the least (heads of a group, times new tokens); the other way round it needs 64
    whole tiles  are what the copy engine reads: keys past a length or before a window too, where they share a tile with
                 others that are seen. They may be NaN: their scores are masked, their values set to 0

Source: Dao et al., "Flash-Decoding for long-context inference", 2023; He, "Defeating nondeterminism in LLM inference",
2025, for what batch invariance is.
"""

import math
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, tma, warpgroup_mma

from kernels.hopper import FOR_PRODUCER, LOWEST, Ring, Scalar, aggregate, make_ring
from kernels.hopper_launch import POINTER, Launch, Launches, describe, is_aligned, registers_for
from solutions import x4_decode as x4

LOG2_E = 1.4426950408889634
# PIECE (tokens), RUN (pieces), BLOCK_K and RUNS are constants of the operator: others give other bits.
PIECE, RUN = 1024, 8
# By head dim: (BLOCK_K, STAGES, programs of a multiprocessor), and the most rows: heads of a group x new tokens
TILES = {64: (64, 6, 2), 128: (64, 3, 2), 256: (64, 3, 1)}
MOST_ROWS = {64: 32, 128: 32, 256: 16}
RUNS, COLUMNS = 4, 32  # runs that merge_kernel adds up in one step; columns of o in one of its programs


@aggregate
class Part:
    """The keys of one program, start to end - 1, for the rows of a kv head; slot: which part of its row it is."""

    slot: Scalar
    batch: Scalar
    head: Scalar
    length: Scalar
    start: Scalar
    end: Scalar


@aggregate
class Program:
    """What a program works with."""

    k_desc: tma.tensor_descriptor
    v_desc: tma.tensor_descriptor
    k_ring: Ring
    v_ring: Ring
    q_tile: gl.shared_memory_descriptor
    p_tile: gl.shared_memory_descriptor
    q: gl.tensor
    block_table: gl.tensor | gl.constexpr  # None where there are no pages
    stride_qb: Scalar
    stride_qh: Scalar
    stride_qn: Scalar
    stride_tb: Scalar
    heads: Scalar  # kv heads
    group: Scalar
    new_tokens: Scalar
    window_size: Scalar
    qk_scale: Scalar
    part: Part
    ROWS: gl.constexpr
    BLOCK_K: gl.constexpr
    PAGE_SIZE: gl.constexpr
    PIECE: gl.constexpr


# The producer: one warp that asks for tiles ---------------------------------------------------------------------------


@gluon.jit
def produce(program):
    """K and V of the program's keys, from the first tile to the last."""
    BLOCK_K: gl.constexpr = program.BLOCK_K
    BOX: gl.constexpr = program.k_desc.block_shape[2]
    part = program.part
    first = part.start // BLOCK_K * BLOCK_K
    for i in range(gl.cdiv(part.end - first, BLOCK_K)):
        k_start = first + i * BLOCK_K
        pages = ()  # asked for before the buffer is empty
        for box in gl.static_range(BLOCK_K // BOX):
            page, row = part.batch, k_start + box * BOX
            if program.PAGE_SIZE > 0:
                table = program.block_table + part.batch.to(gl.int64) * program.stride_tb
                seen = (row < part.end) & (row + BOX > part.start)
                page = gl.load(table + row // program.PAGE_SIZE, mask=seen, other=-1)  # -1: no memory is read
            pages = pages + (page,)  # noqa: RUF005
        program.k_ring.acquire(i)
        program.v_ring.acquire(i)
        for box in gl.static_range(BLOCK_K // BOX):
            row = k_start + box * BOX
            if program.PAGE_SIZE > 0:
                row = row % program.PAGE_SIZE
            program.k_ring.commit(i, program.k_desc, pages[box], part.head, row, at=box * BOX)
            program.v_ring.commit(i, program.v_desc, pages[box], part.head, row, at=box * BOX)


# The consumer: four warps ---------------------------------------------------------------------------------------------


@gluon.jit
def load_queries(program):
    """The rows of a kv head into shared memory: its query heads, times the new tokens, then zeros."""
    ROWS: gl.constexpr = program.ROWS
    D: gl.constexpr = program.k_desc.block_shape[3]
    COPY: gl.constexpr = gl.BlockedLayout([1, 8], [256 // D, D // 8], [4, 1], [1, 0])
    row, d = gl.arange(0, ROWS, layout=gl.SliceLayout(1, COPY)), gl.arange(0, D, layout=gl.SliceLayout(0, COPY))
    head = (program.part.head * program.group + row // program.new_tokens).to(gl.int64)
    at = program.part.batch.to(gl.int64) * program.stride_qb + head * program.stride_qh
    at += row % program.new_tokens * program.stride_qn
    exists = (row < program.group * program.new_tokens)[:, None] & (d >= 0)[None, :]
    program.q_tile.store(gl.load(program.q + (at[:, None] + d[None, :]), mask=exists, other=0.0))
    fence_async_shared()


@gluon.jit
def mask(scores, v, k_start, program):
    """-inf for keys that a row does not see; values that no row sees become 0, in shared memory."""
    BLOCK_K: gl.constexpr = program.BLOCK_K
    D: gl.constexpr = program.k_desc.block_shape[3]
    COPY: gl.constexpr = gl.BlockedLayout([1, 8], [256 // D, D // 8], [4, 1], [1, 0])
    S: gl.constexpr = scores.type.layout
    part = program.part
    k_pos = k_start + gl.arange(0, BLOCK_K, layout=gl.SliceLayout(1, S))
    token = gl.arange(0, program.ROWS, layout=gl.SliceLayout(0, S)) % program.new_tokens
    age = (part.length - program.new_tokens + token)[None, :] - k_pos[:, None]
    inside = (k_pos >= part.start) & (k_pos < part.end)
    seen = (age >= 0) & (age < program.window_size) & inside[:, None]
    v_pos = k_start + gl.arange(0, BLOCK_K, layout=gl.SliceLayout(1, COPY))
    values = v.load(COPY)
    v.store(gl.where(((v_pos >= part.start) & (v_pos < part.end))[:, None], values, 0.0).to(values.dtype))
    return gl.where(seen, scores, float("-inf"))


@gluon.jit
def add(pivot, total, acc, new_pivot, new_total, new_acc):
    """Two parts of a softmax as one: sums relative to 2^pivot."""
    greatest = gl.maximum(pivot, new_pivot)
    old, new = gl.exp2(pivot - greatest), gl.exp2(new_pivot - greatest)
    return greatest, total * old + new_total * new, acc * old[None, :] + new_acc * new[None, :]


@gluon.jit
def consume(program, part_o, part_sums, o, sink_logits, slots, DIRECT: gl.constexpr):
    """Attend to the program's keys, one piece after the other, and store their sum; DIRECT: store o."""
    ROWS: gl.constexpr = program.ROWS
    BLOCK_K: gl.constexpr = program.BLOCK_K
    D: gl.constexpr = program.k_desc.block_shape[3]
    S: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, ROWS, 16])
    BY_ROW: gl.constexpr = gl.SliceLayout(0, S)
    part = program.part
    load_queries(program)
    no_scores = gl.zeros([BLOCK_K, ROWS], gl.float32, S)
    nothing = gl.zeros([ROWS], gl.float32, BY_ROW)
    lowest = gl.full([ROWS], LOWEST, gl.float32, BY_ROW)
    run_pivot, run_total, run_acc = lowest, nothing, gl.zeros([D, ROWS], gl.float32, S)
    i = 0
    for piece in range(part.start // program.PIECE * program.PIECE, part.end, program.PIECE):
        pivot, sums, acc = lowest, no_scores, gl.zeros([D, ROWS], gl.float32, S)
        first, end = gl.maximum(piece, part.start), gl.minimum(piece + program.PIECE, part.end)
        for k_start in range(first // BLOCK_K * BLOCK_K, end, BLOCK_K):
            k = program.k_ring.wait(i)
            scores = warpgroup_mma(k, program.q_tile.permute((1, 0)), no_scores, use_acc=False)
            program.k_ring.release(i)
            v = program.v_ring.wait(i)
            newest_seen = part.length - program.new_tokens + 1  # by all new tokens
            whole = (k_start >= part.start) & (k_start >= part.length - program.window_size)
            if not (whole & (k_start + BLOCK_K <= newest_seen)):
                scores = mask(scores, v, k_start, program)
            scores *= program.qk_scale
            new_pivot = gl.maximum(pivot, gl.max(scores, 0))
            alpha = gl.exp2(pivot - new_pivot)
            p = gl.exp2(scores - new_pivot[None, :])
            program.p_tile.permute((1, 0)).store(p.to(program.k_desc.dtype))
            fence_async_shared()
            sums = sums * alpha[None, :] + p
            acc = warpgroup_mma(v.permute((1, 0)), program.p_tile.permute((1, 0)), acc * alpha[None, :])
            program.v_ring.release(i)
            pivot = new_pivot
            i += 1
        run_pivot, run_total, run_acc = add(run_pivot, run_total, run_acc, pivot, gl.sum(sums, 0), acc)
    row, d = gl.arange(0, ROWS, layout=BY_ROW), gl.arange(0, D, layout=gl.SliceLayout(1, S))
    rows = program.group * program.new_tokens
    row_index = (part.batch * program.heads + part.head).to(gl.int64) * rows + row  # rows of all kv heads
    if DIRECT:
        total, weight = run_total, nothing + 1.0
        if sink_logits is not None:
            head = part.head * program.group + row // program.new_tokens
            sink = gl.load(sink_logits + head, mask=row < rows, other=0.0) * 1.4426950408889634
            greatest = gl.maximum(run_pivot, sink)
            weight = gl.exp2(run_pivot - greatest)
            total = run_total * weight + gl.exp2(sink - greatest)
        result = run_acc * weight[None, :] / gl.where(total > 0.0, total, 1.0)[None, :]
        at = row_index[None, :] * D + d[:, None]
        gl.store(o + at, result.to(program.k_desc.dtype), mask=(row < rows)[None, :] & (d >= 0)[:, None])
    else:
        row_index = row_index * slots + part.slot
        gl.store(part_sums + row_index * 2, run_pivot, mask=row < rows)
        gl.store(part_sums + row_index * 2 + 1, run_total, mask=row < rows)
        at = row_index[None, :] * D + d[:, None]
        gl.store(part_o + at, run_acc, mask=(row < rows)[None, :] & (d >= 0)[:, None])


# One program, and the merge -------------------------------------------------------------------------------------------


@gluon.jit
def fast_decode_kernel(
    k_desc, v_desc, q, lengths, block_table, part_o, part_sums, o, sink_logits,
    stride_qb, stride_qh, stride_qn, stride_tb, group, new_tokens, window_size, qk_scale,
    ROWS: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr, PAGE_SIZE: gl.constexpr, PIECE: gl.constexpr,
    SPAN: gl.constexpr, RUN: gl.constexpr, DIRECT: gl.constexpr,
):  # fmt: skip
    """One program: SPAN tokens of a sequence, for the rows of a kv head. Grid: (slots, Hkv, B).

    Slot 0 begins with the run of the first key that is seen. part_o (B, Hq, new_tokens, slots, D) and part_sums (B, Hq,
    new_tokens, slots, 2), pivot and sum, in float32; o (B, Hq, new_tokens, D), in their place where DIRECT.
    """
    slot, head, batch = gl.program_id(0), gl.program_id(1), gl.program_id(2)
    length = gl.load(lengths + batch)
    first = gl.maximum(length - new_tokens - window_size + 1, 0)
    at = first // (PIECE * RUN) * (PIECE * RUN) + slot * SPAN
    part = Part(
        slot=slot, batch=batch, head=head, length=length,
        start=gl.maximum(at, first), end=gl.minimum(at + SPAN, length),
    )  # fmt: skip
    if (part.start < part.end) | DIRECT:
        D: gl.constexpr = k_desc.block_shape[3]
        rows: gl.constexpr = gl.NVMMASharedLayout.get_default_for([ROWS, D], k_desc.dtype)
        keys: gl.constexpr = gl.NVMMASharedLayout.get_default_for([ROWS, BLOCK_K], k_desc.dtype)
        k_ring = make_ring(k_desc, STAGES, 1, BLOCK_K // k_desc.block_shape[2])
        v_ring = make_ring(v_desc, STAGES, 1, BLOCK_K // k_desc.block_shape[2])
        fence_async_shared()
        program = Program(
            k_desc=k_desc, v_desc=v_desc, k_ring=k_ring, v_ring=v_ring,
            q_tile=gl.allocate_shared_memory(k_desc.dtype, [ROWS, D], rows),
            p_tile=gl.allocate_shared_memory(k_desc.dtype, [ROWS, BLOCK_K], keys),
            q=q, block_table=block_table, stride_qb=stride_qb, stride_qh=stride_qh, stride_qn=stride_qn,
            stride_tb=stride_tb, heads=gl.num_programs(1), group=group, new_tokens=new_tokens, window_size=window_size,
            qk_scale=qk_scale, part=part, ROWS=ROWS, BLOCK_K=BLOCK_K, PAGE_SIZE=PAGE_SIZE, PIECE=PIECE,
        )  # fmt: skip
        gl.warp_specialize(
            ((consume, (program, part_o, part_sums, o, sink_logits, gl.num_programs(0), DIRECT)),
             (produce, (program,))),
            [1], [FOR_PRODUCER],
        )  # fmt: skip


@triton.jit
def merge_kernel(
    PartO, PartSums, SinkLogits, Lengths, O, heads, new_tokens, window_size, slots,
    D: tl.constexpr, PIECE: tl.constexpr, SPAN: tl.constexpr, RUN: tl.constexpr, RUNS: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    """Columns of o of one row: the parts of each run added up, then the runs merged.

    Grid: (B x Hq x new tokens, D / COLUMNS).
    """
    row = tl.program_id(0).to(tl.int64)
    length = tl.load(Lengths + row // (heads * new_tokens))
    first = tl.maximum(length - new_tokens - window_size + 1, 0)
    PARTS: tl.constexpr = PIECE * RUN // SPAN  # of a run
    origin = first // (PIECE * RUN) * (PIECE * RUN)
    d = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    if SinkLogits is not None:
        sink = tl.load(SinkLogits + row // new_tokens % heads)
    pivot, total, acc = tl.full([], LOWEST, tl.float32), 0.0, tl.zeros([COLUMNS], tl.float32)
    for start in range(0, tl.cdiv(length - origin, PIECE * RUN), RUNS):
        run = start + tl.arange(0, RUNS)
        pivots, totals, accs = (), (), ()  # of all parts: they are on their way together
        for part in tl.static_range(PARTS):
            slot = run * PARTS + part
            at, begin = row * slots + slot, origin + slot * SPAN
            exists = (begin + SPAN > first) & (begin < length)
            pivots = pivots + (tl.load(PartSums + at * 2, mask=exists, other=LOWEST),)  # noqa: RUF005
            totals = totals + (tl.load(PartSums + at * 2 + 1, mask=exists, other=0.0),)  # noqa: RUF005
            accs = accs + (tl.load(PartO + (at * D)[:, None] + d[None, :], mask=exists[:, None], other=0.0),)  # noqa: RUF005
        run_pivot = tl.full([RUNS], LOWEST, tl.float32)
        run_total, run_acc = tl.zeros([RUNS], tl.float32), tl.zeros([RUNS, COLUMNS], tl.float32)
        for part in tl.static_range(PARTS):
            greatest = tl.maximum(run_pivot, pivots[part])
            old, new = tl.exp2(run_pivot - greatest), tl.exp2(pivots[part] - greatest)
            run_total = run_total * old + totals[part] * new
            run_acc = run_acc * old[:, None] + accs[part] * new[:, None]
            run_pivot = greatest
        greatest = tl.maximum(pivot, tl.max(run_pivot, 0))
        old, new = tl.exp2(pivot - greatest), tl.exp2(run_pivot - greatest)
        total = total * old + tl.sum(run_total * new, 0)
        acc = acc * old + tl.sum(run_acc * new[:, None], 0)
        pivot = greatest
    if SinkLogits is not None:
        sink = sink * 1.4426950408889634
        greatest = tl.maximum(pivot, sink)
        old = tl.exp2(pivot - greatest)
        total, acc = total * old + tl.exp2(sink - greatest), acc * old
    o = acc / tl.where(total > 0.0, total, 1.0)
    tl.store(O + row * D + d, o.to(O.dtype.element_ty))


# Before the launch ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """The launches of a call, and the shapes of what they leave for the merge, which is None where nothing is left."""

    pieces: Launch
    merge: Launch | None
    o_shape: tuple
    sums_shape: tuple


def serves(q, k_cache, block_table, softmax_scale):
    """Whether the kernel takes such tensors; X4 takes all others."""
    Hkv, page_size = (k_cache.shape[1], 8) if block_table is None else (k_cache.shape[2], k_cache.shape[1])
    fits = q.dtype != torch.float32 and q.shape[1] // Hkv * q.shape[2] <= MOST_ROWS.get(q.shape[3], 0)
    return fits and page_size >= 8 and page_size & (page_size - 1) == 0 and (softmax_scale is None or softmax_scale > 0)


def choose_span(B, Hkv, runs, multiprocessors):
    """The tokens of a program: a run where there are enough for most multiprocessors, else a piece. No bit changes."""
    return PIECE * RUN if 4 * runs * Hkv * B >= 3 * multiprocessors else PIECE


def prepare(q, k_cache, v_cache, lengths, block_table, sink_logits, window_size, softmax_scale):
    """The Plan for tensors of these shapes and layouts; None where X4 is to do it."""
    x4.check_arguments(q, k_cache, v_cache, lengths, block_table, sink_logits, window_size)
    on_hopper = q.is_cuda and torch.cuda.get_device_capability(q.device) == (9, 0)
    if not on_hopper or not serves(q, k_cache, block_table, softmax_scale):
        return None
    B, Hq, Nq, D = q.shape
    page_size, stride_tb, Nmax = 0, 0, k_cache.shape[2]
    if block_table is not None:
        k_cache, v_cache = k_cache.transpose(1, 2), v_cache.transpose(1, 2)
        page_size, stride_tb = k_cache.shape[2], block_table.stride(0)
        Nmax = block_table.shape[1] * page_size
    if not is_aligned(k_cache) or not is_aligned(v_cache):
        return None
    Hkv, run = k_cache.shape[1], PIECE * RUN
    window_size, scale = min(window_size or Nmax, Nmax), softmax_scale or 1.0 / math.sqrt(D)
    BLOCK_K, STAGES, programs = TILES[D]
    runs = x4.count_slots(Nmax, Nq, window_size, run)
    span = choose_span(B, Hkv, runs, torch.cuda.get_device_properties(q.device).multi_processor_count)
    slots = min(runs * run // span, triton.cdiv(Nmax, span))
    box = min(page_size or BLOCK_K, BLOCK_K)
    at_launch, _ = registers_for(1, programs)
    rows = max(8, triton.next_power_of_2(Hq // Hkv * Nq))
    direct, sink = slots == 1, None if sink_logits is None else POINTER
    parts = (None, None) if direct else (POINTER, POINTER)
    pieces = Launch(
        fast_decode_kernel, (slots, Hkv, B),
        (describe(k_cache, 1, box), describe(v_cache, 1, box), POINTER, POINTER,
         POINTER if page_size else None, *parts, POINTER if direct else None, sink if direct else None),
        (*q.stride()[:3], stride_tb, Hq // Hkv, Nq, window_size, scale * LOG2_E,
         rows, BLOCK_K, STAGES, page_size, PIECE, span, RUN, direct),
        {"num_warps": 4, "maxnreg": min(255, at_launch), "enable_fp_fusion": False},
    )  # fmt: skip
    merge = None if direct else Launch(
        merge_kernel, (B * Hq * Nq, D // COLUMNS, 1), (POINTER, POINTER, sink, POINTER, POINTER),
        (Hq, Nq, window_size, slots, D, PIECE, span, RUN, RUNS, COLUMNS),
        {"num_warps": COLUMNS // 32, "enable_fp_fusion": False},
    )  # fmt: skip
    return Plan(pieces, merge, (B, Hq, Nq, slots, D), (B, Hq, Nq, slots, 2))


PLANS = Launches(prepare)


def decode_attention(q, k_cache, v_cache, lengths, block_table=None, sink_logits=None, window_size=None,
                     softmax_scale=None):  # fmt: skip
    """Attention of the newest tokens over a cache, as X4 has it, on a Hopper GPU in one or two launches.

    What the kernel does not take goes to X4: float32, a head dim below 64, too many rows (MOST_ROWS), pages whose size
    is no power of two from 8 on, caches that the copy engine cannot read, a softmax_scale that is not positive.
    A sequence's o has the same bits in any batch; they are not those of X4. Shapes, layouts and addresses choose the
    kernel: pages of 48 tokens, or a cache that is expanded over the batch, have X4's bits.
    Raises ValueError for arguments that do not fit.
    Method: as X4's, with the keys first; Hong et al., "FlashDecoding++", 2023, section 4, for so few rows.
    """
    q, lengths, block_table, sink_logits = (
        x if x is None or x.data_ptr() % 16 == 0 else x.clone() for x in (q, lengths, block_table, sink_logits)
    )  # a slice may begin anywhere
    given = (q, k_cache, v_cache, lengths, block_table, sink_logits)
    plan = PLANS.find(given, window_size, softmax_scale)
    if plan is None:
        return x4.decode_attention(*given, window_size, softmax_scale)
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    if plan.merge is None:
        plan.pieces(k_cache, v_cache, q, lengths, block_table, None, None, o, sink_logits)
        return o
    part_o = torch.empty(plan.o_shape, dtype=torch.float32, device=q.device)
    part_sums = torch.empty(plan.sums_shape, dtype=torch.float32, device=q.device)
    plan.pieces(k_cache, v_cache, q, lengths, block_table, part_o, part_sums, None, None)
    plan.merge(part_o, part_sums, sink_logits, lengths, o)
    return o
