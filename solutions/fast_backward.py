"""The fast form of X3: the backward pass for Hopper GPUs, five products in one kernel. No problem: read it last.

X3 computes the scores twice: a kernel that owns queries makes dq, one that owns keys makes dk and dv. Here one kernel
makes all three. A program owns a tile of keys and walks over the tiles of queries that see it:

    s = k q^T        p = 2^(s - lse)        dp = v do^T        ds = p (dp - delta)        all with the keys first
    dv += p do       dk += ds q             dq += ds^T k       the last one leaves the program: others add theirs

    keys first           p and ds come out of one product as the left factor of the next: they stay in registers
    two consumers        64 keys each. For dq both need the other's ds: it goes through shared memory
    sums by copy engine  dq is float32 in global memory; the copy engine (TMA) adds a tile to it, nobody waits
    a producer           one warp asks for tiles of q, do, lse and delta, as in fast_attention.py

Two small kernels in plain Triton stand around it: `prepare_kernel` computes delta and sets dq to 0, `finish_kernel`
scales dq and rounds it. Sums of dq come in any order: the last bits differ from run to run.

One program, tiles of 128 keys and 64 queries, a causal mask with a window; the numbers are the order:

        query tile           0    1    2    3    4    5
        keys of consumer 0   .   [0m] [1m] [2 ] [3m]  .      'm': tiles with a mask, of the diagonal or of the
        keys of consumer 1   .   [0m] [1m] [2 ] [3m]  .           window's edge

Source: Shah et al., "FlashAttention-3", 2024, section 3 and appendix B; Dao, "FlashAttention-2", 2023, algorithm 2.
"""

# Before you change this file:
# - Registers are what there is least of: dk and dv take 128 of a thread's 240, s and dp 64, dq 32. Compile it
#   (`hopper_child.py`): spilled registers in the loop, or products that ptxas puts one after the other (C7512, C7514),
#   cost more than any idea below brings. A product that is under way may not be carried from one turn to the next.
# - Tried on an H200 at 8k tokens, B=4 H=16. Programs that begin apart (`shift`) win 10 % at D = 64 without a mask, and
#   lose 8 % at D = 128. The scores of the next tile ahead of time (`AHEAD`) win 5 % at D = 64 and lose 15 to 17 % at
#   D = 128, by spills. dq before dk, so that dq leaves while dk is computed, was measured together with giving those up
#   at D = 128: 3 to 5 %.
# - Shared memory is 78 % busy at D = 128 (Nsight Compute), the tensor cores 63 %: half of what is read there are k, v
#   and ds as left factors, and there are no registers to keep them in.

import math
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from solutions.hopper import FOR_PRODUCER, ROWS, Ring, Scalar, add_to_global, aggregate, make_ring
from solutions.hopper_launch import POINTER, Launch, Launches, aligned, check_tensors, describe, registers_for

LOG2_E = 1.4426950408889634
CONSUMERS = gl.constexpr(2)
BLOCK_K = gl.constexpr(128)  # keys of a program, 64 of each consumer


@aggregate
class Program:
    """What one program works with, and its tile of keys: `count` tiles of queries for each of `group` heads.

    first: the first query; before tile `diagonal` a key may be newer than a query; from tile `edge` on one may be too
    old for a query.
    """

    q_desc: tma.tensor_descriptor
    do_desc: tma.tensor_descriptor
    k_desc: tma.tensor_descriptor
    v_desc: tma.tensor_descriptor
    lse_desc: tma.tensor_descriptor
    delta_desc: tma.tensor_descriptor
    dq_desc: tma.tensor_descriptor
    q_ring: Ring
    do_ring: Ring
    lse_tiles: gl.shared_memory_descriptor  # (STAGES, 1, 1, 1, BLOCK_Q): lse arrives with q, delta with do
    delta_tiles: gl.shared_memory_descriptor
    k_ring: Ring
    v_ring: Ring
    ds_tiles: gl.shared_memory_descriptor  # (2, BLOCK_K, BLOCK_Q)
    ds_full: gl.shared_memory_descriptor
    dq_tiles: gl.shared_memory_descriptor  # (2, 1, 1, rows, columns)
    dk_desc: tma.tensor_descriptor
    dv_desc: tma.tensor_descriptor
    batch: Scalar
    kv_head: Scalar
    k_start: Scalar
    first: Scalar
    count: Scalar
    diagonal: Scalar
    edge: Scalar
    shift: Scalar
    group: Scalar
    N: Scalar
    Hkv: Scalar
    window_size: Scalar
    scale: Scalar
    qk_scale: Scalar
    D: gl.constexpr
    BLOCK_Q: gl.constexpr
    STAGES: gl.constexpr
    IS_CAUSAL: gl.constexpr
    WINDOW: gl.constexpr

    @gluon.jit
    def tile(self, i):
        """The tile of queries of turn i. Programs may begin apart, so that they add to dq apart (`shift`)."""
        return (i + self.shift) % self.count

    @gluon.jit
    def load_row(self, i, desc, batch, head, q_start, ring, tiles):
        """Ask for lse or delta of tile i, which arrives with the tile of `ring`."""
        stage = i % self.STAGES
        at = [batch, head, q_start // self.BLOCK_Q, 0]
        tma.async_copy_global_to_shared(desc, at, ring.full.index(stage), tiles.index(stage))

    @gluon.jit
    def row(self, i, tiles, layout: gl.constexpr):
        """(1, BLOCK_Q): lse or delta of tile i."""
        return tiles.index(i % self.STAGES).reshape([1, self.BLOCK_Q]).load(layout)


@gluon.jit
def produce(program):
    """K and V once; for each head of the group, from the first tile of queries on, q, do, lse and delta."""
    batch, kv_head, BLOCK_Q = program.batch, program.kv_head, program.BLOCK_Q
    program.k_ring.load(0, program.k_desc, batch, kv_head, program.k_start)
    program.v_ring.load(0, program.v_desc, batch, kv_head, program.k_start)
    for i in range(program.group * program.count):
        head, q_start = kv_head * program.group + i // program.count, program.first + program.tile(i) * BLOCK_Q
        program.q_ring.load(i, program.q_desc, batch, head, q_start)
        program.load_row(i, program.lse_desc, batch, head, q_start, program.q_ring, program.lse_tiles)
        program.do_ring.load(i, program.do_desc, batch, head, q_start)
        program.load_row(i, program.delta_desc, batch, head, q_start, program.do_ring, program.delta_tiles)


@gluon.jit
def mask(p, program, tile, q_start, k_pos):
    """p (keys, queries), 0 where the mask hides the pair; where all are visible nothing is computed."""
    Q: gl.constexpr = gl.SliceLayout(0, p.type.layout)
    if program.IS_CAUSAL:
        if tile < program.diagonal:
            q_pos = q_start + gl.arange(0, program.BLOCK_Q, layout=Q)
            p = gl.where(q_pos[None, :] >= k_pos[:, None], p, 0.0)
    elif program.k_start + BLOCK_K > program.N:
        p = gl.where((k_pos < program.N)[:, None], p, 0.0)
    if program.WINDOW:  # noqa: SIM102 (one is known at compile time, one is not)
        if tile >= program.edge:
            q_pos = q_start + gl.arange(0, program.BLOCK_Q, layout=Q)
            p = gl.where(q_pos[None, :] - k_pos[:, None] < program.window_size, p, 0.0)
    return p


@gluon.jit
def consume(program, consumer: gl.constexpr):
    """dk and dv of 64 keys, and half of each tile of dq."""
    D: gl.constexpr = program.D
    BLOCK_Q: gl.constexpr = program.BLOCK_Q
    dtype: gl.constexpr = program.q_desc.dtype
    HALF_OF_QUERIES: gl.constexpr = BLOCK_Q == 128  # a consumer's half of dq: 64 queries, or half of the head dim
    COLUMNS: gl.constexpr = D if HALF_OF_QUERIES else D // 2
    AHEAD: gl.constexpr = D == 64  # the scores of the next tile beside the last product of this one
    S: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_Q, 16])
    G: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    P: gl.constexpr = gl.DotOperandLayout(0, G, 2)
    DQ: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, COLUMNS, 16])

    k_pos = program.k_start + consumer * ROWS + gl.arange(0, ROWS, layout=gl.SliceLayout(1, S))
    no_scores = gl.zeros([ROWS, BLOCK_Q], gl.float32, S)
    no_dq = gl.zeros([ROWS, COLUMNS], gl.float32, DQ)
    dk = gl.zeros([ROWS, D], gl.float32, G)
    dv = gl.zeros([ROWS, D], gl.float32, G)
    k = program.k_ring.wait(0)  # (BLOCK_K, D)
    v = program.v_ring.wait(0)
    k_own, v_own = k.slice(consumer * ROWS, ROWS), v.slice(consumer * ROWS, ROWS)
    k_for_dq = k if HALF_OF_QUERIES else k.slice(consumer * COLUMNS, COLUMNS, 1)
    dq_tile = program.dq_tiles.index(consumer)

    n = program.group * program.count
    q = program.q_ring.wait(0)  # (BLOCK_Q, D)
    scores = no_scores
    if AHEAD:
        scores = warpgroup_mma(k_own, q.permute((1, 0)), no_scores, use_acc=False)
    for i in range(n):
        tile = program.tile(i)
        q_start = program.first + tile * BLOCK_Q
        if not AHEAD:
            q = program.q_ring.wait(i)
            scores_later = warpgroup_mma(k_own, q.permute((1, 0)), no_scores, use_acc=False, is_async=True)
        do = program.do_ring.wait(i)
        dp_later = warpgroup_mma(v_own, do.permute((1, 0)), no_scores, use_acc=False, is_async=True)
        lse = program.row(i, program.lse_tiles, S)  # (1, BLOCK_Q), in base 2
        if not AHEAD:
            scores = warpgroup_mma_wait(1, [scores_later])  # dp goes on
        p = mask(gl.exp2(scores * program.qk_scale - lse), program, tile, q_start, k_pos)
        dp = warpgroup_mma_wait(0, [dp_later])
        dv_later = warpgroup_mma(gl.convert_layout(p.to(dtype), P), do, dv, is_async=True)
        delta = program.row(i, program.delta_tiles, S)
        ds = (p * (dp - delta)).to(dtype)
        ds_tile = program.ds_tiles.index(i % 2)
        ds_tile.slice(consumer * ROWS, ROWS).store(ds)
        fence_async_shared()
        mbarrier.arrive(program.ds_full.index(i % 2), count=1)
        mbarrier.wait(program.ds_full.index(i % 2), i // 2 & 1)  # both halves of ds are there
        ds_for_dq = ds_tile.slice(consumer * ROWS, ROWS, 1) if HALF_OF_QUERIES else ds_tile
        dq_later = warpgroup_mma(ds_for_dq.permute((1, 0)), k_for_dq, no_dq, use_acc=False, is_async=True)
        dk_later = warpgroup_mma(gl.convert_layout(ds, P), q, dk, is_async=True)
        dv, dq = warpgroup_mma_wait(1, [dv_later, dq_later])  # dk goes on
        program.do_ring.release(i)
        tma.store_wait(0)  # the tile before has left the buffer
        dq_tile.reshape([ROWS, COLUMNS]).store(dq)
        fence_async_shared()
        head = program.kv_head * program.group + i // program.count
        row, column = (q_start + consumer * ROWS, 0) if HALF_OF_QUERIES else (q_start, consumer * COLUMNS)
        add_to_global(program.dq_desc, [program.batch, head, row, column], dq_tile)
        if AHEAD:
            q = program.q_ring.wait(gl.minimum(i + 1, n - 1))
            scores_later = warpgroup_mma(k_own, q.permute((1, 0)), no_scores, use_acc=False, is_async=True)
            dk = warpgroup_mma_wait(1, [dk_later])
            scores = warpgroup_mma_wait(0, [scores_later])
        else:
            dk = warpgroup_mma_wait(0, [dk_later])
        program.q_ring.release(i)

    # They leave through the buffers of v and k. k is free when the other consumer has computed its last dq, too.
    v_rows = program.v_ring.tiles.index(0).slice(consumer * ROWS, ROWS, 2)
    v_own.store(dv.to(dtype))
    fence_async_shared()
    row = program.k_start + consumer * ROWS
    tma.async_copy_shared_to_global(program.dv_desc, [program.batch, program.kv_head, row, 0], v_rows)
    mbarrier.arrive(program.ds_full.index(n % 2), count=1)
    mbarrier.wait(program.ds_full.index(n % 2), n // 2 & 1)
    k_rows = program.k_ring.tiles.index(0).slice(consumer * ROWS, ROWS, 2)
    k_own.store((dk * program.scale).to(dtype))
    fence_async_shared()
    tma.async_copy_shared_to_global(program.dk_desc, [program.batch, program.kv_head, row, 0], k_rows)
    tma.store_wait(0)


SIZES = ("N", "Hkv", "group", "key_tiles", "heads", "heads_at_once", "window_size")
BLOCK_Q, STAGES = {64: 128, 128: 64}, {64: 2, 128: 2}  # by head dim
IN_L2 = 25e6  # bytes of q, do and dq of the heads whose tiles are numbered together


@gluon.jit(do_not_specialize=SIZES)  # one compiled kernel for all of them
def fast_backward_kernel(
    q_desc, do_desc, k_desc, v_desc, lse_desc, delta_desc, dq_desc, dk_desc, dv_desc,
    N, Hkv, group, key_tiles, heads, heads_at_once, window_size, scale, qk_scale,
    D: gl.constexpr, BLOCK_Q: gl.constexpr, STAGES: gl.constexpr, REGISTERS: gl.constexpr, IS_CAUSAL: gl.constexpr,
    WINDOW: gl.constexpr,
):  # fmt: skip
    """Grid: (key tiles x kv heads of all batches,), some heads at a time, and of these the longest tiles first."""
    number = gl.program_id(0)
    first_head = number // (key_tiles * heads_at_once) * heads_at_once
    at_once = gl.minimum(heads_at_once, heads - first_head)
    number -= first_head * key_tiles
    k_start, of_all = number // at_once * BLOCK_K, first_head + number % at_once
    first, end, diagonal, edge, shift = 0, N, 0, 0, 0
    if IS_CAUSAL:
        first = k_start // BLOCK_Q * BLOCK_Q
        diagonal = gl.cdiv(k_start + BLOCK_K - 1 - first, BLOCK_Q)
    elif D == 64:
        shift = k_start // BLOCK_Q
    if WINDOW:
        end = gl.minimum(N, k_start + BLOCK_K - 1 + window_size)
        edge = gl.maximum(0, k_start + window_size - first) // BLOCK_Q

    q_ring = make_ring(q_desc, STAGES, CONSUMERS, EXTRA=4 * BLOCK_Q)
    do_ring = make_ring(do_desc, STAGES, CONSUMERS, EXTRA=4 * BLOCK_Q)
    lse_tiles = gl.allocate_shared_memory(gl.float32, [STAGES, 1, 1, 1, BLOCK_Q], lse_desc.layout)
    delta_tiles = gl.allocate_shared_memory(gl.float32, [STAGES, 1, 1, 1, BLOCK_Q], lse_desc.layout)
    k_ring, v_ring = make_ring(k_desc, 1, CONSUMERS), make_ring(v_desc, 1, CONSUMERS)
    DS: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_K, BLOCK_Q], q_desc.dtype)
    ds_tiles = gl.allocate_shared_memory(q_desc.dtype, [2, BLOCK_K, BLOCK_Q], DS)
    ds_full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for half in gl.static_range(2):
        mbarrier.init(ds_full.index(half), count=CONSUMERS)
    dq_tile: gl.constexpr = dq_desc.block_shape
    dq_tiles = gl.allocate_shared_memory(
        gl.float32, [CONSUMERS, dq_tile[0], dq_tile[1], dq_tile[2], dq_tile[3]], dq_desc.layout
    )
    fence_async_shared()
    program = Program(
        q_desc=q_desc, do_desc=do_desc, k_desc=k_desc, v_desc=v_desc, lse_desc=lse_desc, delta_desc=delta_desc,
        dq_desc=dq_desc, q_ring=q_ring, do_ring=do_ring, lse_tiles=lse_tiles, delta_tiles=delta_tiles, k_ring=k_ring,
        v_ring=v_ring, ds_tiles=ds_tiles, ds_full=ds_full, dq_tiles=dq_tiles, dk_desc=dk_desc, dv_desc=dv_desc,
        batch=of_all // Hkv, kv_head=of_all % Hkv, k_start=k_start, first=first, count=gl.cdiv(end - first, BLOCK_Q),
        diagonal=diagonal, edge=edge, shift=shift, group=group, N=N, Hkv=Hkv, window_size=window_size, scale=scale,
        qk_scale=qk_scale, D=D, BLOCK_Q=BLOCK_Q, STAGES=STAGES, IS_CAUSAL=IS_CAUSAL, WINDOW=WINDOW,
    )  # fmt: skip
    gl.warp_specialize(
        ((consume, (program, 0)), (consume, (program, 1)), (produce, (program,))), [4, 1], [REGISTERS, FOR_PRODUCER]
    )


# Before and after it: plain Triton ------------------------------------------------------------------------------------


@triton.jit
def prepare_kernel(
    O, DO, Lse, Lse2, Delta, DQ,
    stride_ob, stride_oh, stride_on,
    stride_dob, stride_doh, stride_don,
    stride_lb, stride_lh,
    N, padded, D: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Of ROWS queries delta, lse in base 2, and dq = 0. Past the end lse is infinite, so that p is 0 there.

    Grid: (tiles, Hq, B). Lse2 and Delta (B, Hq, padded); DQ (B, Hq, N, D), float32.
    """
    head, batch = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    of_all = batch * tl.num_programs(1) + head
    rows, d = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, D)
    at, exists = rows.to(tl.int64)[:, None], rows < N
    o = tl.load(O + batch * stride_ob + head * stride_oh + at * stride_on + d[None, :], mask=exists[:, None], other=0.0)
    do_ptrs = DO + batch * stride_dob + head * stride_doh + at * stride_don + d[None, :]
    do = tl.load(do_ptrs, mask=exists[:, None], other=0.0)
    lse = tl.load(Lse + batch * stride_lb + head * stride_lh + rows, mask=exists, other=float("inf"))
    tl.store(Delta + of_all * padded + rows, tl.sum(o.to(tl.float32) * do.to(tl.float32), 1))
    tl.store(Lse2 + of_all * padded + rows, lse * 1.4426950408889634)
    tl.store(DQ + of_all * N * D + at * D + d[None, :], tl.zeros([ROWS, D], tl.float32), mask=exists[:, None])


@triton.jit
def finish_kernel(DQ, Out, scale, count, BLOCK: tl.constexpr):
    """Out = DQ * scale, in its dtype. Grid: (cdiv(count, BLOCK),)."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    dq = tl.load(DQ + at, mask=at < count, other=0.0)
    tl.store(Out + at, (dq * scale).to(Out.dtype.element_ty), mask=at < count)


PREPARED, FINISHED = 64, 4096  # queries and elements of a program


# Before the launch ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """The three launches of a shape. padded: tokens of lse and delta in the kernel, whole tiles."""

    prepare: Launch
    main: Launch
    finish: Launch
    padded: int


def describe_float32(shape, block, device):
    """A tensor descriptor of a contiguous (B, H, rows, columns) of float32, for tiles of that block."""
    layout = gl.NVMMASharedLayout.get_default_for(block, gl.float32)
    tensor = torch.empty(shape, dtype=torch.float32, device=device)
    return TensorDescriptor(tensor, list(shape), list(tensor.stride()), block, layout)


def check_arguments(do, q, k, v, o, lse, is_causal, window_size):
    """Raise ValueError, with the offending values in the text, unless the arguments are legal."""
    check_rows(do, q, o, lse)
    check_tensors(q, k, v)
    if window_size is not None and (not is_causal or window_size < 1):
        raise ValueError(f"a sliding window looks back only, 1 token or more; got window_size={window_size}, "
                         f"is_causal={is_causal}")  # fmt: skip


def check_rows(do, q, o, lse):
    if q.dim() != 4 or q.shape[3] not in BLOCK_Q:
        raise ValueError(f"q must be (B, Hq, N, D), its head dim one of {(*BLOCK_Q,)}; got D={q.shape[-1]}")
    for name, x in ("do", do), ("o", o):
        if x.shape != q.shape or x.dtype != q.dtype or x.device != q.device or x.stride(3) != 1:
            raise ValueError(f"{name} must be like q, {tuple(q.shape)} {q.dtype}, its last stride 1; got "
                             f"{tuple(x.shape)} {x.dtype}, strides {x.stride()}")  # fmt: skip
    if lse.shape != q.shape[:3] or lse.dtype != torch.float32 or lse.stride(2) != 1:
        raise ValueError(f"lse must be float32 {tuple(q.shape[:3])}, its last stride 1; got {lse.dtype} "
                         f"{tuple(lse.shape)}, strides {lse.stride()}")  # fmt: skip


def plan_launches(do, q, k, v, o, lse, is_causal, window_size):
    """The Plan for tensors of these shapes and layouts; None where one must be copied."""
    check_arguments(do, q, k, v, o, lse, is_causal, window_size)
    if any(aligned(x) is not x for x in (do, q, k, v)):
        return None
    (B, Hq, N, D), Hkv = q.shape, k.shape[1]
    group, block_q, windowed = Hq // Hkv, BLOCK_Q[D], window_size is not None and window_size < N
    key_tiles, padded = triton.cdiv(N, BLOCK_K.value), triton.cdiv(N, block_q) * block_q
    multiprocessors = torch.cuda.get_device_properties(q.device).multi_processor_count
    at_once = max(-(-multiprocessors // key_tiles), int(IN_L2 / (N * D * group * 8)))
    half = (ROWS.value, D) if block_q == 128 else (block_q, D // 2)
    of_rows = describe_float32((B, Hq, padded // block_q, block_q), [1, 1, 1, block_q], q.device)
    at_launch, registers = registers_for(CONSUMERS.value, 1)
    scale = 1.0 / math.sqrt(D)
    main = Launch(
        fast_backward_kernel, (key_tiles * B * Hkv, 1, 1),
        (*(describe(x, 1, block_q) for x in (q, do)), *(describe(x, 1, BLOCK_K.value) for x in (k, v)),
         of_rows, of_rows, describe_float32(q.shape, [1, 1, *half], q.device),
         *(describe(x, 1, ROWS.value, contiguous=True) for x in (k, v))),
        (N, Hkv, group, key_tiles, B * Hkv, min(at_once, B * Hkv), window_size if windowed else N, scale,
         scale * LOG2_E, D, block_q, STAGES[D], registers, is_causal, windowed),
        {"num_warps": 4, "maxnreg": at_launch},
    )  # fmt: skip
    prepare = Launch(
        prepare_kernel, (padded // PREPARED, Hq, B), (POINTER,) * 6,
        (*o.stride()[:3], *do.stride()[:3], *lse.stride()[:2], N, padded, D, PREPARED), {"num_warps": 4},
    )  # fmt: skip
    count = q.numel()
    finish = Launch(finish_kernel, (triton.cdiv(count, FINISHED), 1, 1), (POINTER,) * 2, (scale, count, FINISHED), {})
    return Plan(prepare, main, finish, padded)


PLANS = Launches(plan_launches)


def attention_backward(do, q, k, v, o, lse, is_causal=True, window_size=None):
    """The gradients of q, k and v from that of o, on a Hopper GPU: full, causal, or causal with a sliding window.

    do, q, o: (B, Hq, N, D), D 64 or 128. k, v: (B, Hkv, N, D), Hq a multiple of Hkv. Last stride 1; float16 or
    bfloat16. lse: (B, Hq, N), float32, natural logarithm, last stride 1. What the copy engine cannot read is copied.
    Returns dq, dk and dv, contiguous, in the dtype of q. Raises ValueError for arguments that do not fit.
    """
    plan = PLANS.find((do, q, k, v, o, lse), is_causal, window_size)
    if plan is None:
        check_arguments(do, q, k, v, o, lse, is_causal, window_size)  # of these, not of their copies
        return attention_backward(*(aligned(x) for x in (do, q, k, v, o)), lse.clone(), is_causal, window_size)
    lse2, delta = torch.empty(2, *q.shape[:2], plan.padded, dtype=torch.float32, device=q.device)
    sums = torch.empty(q.shape, dtype=torch.float32, device=q.device)
    dq = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    dk = torch.empty(k.shape, dtype=q.dtype, device=q.device)
    dv = torch.empty(v.shape, dtype=q.dtype, device=q.device)
    plan.prepare(o, do, lse, lse2, delta, sums)
    plan.main(q, do, k, v, lse2, delta, sums, dk, dv)
    plan.finish(sums, dq)
    return dq, dk, dv
