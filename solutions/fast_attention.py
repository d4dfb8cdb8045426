"""The fast form of P3 to P7: one kernel for Hopper GPUs that keeps their matrix units busy. No problem: read it last.

The plain kernels wait: for a tile, for scores, for the softmax. Here nothing waits that can be told not to:

    tensor descriptors   one thread asks the copy engine (TMA) for a whole tile; rows past the end come as zeros
    two kinds of warps   a producer only asks for tiles, consumers only compute: 64 rows of queries each, on the same
                         tiles of K and V; for each buffer one barrier says "filled", another says "free"
    overlap              products are asynchronous: while one tile's p meets V, the next tile's softmax runs
    tile after tile      a program takes many tiles of queries: K and V of the next arrive while this one is stored
    packed heads         under a window, the query heads that share K and V share a tile: fewer keys for each row

Tiles of keys are visited from the newest to the oldest: the diagonal, which needs a mask, the inside, which needs none,
the window's edge. The online softmax does not mind the order.

One program, 2 consumers, BLOCK_K = 64, a window. The numbers are the order; 'm' marks the tiles with a mask.

        key tile            oldest              newest
        rows of consumer 0  [4m] [ 3] [ 2] [1m] [0m]        both consumers read the same tiles; up to 16 sinks are
        rows of consumer 1  [4m] [ 3] [ 2] [1m] [0m]        a tile of their own beside tile 0, more come last

Gluon is the layer under Triton's language, where layouts, barriers and warps are in the programmer's hands. It has no
interpreter: this runs on Hopper GPUs (compute capability 9.0), and elsewhere in tests alone (`gluon_on_cpu/`).

Source: Shah et al., "FlashAttention-3", 2024, sections 3.1 (producer and consumers) and 3.2 (overlap within one of
them); Ainslie et al., "GQA", 2023, for the heads; Xiao et al., "Attention Sinks", 2023, section 3, for the mask.
"""

import math

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from solutions.hopper import (
    FOR_PRODUCER,
    ROWS,
    Ring,
    Scalar,
    aggregate,
    layout_of_sums,
    make_ring,
    multiply_later,
    softmax_step,
    sum_in_threads,
)
from solutions.hopper_launch import Launch, Launches, aligned, check_tensors, describe, registers_for

LOG2_E = 1.4426950408889634
MOST_PACKED = 8  # heads that share a tile of queries: eight rows of each at the least


@aggregate
class Tile:
    """A tile of queries, and the tiles of keys that it visits: the window's, newest first, then those of many sinks.

    end: one past the newest key. window_tiles: without those of sinks; count: with them. diagonal: tiles before this
    one hold keys after a query. edge: from this one on the window's tiles hold keys too old for a query. sink_end:
    where sinks begin that the window's tiles hold.
    """

    batch: Scalar
    head: Scalar
    q_start: Scalar
    end: Scalar
    window_tiles: Scalar
    count: Scalar
    diagonal: Scalar
    edge: Scalar
    sink_end: Scalar
    BLOCK_K: gl.constexpr

    @gluon.jit
    def start(self, i):
        """The first key of tile i."""
        newest_first, oldest_first = self.end - (i + 1) * self.BLOCK_K, (i - self.window_tiles) * self.BLOCK_K
        return gl.where(i < self.window_tiles, newest_first, oldest_first)


@aggregate
class Program:
    """What one program works with: its rings, the descriptors that fill them, the tiles of queries that are its own."""

    q_desc: tma.tensor_descriptor
    k_desc: tma.tensor_descriptor
    v_desc: tma.tensor_descriptor
    o_desc: tma.tensor_descriptor
    sink_k_desc: tma.tensor_descriptor
    sink_v_desc: tma.tensor_descriptor
    q_ring: Ring
    k_ring: Ring
    v_ring: Ring
    sink_k_ring: Ring
    sink_v_ring: Ring
    o_tiles: gl.shared_memory_descriptor
    tiles: Scalar  # of queries, in all heads
    query_tiles: Scalar  # in one head
    heads_at_once: Scalar
    Hq: Scalar
    group: Scalar
    N: Scalar
    window_size: Scalar
    sink_size: Scalar
    qk_scale: Scalar
    D: gl.constexpr
    BLOCK_K: gl.constexpr
    BLOCK_SINK: gl.constexpr
    PACK: gl.constexpr
    CONSUMERS: gl.constexpr
    IS_CAUSAL: gl.constexpr
    WINDOW: gl.constexpr


@gluon.jit
def find_tile(program, number):
    """Tile `number`: as many heads at a time as the L2 cache holds, and of these the longest rows first."""
    TOKENS: gl.constexpr = program.CONSUMERS * (ROWS // program.PACK)
    BLOCK_K: gl.constexpr = program.BLOCK_K
    heads = program.Hq // program.PACK
    first = number // (program.query_tiles * program.heads_at_once) * program.heads_at_once
    at_once = gl.minimum(program.heads_at_once, program.tiles // program.query_tiles - first)
    number -= first * program.query_tiles
    q_start = (program.query_tiles - 1 - number // at_once) * TOKENS
    of_all = first + number % at_once
    end, oldest, oldest_for_last, diagonal = program.N, 0, 0, 0
    if program.IS_CAUSAL:
        end = gl.minimum(q_start + TOKENS, program.N)
        diagonal = gl.cdiv(end - 1 - q_start, BLOCK_K)
    if program.WINDOW:
        oldest = gl.maximum(0, q_start - program.window_size + 1)
        oldest_for_last = gl.maximum(0, end - program.window_size)
    window_tiles = gl.cdiv(end - oldest, BLOCK_K)
    sink_end = gl.minimum(program.sink_size, gl.maximum(0, end - window_tiles * BLOCK_K))
    count = window_tiles
    if program.BLOCK_SINK == 0:
        count = window_tiles + gl.cdiv(sink_end, BLOCK_K)
    return Tile(
        batch=of_all // heads, head=of_all % heads * program.PACK, q_start=q_start, end=end, window_tiles=window_tiles,
        count=count, diagonal=diagonal, edge=(end - oldest_for_last) // BLOCK_K, sink_end=sink_end, BLOCK_K=BLOCK_K,
    )  # fmt: skip


# The producer: one warp that asks for tiles ---------------------------------------------------------------------------


@gluon.jit
def produce(program):
    """For each tile of queries Q for each consumer, and K and V from the newest tile to the oldest; the sinks early."""
    k_ring, v_ring, k_desc, v_desc = program.k_ring, program.v_ring, program.k_desc, program.v_desc
    TOKENS: gl.constexpr = ROWS // program.PACK
    turn, done = 0, 0  # tiles of queries, and their tiles of keys, before these
    for number in range(gl.program_id(0), program.tiles, gl.num_programs(0)):
        tile = find_tile(program, number)
        batch, kv_head = tile.batch, tile.head // program.group
        k_ring.load(done, k_desc, batch, kv_head, tile.start(0))
        for consumer in gl.static_range(program.CONSUMERS):
            row = tile.q_start + consumer * TOKENS
            program.q_ring.load(turn * program.CONSUMERS + consumer, program.q_desc, batch, tile.head, row)
        if program.BLOCK_SINK > 0:
            program.sink_k_ring.load(turn, program.sink_k_desc, batch, kv_head, 0)
            program.sink_v_ring.load(turn, program.sink_v_desc, batch, kv_head, 0)
        for i in range(1, tile.count):
            k_ring.load(done + i, k_desc, batch, kv_head, tile.start(i))
            v_ring.load(done + i - 1, v_desc, batch, kv_head, tile.start(i - 1))
        v_ring.load(done + tile.count - 1, v_desc, batch, kv_head, tile.start(tile.count - 1))
        done += tile.count
        turn += 1  # noqa: SIM113


# A consumer: four warps, 64 rows --------------------------------------------------------------------------------------


@gluon.jit
def positions(scores, k_start):
    """Of the columns' keys. Computed where a mask needs them and not before: else every tile would take the mask."""
    return k_start + gl.arange(0, scores.shape[1], layout=gl.SliceLayout(0, scores.type.layout))


@gluon.jit
def causal_mask(scores, q_pos, k_start):
    """-inf for keys after the query."""
    return gl.where(q_pos[:, None] >= positions(scores, k_start)[None, :], scores, float("-inf"))


@gluon.jit
def window_mask(scores, q_pos, k_start, program):
    """-inf for keys that have left the window and are no sinks; the oldest tile may also begin before the first key."""
    k_pos = positions(scores, k_start)
    visible = (k_pos >= 0)[None, :]
    if program.WINDOW:
        in_window = q_pos[:, None] - k_pos[None, :] < program.window_size
        visible = visible & (in_window | (k_pos < program.sink_size)[None, :])
    return gl.where(visible, scores, float("-inf"))


@gluon.jit
def sink_mask(scores, k_start, sink_end):
    """-inf for keys that are no sinks, or that one of the window's tiles has counted."""
    return gl.where((positions(scores, k_start) < sink_end)[None, :], scores, float("-inf"))


@gluon.jit
def attend(program, tile, turn, done, consumer: gl.constexpr):
    """The online softmax of 64 rows, PACK heads of 64 / PACK tokens each: (acc, row_sum), not yet divided."""
    D: gl.constexpr = program.D
    BLOCK_K: gl.constexpr = program.BLOCK_K
    BLOCK_SINK: gl.constexpr = program.BLOCK_SINK
    TOKENS: gl.constexpr = ROWS // program.PACK
    LOOK_AHEAD: gl.constexpr = program.CONSUMERS == 2
    S: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_K, 16])  # where scores lie in registers
    O: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    P: gl.constexpr = gl.DotOperandLayout(0, O, 2)
    S_ROWS: gl.constexpr = gl.SliceLayout(1, S)
    O_ROWS: gl.constexpr = gl.SliceLayout(1, O)
    SUM_ROWS: gl.constexpr = gl.SliceLayout(1, layout_of_sums())
    k_ring, v_ring, qk_scale = program.k_ring, program.v_ring, program.qk_scale
    dtype: gl.constexpr = program.o_desc.dtype
    last = tile.count - 1

    q_pos = tile.q_start + consumer * TOKENS + gl.arange(0, ROWS, layout=S_ROWS) % TOKENS
    row_max = gl.full([ROWS], float("-inf"), gl.float32, S_ROWS)  # the paper's m, in base 2
    row_sums = gl.zeros([ROWS, 4], gl.float32, layout_of_sums())  # the paper's l, in parts
    acc = gl.zeros([ROWS, D], gl.float32, O)
    no_scores = gl.zeros([ROWS, BLOCK_K], gl.float32, S)
    q = program.q_ring.wait(turn * program.CONSUMERS + consumer)  # (64, D)
    q_left = None
    if LOOK_AHEAD and D >= 128 and BLOCK_SINK == 0:  # what is read from registers is not read from shared memory
        q_left = q.slice(0, D // 2, 1).load(gl.DotOperandLayout(0, S, 2))
    # Tile 0, and beside it a few sinks: their softmax under the product of tile 0, their product under its softmax.
    if BLOCK_SINK > 0:
        T: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_SINK, 16])
        sink_k = program.sink_k_ring.wait(turn)
        no_sinks = gl.zeros([ROWS, BLOCK_SINK], gl.float32, T)
        sinks_later = warpgroup_mma(q, sink_k.permute((1, 0)), no_sinks, use_acc=False, is_async=True)
    k = k_ring.wait(done)  # (BLOCK_K, D)
    scores_later = multiply_later(q, q_left, k, no_scores)
    if BLOCK_SINK > 0:
        sink_scores = sink_mask(warpgroup_mma_wait(1, [sinks_later]), 0, tile.sink_end)
        program.sink_k_ring.release(turn)
        none_max = gl.convert_layout(row_max, gl.SliceLayout(1, T))
        sink_p, _, sink_max = softmax_step(sink_scores, none_max, qk_scale)
        row_max, row_sums = gl.convert_layout(sink_max, S_ROWS), sum_in_threads(sink_p)
        sink_v = program.sink_v_ring.wait(turn)
        acc_later = warpgroup_mma(gl.convert_layout(sink_p.to(dtype), P), sink_v, acc, is_async=True)
        scores = warpgroup_mma_wait(1, [scores_later])
    else:
        scores = warpgroup_mma_wait(0, [scores_later])
    k_ring.release(done)
    k_start = tile.start(0)
    if program.IS_CAUSAL:
        scores = causal_mask(scores, q_pos, k_start)
    if tile.edge <= 0:
        scores = window_mask(scores, q_pos, k_start, program)
    p, alpha, row_max = softmax_step(scores, row_max, qk_scale)
    row_sums = row_sums * gl.convert_layout(alpha, SUM_ROWS)[:, None] + sum_in_threads(p)
    if BLOCK_SINK > 0:
        acc = warpgroup_mma_wait(0, [acc_later])
        program.sink_v_ring.release(turn)
        acc = acc * gl.convert_layout(alpha, O_ROWS)[:, None]
    p = gl.convert_layout(p.to(dtype), P)

    # Every other tile, its scores and softmax under the product of the tile before.
    if LOOK_AHEAD:
        k, v = k_ring.wait(done + gl.minimum(1, last)), v_ring.wait(done)
    for i in range(1, tile.count):
        if not LOOK_AHEAD:
            k = k_ring.wait(done + i)
        scores_later = multiply_later(q, q_left, k, no_scores)
        if not LOOK_AHEAD:
            v = v_ring.wait(done + i - 1)  # (BLOCK_K, D)
        acc_later = warpgroup_mma(p, v, acc, is_async=True)
        scores = warpgroup_mma_wait(1, [scores_later])  # all but the newest product: p @ v goes on
        k_ring.release(done + i)
        k_start = tile.start(i)
        if i < tile.diagonal:
            scores = causal_mask(scores, q_pos, k_start)
        if (i >= tile.edge) & (i < tile.window_tiles):
            scores = window_mask(scores, q_pos, k_start, program)
        if program.WINDOW:  # noqa: SIM102 (one is known at compile time, one is not)
            if i >= tile.window_tiles:
                scores = sink_mask(scores, k_start, tile.sink_end)
        p_next, alpha, row_max = softmax_step(scores, row_max, qk_scale)
        row_sums = row_sums * gl.convert_layout(alpha, SUM_ROWS)[:, None] + sum_in_threads(p_next)
        if LOOK_AHEAD:  # the next tiles are awaited here, while p @ v goes on
            k, v = k_ring.wait(done + gl.minimum(i + 1, last)), v_ring.wait(done + i)
        acc = warpgroup_mma_wait(0, [acc_later])
        v_ring.release(done + i - 1)
        acc = acc * gl.convert_layout(alpha, O_ROWS)[:, None]
        p = gl.convert_layout(p_next.to(dtype), P)
    if not LOOK_AHEAD:
        v = v_ring.wait(done + last)
    acc = warpgroup_mma(p, v, acc)
    v_ring.release(done + last)
    return acc, gl.convert_layout(gl.sum(row_sums, 1), O_ROWS)


@gluon.jit
def consume(program, consumer: gl.constexpr):
    """64 rows of each tile of queries: attend, divide, store."""
    SHARED: gl.constexpr = program.D == 256  # no memory is left: o goes out through q's buffer
    turn, done = 0, 0
    for number in range(gl.program_id(0), program.tiles, gl.num_programs(0)):
        tile = find_tile(program, number)
        acc, row_sum = attend(program, tile, turn, done, consumer)
        o = (acc * (1.0 / row_sum)[:, None]).to(program.o_desc.dtype)
        at = turn * program.CONSUMERS + consumer
        if not SHARED:
            program.q_ring.release(at)
            tma.store_wait(0)  # the tile before has left the buffer
        buffer = program.o_tiles.index(consumer)
        buffer.reshape([ROWS, program.D]).store(o)
        fence_async_shared()
        row = tile.q_start + consumer * (ROWS // program.PACK)
        tma.async_copy_shared_to_global(program.o_desc, [tile.batch, tile.head, row, 0], buffer)
        if SHARED:
            tma.store_wait(0)
            program.q_ring.release(at)
        turn += 1  # noqa: SIM113
        done += tile.count
    tma.store_wait(0)


# One program: CONSUMERS x 64 rows of queries at a time ----------------------------------------------------------------


@gluon.jit(do_not_specialize=("N", "Hq", "group", "tiles", "query_tiles", "heads_at_once", "window_size", "sink_size"))
def fast_attention_kernel(
    q_desc, k_desc, v_desc, o_desc, sink_k_desc, sink_v_desc,
    N, Hq, group, tiles, query_tiles, heads_at_once, window_size, sink_size, qk_scale,
    D: gl.constexpr, BLOCK_K: gl.constexpr, BLOCK_SINK: gl.constexpr, PACK: gl.constexpr, CONSUMERS: gl.constexpr,
    STAGES: gl.constexpr, REGISTERS: gl.constexpr, IS_CAUSAL: gl.constexpr, WINDOW: gl.constexpr,
):  # fmt: skip
    """Grid: as many programs as the GPU holds; each takes every grid-th tile of queries."""
    q_ring = make_ring(q_desc, CONSUMERS, 1)
    k_ring = make_ring(k_desc, STAGES, CONSUMERS)
    v_ring = make_ring(v_desc, STAGES, CONSUMERS)
    # No ring that nobody uses: the compiler gives its place to what it hands the producer, while a late warp may still
    # be initialising the barriers there.
    sink_k_ring, sink_v_ring, o_tiles = k_ring, v_ring, q_ring.tiles
    if BLOCK_SINK > 0:
        sink_k_ring = make_ring(sink_k_desc, 1, CONSUMERS)
        sink_v_ring = make_ring(sink_v_desc, 1, CONSUMERS)
    if D < 256:
        o_tiles = gl.allocate_shared_memory(o_desc.dtype, [CONSUMERS, 1, PACK, ROWS // PACK, D], o_desc.layout)
    fence_async_shared()
    program = Program(
        q_desc=q_desc, k_desc=k_desc, v_desc=v_desc, o_desc=o_desc, sink_k_desc=sink_k_desc, sink_v_desc=sink_v_desc,
        q_ring=q_ring, k_ring=k_ring, v_ring=v_ring, sink_k_ring=sink_k_ring, sink_v_ring=sink_v_ring, o_tiles=o_tiles,
        tiles=tiles, query_tiles=query_tiles, heads_at_once=heads_at_once, Hq=Hq, group=group,
        N=N, window_size=window_size, sink_size=sink_size, qk_scale=qk_scale,
        D=D, BLOCK_K=BLOCK_K, BLOCK_SINK=BLOCK_SINK, PACK=PACK, CONSUMERS=CONSUMERS,
        IS_CAUSAL=IS_CAUSAL, WINDOW=WINDOW,
    )  # fmt: skip
    gl.warp_specialize(
        ((consume, (program, 0)), (consume, (program, 1)), (consume, (program, 2)))[:CONSUMERS]  # noqa: RUF005
        + ((produce, (program,)),),
        [4] * (CONSUMERS - 1) + [1],
        [REGISTERS] * (CONSUMERS - 1) + [FOR_PRODUCER],
    )


# Before the launch ----------------------------------------------------------------------------------------------------

# (BLOCK_K, CONSUMERS, STAGES, programs on a multiprocessor), tuned on an H200. Long rows want many consumers that share
# K and V; short ones small programs.
LONG = {16: (128, 3, 2, 1), 32: (128, 3, 2, 1), 64: (128, 3, 2, 1), 128: (128, 2, 2, 1), 256: (64, 2, 2, 1)}
MIDDLE = LONG | {64: (64, 3, 3, 1), 128: (64, 3, 3, 1)}  # windows
SHORT = LONG | {16: (64, 1, 2, 3), 32: (64, 1, 2, 3), 64: (64, 1, 2, 3), 128: (64, 1, 2, 2)}
SHORT_KEYS = {16: 2047, 32: 2047, 64: 2047, 128: 256, 256: 0}  # up to which a row is short
FEW_KEYS = SHORT_KEYS | {128: 512}  # the same where long rows' tiles of queries are fewer than multiprocessors
LONG_CAUSAL = 8192  # tokens from which each tile has a program of its own: the GPU balances them better than we do
L2_FOR_KEYS = 12e6  # bytes of K and V that programs work on at a time: they shall stay in the L2 cache


def choose_tiles(N, D, is_causal, window_size, few=False):
    """BLOCK_K, CONSUMERS, STAGES and programs on a multiprocessor: what was fastest for rows of this length."""
    if window_size is not None and window_size < N:
        return (SHORT if window_size <= 256 else MIDDLE if window_size < 4096 else LONG)[D]
    keys = N // 2 if is_causal else N  # that a query sees on average
    return (SHORT if keys <= (FEW_KEYS if few else SHORT_KEYS)[D] else LONG)[D]


def check_arguments(q, k, v, is_causal, window_size, sink_size):
    """Raise ValueError, with the offending values in the text, unless the arguments are legal."""
    check_tensors(q, k, v)
    if window_size is None and sink_size:
        raise ValueError(f"sinks need a window; got sink_size={sink_size}, window_size=None")
    if window_size is not None and not is_causal:
        raise ValueError(f"a sliding window looks back only; got is_causal={is_causal}")
    if window_size is not None and window_size < 1:
        raise ValueError(f"window_size must be at least 1; got window_size={window_size}")
    if sink_size < 0:
        raise ValueError(f"sink_size must not be negative; got sink_size={sink_size}")


def prepare(q, k, v, is_causal, window_size, sink_size):
    """The Launch for tensors of these shapes and layouts; None where one must be copied first."""
    check_arguments(q, k, v, is_causal, window_size, sink_size)
    if any(aligned(x) is not x for x in (q, k, v)):
        return None
    B, Hq, N, D = q.shape
    group, multiprocessors = Hq // k.shape[1], torch.cuda.get_device_properties(q.device).multi_processor_count
    few = triton.cdiv(N, 2 * ROWS.value) * Hq * B < multiprocessors
    BLOCK_K, CONSUMERS, STAGES, programs = choose_tiles(N, D, is_causal, window_size, few)
    at_launch, registers = registers_for(CONSUMERS, programs)
    PACK = math.gcd(group, MOST_PACKED) if window_size is not None else 1
    BLOCK_SINK = 16 if 0 < sink_size <= 16 else 0  # more than a few are tiles like all others
    rows, heads = ROWS.value // PACK, Hq // PACK * B
    query_tiles = triton.cdiv(N, CONSUMERS * rows)
    grid, heads_at_once = min(query_tiles * heads, multiprocessors * programs), 1
    if is_causal and window_size is None:  # rows differ in length
        heads_at_once = min(heads, max(1, int(L2_FOR_KEYS / (2 * N * D * q.element_size())) * group))
        grid = grid if N < LONG_CAUSAL else query_tiles * heads
    k_desc, v_desc = describe(k, 1, BLOCK_K), describe(v, 1, BLOCK_K)
    sinks = (describe(k, 1, BLOCK_SINK), describe(v, 1, BLOCK_SINK)) if BLOCK_SINK else (k_desc, v_desc)
    return Launch(
        fast_attention_kernel, grid,
        (describe(q, PACK, rows), k_desc, v_desc, describe(q, PACK, rows, contiguous=True), *sinks),
        (N, Hq, group, query_tiles * heads, query_tiles, heads_at_once, min(window_size or N, N), min(sink_size, N),
         LOG2_E / math.sqrt(D),
         D, BLOCK_K, BLOCK_SINK, PACK, CONSUMERS, STAGES, registers, is_causal, window_size is not None),
        {"num_warps": 4, "maxnreg": at_launch},
    )  # fmt: skip


LAUNCHES = Launches(prepare)


def flash_attention_forward(q, k, v, is_causal=True, window_size=None, sink_size=0):
    """Attention in one kernel launch on a Hopper GPU: full, causal, or causal with a sliding window and sinks.

    q: (B, Hq, N, D). k, v: (B, Hkv, N, D), Hq a multiple of Hkv. Last stride 1; float16 or bfloat16. A tensor whose
    start or strides are not multiples of 16 bytes is copied first.
    window_size: in tokens, the query's own included; None for no window. sink_size: in tokens, from the first one on.
    Returns o (B, Hq, N, D), contiguous, same dtype.
    Raises ValueError for arguments that do not fit.
    Method: "FlashAttention-3" (Shah et al., 2024), sections 3.1 and 3.2.
    """
    launch = LAUNCHES.find((q, k, v), is_causal, window_size, sink_size)
    if launch is None:
        return flash_attention_forward(aligned(q), aligned(k), aligned(v), is_causal, window_size, sink_size)
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    launch(q, k, v, o, k, v)
    return o
