"""The fast form of X3: the backward pass for Hopper GPUs, five products in one kernel. No problem: read it last.

X3 computes the scores and dp twice: a kernel that owns queries makes dq, one that owns keys makes dk and dv. Here one
kernel makes all three. A program owns a tile of keys and walks over the tiles of queries that see it (scales left out):

    s = k q^T        p = 2^(s - lse)        dp = v do^T        ds = p (dp - delta)        all with the keys first
    dv += p do       dk += ds q             dq += ds^T k       the last one leaves the program: others add theirs

    keys first           p and ds come out of one product as the left factor of the next: they stay in registers
    two consumers        64 keys each. For dq both need the other's ds: it goes through shared memory
    dq one turn late     in turn i dq of tile i - 1 is computed, whose ds the other consumer has stored meanwhile
    sums by copy engine  dq is float32 in global memory; the copy engine (TMA) adds a tile to it, nobody waits. Where
                         sums must have one order, and at head dim 256, two warps hand the tiles to it (`pass_on_dq`)
    first values         the sums of the products begin at -lse, in the units of q k^T, and at -delta
    a producer           one warp asks for tiles of q, do, lse and delta, as in fast_attention.py

Small kernels in plain Triton stand around it (backward_parts.py): they compute delta, set dq to 0, or to what the sinks
add to it, and round it at the end. Sums of dq come in any order, so that the last bits differ from run to run; a
deterministic call adds in the order in which programs are started.

The program of keys 128 to 255, tiles of 64 queries, a causal mask with a window of 192; the numbers are the turns:

        query tile           0    1    2    3    4    5    6    7
        keys of consumer 0   .    .   [0m] [1m] [2 ] [3m] [4m]  .     'm': tiles with a mask, of the diagonal or of the
        keys of consumer 1   .    .   [0m] [1m] [2 ] [3m] [4m]  .          window's edge

A turn of one consumer, in its order. In turn 0 the ds before holds nothing, and its product is thrown away:

    ask for s(i), dp(i) -> p(i) -> ask for dv(i) -> ds(i) -> wait for the other's turn i - 1 -> store ds(i)
    -> ask for dq(i - 1), dk(i) -> dv and dq are done: the turn is said to be done, do is free -> dq leaves -> q is free

Source: Shah et al., "FlashAttention-3", 2024, section 3 and appendix B; Dao, "FlashAttention-2", 2023, algorithm 2.
"""

# Before you change this file:
# - Registers are what there is least of: at head dim 128 dk and dv take 128 of a thread's 240, s and dp 64, dq 32.
#   Compile it (`hopper_child.py`): spilled registers in the loop, or products that ptxas puts one after the other
#   (C7512, C7514, C7517), cost more than any idea brings. A product that is under way may not be carried from one turn
#   to the next.
# - A thread has two rows with equal first values. Something of each row is added (`unseen`, `no_keys`): else the
#   compiler would fill one register and copy it, and ptxas waits for the products under way before such a copy.
# - An arrival at a barrier, `store_wait` and the store before a product synchronise the consumer's four warps.
# - report/BACKWARD.md has each idea with and without it.

import math
from dataclasses import dataclass

import torch
import triton
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

from kernels.backward_parts import (
    BLOCK_S,
    QUERIES,
    SPAN,
    finish_kernel,
    prepare_kernel,
    sinks_kernel,
    sum_parts_kernel,
)
from kernels.backward_program import Program, hand_over, mask, pass_on_dq, produce
from kernels.fast_backward_wide import consume_gradients, consume_scores
from kernels.hopper import FOR_PRODUCER, ROWS, add_to_global, make_ring
from kernels.hopper_launch import POINTER, Launch, Launches, aligned, check_tensors, describe, registers_for
from solutions.x3_backward import check_sink_logits

LOG2_E = 1.4426950408889634
CONSUMERS = gl.constexpr(2)


@gluon.jit
def consume(program, consumer: gl.constexpr):
    """dk and dv of 64 keys, and half of each tile of dq."""
    D: gl.constexpr = program.D
    BLOCK_Q: gl.constexpr = program.BLOCK_Q
    dtype: gl.constexpr = program.q_desc.dtype
    HALF_OF_QUERIES: gl.constexpr = BLOCK_Q == 128  # a consumer's half of dq: 64 queries, or half of the head dim
    COLUMNS: gl.constexpr = D if HALF_OF_QUERIES else D // 2
    S: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_Q, 16])
    G: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    P: gl.constexpr = gl.DotOperandLayout(0, G, 2)
    DQ: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, COLUMNS, 16])
    OWN: gl.constexpr = consumer * ROWS  # of the keys; at head dim 64 also of the queries of dq
    MINE: gl.constexpr = 0 if HALF_OF_QUERIES else consumer * COLUMNS  # of the columns of dq

    k_pos = program.k_start + OWN + gl.arange(0, ROWS, layout=gl.SliceLayout(1, S))
    # The first values of s are -inf for keys that do not exist, and for sinks, which have a kernel of their own.
    unseen = gl.where((k_pos < program.N) & (k_pos >= program.sink_size), 0.0, float("-inf"))
    no_keys = gl.minimum(k_pos, 0).to(gl.float32)  # 0, which the compiler cannot know
    no_dq = gl.zeros([ROWS, COLUMNS], gl.float32, DQ)
    dk = gl.zeros([ROWS, D], gl.float32, G)
    dv = gl.zeros([ROWS, D], gl.float32, G)
    program.k_ring.wait(0)
    program.v_ring.wait(0)

    i, last_head, last_row = 0, 0, 0  # of the tile before: its dq is still to come
    for head in range(program.kv_head * program.group, program.kv_head * program.group + program.group):
        for turn in range(program.count):
            q_start, tile = program.start(turn)
            q = program.q_ring.wait(i)  # (BLOCK_Q, D)
            k_own = program.keys(program.k_ring, i).slice(OWN, ROWS)
            less = program.first_values(i, program.lse_tiles, unseen)
            scores_later = warpgroup_mma(k_own, q.permute((1, 0)), less, is_async=True)
            do = program.do_ring.wait(i)
            v_own = program.keys(program.v_ring, i).slice(OWN, ROWS)
            less_delta = program.first_values(i, program.delta_tiles, no_keys)
            dp_later = warpgroup_mma(v_own, do.permute((1, 0)), less_delta, is_async=True)
            scores = warpgroup_mma_wait(1, [scores_later])  # dp goes on
            p = mask(gl.exp2(scores * program.qk_scale), program, tile, q_start, k_pos)
            dp = warpgroup_mma_wait(0, [dp_later])
            dv_later = warpgroup_mma(gl.convert_layout(p.to(dtype), P), do, dv, is_async=True)
            ds = (p * dp).to(dtype)
            # Phase i - 1 is over: both have stored ds(i - 1), and multiplied by ds(i - 2), whose place this is.
            mbarrier.wait(program.met.index(0), (i & 1) ^ 1)  # a fresh barrier counts as passed
            program.ds_tiles.index(i % 2).slice(OWN, ROWS).store(ds)
            fence_async_shared()
            ds_before = program.ds_tiles.index((i + 1) % 2)
            ds_for_dq = ds_before.slice(OWN, ROWS, 1) if HALF_OF_QUERIES else ds_before
            k_for_dq = program.keys(program.k_ring, i).slice(MINE, COLUMNS, 1)
            dq_later = warpgroup_mma(ds_for_dq.permute((1, 0)), k_for_dq, no_dq, use_acc=False, is_async=True)
            dk_later = warpgroup_mma(gl.convert_layout(ds, P), q, dk, is_async=True)
            dv, dq = warpgroup_mma_wait(1, [dv_later, dq_later])  # dk goes on
            mbarrier.arrive(program.met.index(0), count=1)
            program.do_ring.release(i)
            if i > 0:
                add_dq(program, consumer, dq, last_head, last_row, MINE, i - 1)
            last_head, last_row = head, q_start + (OWN if HALF_OF_QUERIES else 0)
            dk = warpgroup_mma_wait(0, [dk_later])
            program.q_ring.release(i)
            i += 1

    mbarrier.wait(program.met.index(0), (i & 1) ^ 1)
    ds_before = program.ds_tiles.index((i + 1) % 2)
    ds_for_dq = ds_before.slice(OWN, ROWS, 1) if HALF_OF_QUERIES else ds_before
    k_for_dq = program.keys(program.k_ring, 0).slice(MINE, COLUMNS, 1)
    dq = warpgroup_mma(ds_for_dq.permute((1, 0)), k_for_dq, no_dq, use_acc=False)
    add_dq(program, consumer, dq, last_head, last_row, MINE, i - 1)

    # dv and dk leave through the buffers of v and k. A consumer alone reads its rows of v; k is free when the other has
    # computed its last dq, too.
    program.keys(program.v_ring, 0).slice(OWN, ROWS).store(dv.to(dtype))
    fence_async_shared()
    at = [program.batch, program.kv_head, program.k_start + OWN, 0]
    tma.async_copy_shared_to_global(program.dv_desc, at, program.v_ring.tiles.index(0).slice(OWN, ROWS, 2))
    mbarrier.arrive(program.met.index(0), count=1)
    mbarrier.wait(program.met.index(0), i & 1)
    program.keys(program.k_ring, 0).slice(OWN, ROWS).store((dk * program.scale).to(dtype))
    fence_async_shared()
    tma.async_copy_shared_to_global(program.dk_desc, at, program.k_ring.tiles.index(0).slice(OWN, ROWS, 2))
    tma.store_wait(0)


@gluon.jit
def add_dq(program, consumer: gl.constexpr, dq, head, row, column, n):
    """Have the copy engine add a consumer's n-th part to dq, or hand it over."""
    if program.HANDS_OVER:
        hand_over(program, consumer, dq, n)
    else:
        tma.store_wait(0)  # the part before has left the buffer (it is in memory at the end of the kernel)
        buffer = program.dq_tiles.index(consumer)
        buffer.reshape(dq.shape).store(dq)
        fence_async_shared()
        add_to_global(program.dq_desc, [program.batch, head, row, column], buffer)


SIZES = ("N", "Hkv", "group", "key_tiles", "heads", "heads_at_once", "window_size", "sink_size")
# By head dim: queries and keys of a tile, buffers of q and of do
TILES = {64: (128, 128, 2, 2), 128: (64, 128, 2, 2), 256: (64, 64, 2, 1)}
IN_L2 = 25e6  # bytes of q, do and dq of the heads whose tiles are numbered together


@gluon.jit(do_not_specialize=SIZES)  # one compiled kernel for all of them
def fast_backward_kernel(
    q_desc, do_desc, k_desc, v_desc, rows_desc, dq_desc, dk_desc, dv_desc, added,
    N, Hkv, group, key_tiles, heads, heads_at_once, window_size, sink_size, scale, qk_scale,
    D: gl.constexpr, BLOCK_Q: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr, DO_STAGES: gl.constexpr,
    REGISTERS: gl.constexpr, IS_CAUSAL: gl.constexpr, WINDOW: gl.constexpr, IN_ORDER: gl.constexpr,
):  # fmt: skip
    """Grid: (key tiles x kv heads of all batches,), some heads at a time, and of these the longest tiles first.

    In order: the newest tiles first, as they add to dq; they are the shortest.
    """
    number = gl.program_id(0)
    first_head = number // (key_tiles * heads_at_once) * heads_at_once
    at_once = gl.minimum(heads_at_once, heads - first_head)
    number -= first_head * key_tiles
    k_tile, of_all = number // at_once, first_head + number % at_once
    if IN_ORDER and IS_CAUSAL:
        k_tile = key_tiles - 1 - k_tile
    k_start = k_tile * BLOCK_K
    first, end, diagonal, edge, shift = 0, N, 0, 0, 0
    if IS_CAUSAL:
        first = k_start // BLOCK_Q * BLOCK_Q
        diagonal = gl.cdiv(k_start + BLOCK_K - 1 - first, BLOCK_Q)
    elif D == 64 and not IN_ORDER:
        shift = k_start // BLOCK_Q
    if WINDOW:
        end = gl.minimum(N, k_start + BLOCK_K - 1 + window_size)
        edge = gl.maximum(0, k_start + window_size - first) // BLOCK_Q

    q_ring = make_ring(q_desc, STAGES, CONSUMERS, EXTRA=4 * BLOCK_Q)
    do_ring = make_ring(do_desc, DO_STAGES, CONSUMERS, EXTRA=4 * BLOCK_Q)
    lse_tiles = gl.allocate_shared_memory(gl.float32, [STAGES, 1, 1, 1, BLOCK_Q], rows_desc.layout)
    delta_tiles = gl.allocate_shared_memory(gl.float32, [STAGES, 1, 1, 1, BLOCK_Q], rows_desc.layout)
    k_ring, v_ring = make_ring(k_desc, 1, CONSUMERS), make_ring(v_desc, 1, CONSUMERS)
    DS: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_K, BLOCK_Q], q_desc.dtype)
    ds_tiles = gl.allocate_shared_memory(q_desc.dtype, [2, BLOCK_K, BLOCK_Q], DS)
    WIDE: gl.constexpr = D == 256
    met = gl.allocate_shared_memory(gl.int64, [3 if WIDE else 1, 1], mbarrier.MBarrierLayout())
    mbarrier.init(met.index(0), count=CONSUMERS)
    if WIDE:
        mbarrier.init(met.index(1), count=1)
        mbarrier.init(met.index(2), count=1)
    dq_tile: gl.constexpr = dq_desc.block_shape
    dq_tiles = gl.allocate_shared_memory(
        gl.float32, [CONSUMERS, dq_tile[0], dq_tile[1], dq_tile[2], dq_tile[3]], dq_desc.layout
    )
    HANDS_OVER: gl.constexpr = IN_ORDER or D == 256
    dq_full, dq_empty = met, met
    if HANDS_OVER:  # barriers are made only where they are used: else the compiler gives their memory away
        dq_full = gl.allocate_shared_memory(gl.int64, [CONSUMERS, 1], mbarrier.MBarrierLayout())
        dq_empty = gl.allocate_shared_memory(gl.int64, [CONSUMERS, 1], mbarrier.MBarrierLayout())
        for consumer in gl.static_range(CONSUMERS):
            mbarrier.init(dq_full.index(consumer), count=1)
            mbarrier.init(dq_empty.index(consumer), count=1)
    if IN_ORDER:
        added += 2 * (of_all // Hkv * Hkv * group * gl.cdiv(N, BLOCK_Q))
    fence_async_shared()
    program = Program(
        q_desc=q_desc, do_desc=do_desc, k_desc=k_desc, v_desc=v_desc, rows_desc=rows_desc, dq_desc=dq_desc,
        dk_desc=dk_desc, dv_desc=dv_desc, q_ring=q_ring, do_ring=do_ring, k_ring=k_ring, v_ring=v_ring,
        lse_tiles=lse_tiles, delta_tiles=delta_tiles, ds_tiles=ds_tiles, met=met, dq_tiles=dq_tiles, dq_full=dq_full,
        dq_empty=dq_empty, added=added, batch=of_all // Hkv, batches=heads // Hkv, kv_head=of_all % Hkv,
        k_start=k_start, first=first, count=gl.cdiv(end - first, BLOCK_Q), diagonal=diagonal, edge=edge, shift=shift,
        group=group, N=N, window_size=window_size, sink_size=sink_size, scale=scale, qk_scale=qk_scale, D=D,
        BLOCK_Q=BLOCK_Q, BLOCK_K=BLOCK_K, STAGES=STAGES, IS_CAUSAL=IS_CAUSAL, WINDOW=WINDOW, IN_ORDER=IN_ORDER,
        HANDS_OVER=HANDS_OVER,
    )  # fmt: skip
    consumers: gl.constexpr = (consume_scores, consume_gradients) if WIDE else (consume, consume)
    if HANDS_OVER:
        gl.warp_specialize(
            ((consumers[0], (program, 0)), (consumers[1], (program, 1)), (produce, (program,)),
             (pass_on_dq, (program, 0)), (pass_on_dq, (program, 1))),
            [4, 1, 1, 1],
            [REGISTERS, FOR_PRODUCER, FOR_PRODUCER, FOR_PRODUCER],
        )  # fmt: skip
    else:
        gl.warp_specialize(
            ((consumers[0], (program, 0)), (consumers[1], (program, 1)), (produce, (program,))),
            [4, 1],
            [REGISTERS, FOR_PRODUCER],
        )


# Before the launch ----------------------------------------------------------------------------------------------------


PREPARED, SUMMED, FINISHED = 64, 32, 4096  # queries, parts in a step, and elements of a program


@dataclass(frozen=True)
class Plan:
    """The launches of a shape. padded: tokens of lse and delta in the kernel, whole tiles.

    of_parts: the shape of dk and dv of the sinks, in parts (2, B, Hkv, group, parts, sink_size, D). of_logits: of the
    gradient of learned sinks, in parts. of_added: of the counters of programs that have added to a tile of dq.
    """

    prepare: Launch
    sinks: Launch | None
    sum_parts: Launch | None
    main: Launch
    finish: Launch
    padded: int
    of_parts: tuple[int, ...]
    of_logits: tuple[int, ...]
    of_added: tuple[int, ...]


def describe_float32(shape, block, device):
    """A tensor descriptor of a contiguous (B, H, rows, columns) of float32, for tiles of that block."""
    layout = gl.NVMMASharedLayout.get_default_for(block, gl.float32)
    tensor = torch.empty(shape, dtype=torch.float32, device=device)
    return TensorDescriptor(tensor, list(shape), list(tensor.stride()), block, layout)


def check_arguments(do, q, k, v, o, lse, is_causal, window_size, sink_size):
    """Raise ValueError, with the offending values in the text, unless the arguments are legal."""
    check_rows(do, q, o, lse)
    check_tensors(q, k, v)
    if not is_causal and (window_size is not None or sink_size):
        raise ValueError(f"a window and sinks look back only; got is_causal={is_causal}, window_size={window_size}, "
                         f"sink_size={sink_size}")  # fmt: skip
    if (window_size is not None and window_size < 1) or sink_size < 0:
        raise ValueError(f"a window has 1 token or more, sinks 0 or more; got window_size={window_size}, "
                         f"sink_size={sink_size}")  # fmt: skip


def check_rows(do, q, o, lse):
    if q.dim() != 4 or q.shape[3] not in TILES:
        raise ValueError(f"q must be (B, Hq, N, D), its head dim one of {(*TILES,)}; got {tuple(q.shape)}")
    for name, x in ("do", do), ("o", o):
        if x.shape != q.shape or x.dtype != q.dtype or x.device != q.device or x.stride(3) != 1:
            raise ValueError(f"{name} must be like q, {tuple(q.shape)} {q.dtype}, its last stride 1; got "
                             f"{tuple(x.shape)} {x.dtype}, strides {x.stride()}")  # fmt: skip
    if lse.shape != q.shape[:3] or lse.dtype != torch.float32 or lse.device != q.device or lse.stride(2) != 1:
        raise ValueError(f"lse must be float32 {tuple(q.shape[:3])} on {q.device}, its last stride 1; got {lse.dtype} "
                         f"{tuple(lse.shape)} on {lse.device}, strides {lse.stride()}")  # fmt: skip


def plan_launches(do, q, k, v, o, lse, is_causal, window_size, sink_size, learned, deterministic):
    """The Plan for tensors of these shapes and layouts; None where one must be copied."""
    check_arguments(do, q, k, v, o, lse, is_causal, window_size, sink_size)
    if any(aligned(x) is not x for x in (do, q, k, v)):
        return None
    (B, Hq, N, D), Hkv = q.shape, k.shape[1]
    # A key that is no sink is younger than N - sink_size: if the window reaches as far, all earlier keys are visible.
    group, windowed = Hq // Hkv, window_size is not None and window_size + sink_size < N
    block_q, block_k, stages, do_stages = TILES[D]
    sink_size = sink_size if windowed else 0  # without a window a sink is like any other key
    key_tiles, padded = triton.cdiv(N, block_k), triton.cdiv(N, block_q) * block_q
    multiprocessors = torch.cuda.get_device_properties(q.device).multi_processor_count
    at_once = max(1 if deterministic else -(-multiprocessors // key_tiles), int(IN_L2 / (N * D * group * 8)))
    of_dq = (ROWS.value, min(D, 64))  # of a consumer at a time
    of_rows = describe_float32((2 * B, Hq, padded // block_q, block_q), [1, 1, 1, block_q], q.device)
    at_launch, registers = registers_for(CONSUMERS.value, 1)
    scale = 1.0 / math.sqrt(D)
    main = Launch(
        fast_backward_kernel, (key_tiles * B * Hkv, 1, 1),
        (*(describe(x, 1, block_q) for x in (q, do)), *(describe(x, 1, block_k) for x in (k, v)),
         of_rows, describe_float32(q.shape, [1, 1, *of_dq], q.device),
         *(describe(x, 1, ROWS.value, contiguous=True) for x in (k, v)), POINTER if deterministic else None),
        (N, Hkv, group, key_tiles, B * Hkv, min(at_once, B * Hkv), window_size if windowed else N, sink_size, scale,
         scale * LOG2_E, D, block_q, block_k, stages, do_stages, registers, is_causal, windowed,
         deterministic),
        {"num_warps": 4, "maxnreg": at_launch},
    )  # fmt: skip
    of_logits = (B, Hq, padded // PREPARED)
    prepare = Launch(
        prepare_kernel, (padded // PREPARED, Hq, B), (*[POINTER] * 5, *[POINTER if learned else None] * 2),
        (*o.stride()[:3], *do.stride()[:3], *lse.stride()[:2], N, padded, math.sqrt(D), D, PREPARED, not sink_size),
        {"num_warps": 4},
    )  # fmt: skip
    sinks, sum_parts, of_parts = None, None, ()
    if sink_size:
        parts = triton.cdiv(N, SPAN)
        of_parts = (2, B, Hkv, group, parts, sink_size, D)
        sinks = Launch(
            sinks_kernel, (parts, Hq, B), (POINTER,) * 8,
            (*q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *do.stride()[:3], N, padded, group, sink_size, scale,
             scale * LOG2_E, D, QUERIES, BLOCK_S, SPAN),
            {"num_warps": 4, "num_stages": 3},
        )  # fmt: skip
        sum_parts = Launch(
            sum_parts_kernel, (sink_size, Hkv, B), (POINTER,) * 4, (N, group * parts, sink_size, D, SUMMED), {}
        )
    count = q.numel()
    finish = Launch(finish_kernel, (triton.cdiv(count, FINISHED), 1, 1), (POINTER,) * 2, (scale, count, FINISHED), {})
    of_added = (B, Hq, padded // block_q, 2)
    return Plan(prepare, sinks, sum_parts, main, finish, padded, of_parts, of_logits, of_added)


PLANS = Launches(plan_launches)


def attention_backward(
    do, q, k, v, o, lse, is_causal=True, window_size=None, sink_size=0, sink_logits=None, deterministic=False
):
    """The gradients of q, k and v from that of o, on a Hopper GPU: full, causal, or causal with window and sinks.

    do, q, o: (B, Hq, N, D), D 64, 128 or 256. k, v: (B, Hkv, N, D), Hq a multiple of Hkv. Last stride 1; float16 or
    bfloat16. lse: (B, Hq, N), float32, natural logarithm, last stride 1. sink_logits: as in X3. What the copy engine
    cannot read is copied. deterministic: the sums of dq have one order, so that each run gives the same bits.
    Returns dq, dk and dv, contiguous, in the dtype of q; with sink_logits their gradient, too.
    Raises ValueError for arguments that do not fit.
    """
    check_sink_logits(sink_logits, q)
    told = is_causal, window_size, sink_size
    plan = PLANS.find((do, q, k, v, o, lse), *told, sink_logits is not None, deterministic)
    if plan is None:
        check_arguments(do, q, k, v, o, lse, *told)  # of these, not of their copies
        copies = (aligned(x) for x in (do, q, k, v, o))
        return attention_backward(*copies, lse.clone(), *told, sink_logits, deterministic)

    def numbers(*shape):
        return torch.empty(shape, dtype=torch.float32, device=q.device)

    rows = numbers(2, *q.shape[:2], plan.padded)  # lse for the kernel, and delta
    of_logits = None if sink_logits is None else numbers(*plan.of_logits)
    sums = torch.empty_like(q, dtype=torch.float32, memory_format=torch.contiguous_format)
    dq, dk, dv = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))
    added = torch.zeros(plan.of_added, dtype=torch.int32, device=q.device) if deterministic else None
    plan.prepare(o, do, lse, rows, sums, sink_logits, of_logits)
    if plan.sinks:
        of_parts = numbers(*plan.of_parts)
        plan.sinks(q, k, v, do, rows, sums, *of_parts)
    plan.main(q, do, k, v, rows, sums, dk, dv, added)
    if plan.sinks:
        plan.sum_parts(*of_parts, dk, dv)
    plan.finish(sums, dq)
    return (dq, dk, dv) if sink_logits is None else (dq, dk, dv, of_logits.sum((0, 2)))
