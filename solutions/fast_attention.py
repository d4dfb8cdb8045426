"""The fast form of P3 to P7: one kernel for Hopper GPUs that keeps their matrix units busy. No problem: read it last.

The plain kernels of P3 to P7 wait: for a tile to arrive, for the scores, for the softmax. Here nothing waits that can
be told not to, and the mask's arithmetic stays what it was. Four ideas, each on top of the one before:

    tensor descriptors   one thread asks the copy engine (TMA) for a whole tile; rows past the end come as zeros
    two kinds of warps   a producer only asks for tiles, consumers only compute: 64 rows of queries each, on the same
                         tiles of K and V; for each buffer one barrier says "filled", another says "free"
    overlap              products are asynchronous: while one tile's p meets V, the next tile's softmax runs
    packed heads         under a window, the query heads that share K and V share a tile: fewer keys for each row

Tiles of keys are visited from the newest to the oldest: first the diagonal, which needs a mask, then the inside, which
needs none, then the window's edge. The online softmax does not mind the order.

One program, 2 consumers, BLOCK_K = 64, a window. The numbers are the order; 'm' marks the tiles with a mask.

        key tile            oldest              newest
        rows of consumer 0  [4m] [ 3] [ 2] [1m] [0m]        both consumers read the same tiles; up to 16 sinks are
        rows of consumer 1  [4m] [ 3] [ 2] [1m] [0m]        a tile of their own beside tile 0, more come last

It is written in Gluon, the layer under Triton's language where layouts, barriers and warps are in the programmer's
hands. It has no interpreter: it runs on Hopper GPUs (compute capability 9.0) only.

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
    DTYPES,
    FOR_PRODUCER,
    ROWS,
    Ring,
    Scalar,
    aggregate,
    aligned,
    describe,
    make_ring,
    registers_for,
    softmax_step,
)

HEAD_DIMS = (16, 32, 64, 128, 256)
LOG2_E = 1.4426950408889634
MOST_PACKED = 8  # heads that share a tile of queries: eight rows of each at the least


@aggregate
class KeyTiles:
    """The tiles of keys that a program visits: the window's from the newest to the oldest, then those of many sinks.

    end: one past the newest key. window_tiles: without those of sinks; count: with them. diagonal: tiles before this
    one hold keys after a query. edge: from this one on the window's tiles hold keys too old for a query. sink_end:
    where sinks begin that the window's tiles hold.
    """

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
    """What one program works with: where it stands, its rings, the descriptors that fill them, its mask."""

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
    batch: Scalar
    head: Scalar
    kv_head: Scalar
    q_start: Scalar
    keys: KeyTiles
    window_size: Scalar
    sink_size: Scalar
    qk_scale: Scalar
    D: gl.constexpr
    BLOCK_K: gl.constexpr
    BLOCK_SINK: gl.constexpr
    TOKENS: gl.constexpr  # of a consumer: its 64 rows are those of PACK heads
    CONSUMERS: gl.constexpr
    IS_CAUSAL: gl.constexpr
    WINDOW: gl.constexpr


# The producer: one warp that asks for tiles ---------------------------------------------------------------------------


@gluon.jit
def produce(program):
    """Q for each consumer, then K and V from the newest tile to the oldest, each when it is needed; the sinks early."""
    batch, kv_head, keys = program.batch, program.kv_head, program.keys
    k_ring, v_ring, k_desc, v_desc = program.k_ring, program.v_ring, program.k_desc, program.v_desc
    for consumer in gl.static_range(program.CONSUMERS):
        row = program.q_start + consumer * program.TOKENS
        program.q_ring.load(consumer, program.q_desc, batch, program.head, row)
    if program.BLOCK_SINK > 0:
        program.sink_k_ring.load(0, program.sink_k_desc, batch, kv_head, 0)
    k_ring.load(0, k_desc, batch, kv_head, keys.end - program.BLOCK_K)
    if program.BLOCK_SINK > 0:
        program.sink_v_ring.load(0, program.sink_v_desc, batch, kv_head, 0)
    for i in range(1, keys.count):
        k_ring.load(i, k_desc, batch, kv_head, keys.start(i))
        v_ring.load(i - 1, v_desc, batch, kv_head, keys.start(i - 1))
    v_ring.load(keys.count - 1, v_desc, batch, kv_head, keys.start(keys.count - 1))


# A consumer: four warps, 64 rows --------------------------------------------------------------------------------------


# The positions of keys are computed where a mask needs them and not before: else every tile would take the mask.


@gluon.jit
def positions(scores, k_start):
    """Of the keys that the columns of `scores` belong to."""
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
def sink_mask(scores, k_start, program):
    """-inf for keys that are no sinks, or that one of the window's tiles has counted."""
    return gl.where((positions(scores, k_start) < program.keys.sink_end)[None, :], scores, float("-inf"))


@gluon.jit
def consume(program, consumer: gl.constexpr):
    """The online softmax of 64 rows: PACK heads of 64 / PACK tokens each."""
    D: gl.constexpr = program.D
    BLOCK_K: gl.constexpr = program.BLOCK_K
    BLOCK_SINK: gl.constexpr = program.BLOCK_SINK
    S: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_K, 16])  # where scores lie in registers
    O: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    P: gl.constexpr = gl.DotOperandLayout(0, O, 2)
    S_ROWS: gl.constexpr = gl.SliceLayout(1, S)
    O_ROWS: gl.constexpr = gl.SliceLayout(1, O)
    k_ring, v_ring, keys, qk_scale = program.k_ring, program.v_ring, program.keys, program.qk_scale
    dtype: gl.constexpr = program.o_desc.dtype

    first_row = program.q_start + consumer * program.TOKENS
    q_pos = first_row + gl.arange(0, ROWS, layout=S_ROWS) % program.TOKENS
    row_max = gl.full([ROWS], float("-inf"), gl.float32, S_ROWS)  # the paper's m, in base 2
    row_sum = gl.full([ROWS], 0.0, gl.float32, S_ROWS)  # the paper's l
    acc = gl.zeros([ROWS, D], gl.float32, O)
    no_scores = gl.zeros([ROWS, BLOCK_K], gl.float32, S)
    q = program.q_ring.wait(consumer)  # (64, D)
    # Tile 0, and beside it a few sinks: their softmax under the product of tile 0, their product under its softmax.
    if BLOCK_SINK > 0:
        T: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_SINK, 16])
        T_ROWS: gl.constexpr = gl.SliceLayout(1, T)
        sink_k = program.sink_k_ring.wait(0)
        no_sinks = gl.zeros([ROWS, BLOCK_SINK], gl.float32, T)
        sinks_later = warpgroup_mma(q, sink_k.permute((1, 0)), no_sinks, use_acc=False, is_async=True)
    k = k_ring.wait(0)  # (BLOCK_K, D)
    scores_later = warpgroup_mma(q, k.permute((1, 0)), no_scores, use_acc=False, is_async=True)
    if BLOCK_SINK > 0:
        sink_scores = warpgroup_mma_wait(1, [sinks_later])
        sink_scores = sink_mask(sink_scores, 0, program)
        none_max, none_sum = gl.convert_layout(row_max, T_ROWS), gl.convert_layout(row_sum, T_ROWS)
        sink_p, _, sink_max, sink_sum = softmax_step(sink_scores, none_max, none_sum, qk_scale)
        row_max, row_sum = gl.convert_layout(sink_max, S_ROWS), gl.convert_layout(sink_sum, S_ROWS)
        sink_v = program.sink_v_ring.wait(0)
        acc_later = warpgroup_mma(gl.convert_layout(sink_p.to(dtype), P), sink_v, acc, is_async=True)
        scores = warpgroup_mma_wait(1, [scores_later])
    else:
        scores = warpgroup_mma_wait(0, [scores_later])
    k_ring.release(0)
    k_start = keys.end - BLOCK_K
    if program.IS_CAUSAL:
        scores = causal_mask(scores, q_pos, k_start)
    if keys.edge <= 0:
        scores = window_mask(scores, q_pos, k_start, program)
    p, alpha, row_max, row_sum = softmax_step(scores, row_max, row_sum, qk_scale)
    if BLOCK_SINK > 0:
        acc = warpgroup_mma_wait(0, [acc_later])
        acc = acc * gl.convert_layout(alpha, O_ROWS)[:, None]
    p = gl.convert_layout(p.to(dtype), P)

    # Every other tile, its scores and softmax under the product of the tile before.
    for i in range(1, keys.count):
        k = k_ring.wait(i)
        scores_later = warpgroup_mma(q, k.permute((1, 0)), no_scores, use_acc=False, is_async=True)
        v = v_ring.wait(i - 1)  # (BLOCK_K, D)
        acc_later = warpgroup_mma(p, v, acc, is_async=True)
        scores = warpgroup_mma_wait(1, [scores_later])  # all but the newest product: p @ v goes on
        k_ring.release(i)
        k_start = keys.start(i)
        if i < keys.diagonal:
            scores = causal_mask(scores, q_pos, k_start)
        if (i >= keys.edge) & (i < keys.window_tiles):
            scores = window_mask(scores, q_pos, k_start, program)
        if program.WINDOW:  # noqa: SIM102 (one is known at compile time, one is not)
            if i >= keys.window_tiles:
                scores = sink_mask(scores, k_start, program)
        p_next, alpha, row_max, row_sum = softmax_step(scores, row_max, row_sum, qk_scale)
        acc = warpgroup_mma_wait(0, [acc_later])
        v_ring.release(i - 1)
        acc = acc * gl.convert_layout(alpha, O_ROWS)[:, None]
        p = gl.convert_layout(p_next.to(dtype), P)
    v = v_ring.wait(keys.count - 1)
    acc = warpgroup_mma(p, v, acc)

    o = acc / gl.convert_layout(row_sum, O_ROWS)[:, None]
    q.store(o.to(dtype))  # q is not needed any more: its buffer takes o on the way out
    fence_async_shared()
    o_rows = [program.batch, program.head, first_row, 0]
    tma.async_copy_shared_to_global(program.o_desc, o_rows, program.q_ring.tiles.index(consumer))
    tma.store_wait(0)


# One program: CONSUMERS x 64 rows of queries --------------------------------------------------------------------------


@gluon.jit
def find_key_tiles(
    q_start, N, window_size, sink_size, TOKENS: gl.constexpr,
    BLOCK_K: gl.constexpr, BLOCK_SINK: gl.constexpr, IS_CAUSAL: gl.constexpr, WINDOW: gl.constexpr,
):  # fmt: skip
    """The KeyTiles of TOKENS queries."""
    end, oldest, oldest_for_last, diagonal = N, 0, 0, 0
    if IS_CAUSAL:
        end = gl.minimum(q_start + TOKENS, N)
        diagonal = gl.cdiv(end - 1 - q_start, BLOCK_K)
    if WINDOW:
        oldest = gl.maximum(0, q_start - window_size + 1)
        oldest_for_last = gl.maximum(0, end - window_size)
    window_tiles = gl.cdiv(end - oldest, BLOCK_K)
    sink_end = gl.minimum(sink_size, gl.maximum(0, end - window_tiles * BLOCK_K))
    count = window_tiles
    if BLOCK_SINK == 0:
        count = window_tiles + gl.cdiv(sink_end, BLOCK_K)
    return KeyTiles(
        end=end, window_tiles=window_tiles, count=count, diagonal=diagonal, edge=(end - oldest_for_last) // BLOCK_K,
        sink_end=sink_end, BLOCK_K=BLOCK_K,
    )  # fmt: skip


@gluon.jit
def fast_attention_kernel(
    q_desc, k_desc, v_desc, o_desc, sink_k_desc, sink_v_desc,
    N, Hq, group, query_tiles, window_size, sink_size, qk_scale,
    D: gl.constexpr, BLOCK_K: gl.constexpr, BLOCK_SINK: gl.constexpr, PACK: gl.constexpr, CONSUMERS: gl.constexpr,
    STAGES: gl.constexpr, REGISTERS: gl.constexpr, IS_CAUSAL: gl.constexpr, WINDOW: gl.constexpr,
):  # fmt: skip
    """Grid: (query tiles x heads / PACK x B); the longest rows of a head first, so that no long one is left over."""
    number, heads = gl.program_id(0), Hq // PACK
    TOKENS: gl.constexpr = ROWS // PACK  # of one consumer
    q_start = (query_tiles - 1 - number % query_tiles) * (CONSUMERS * TOKENS)
    head = number // query_tiles % heads * PACK
    keys = find_key_tiles(
        q_start, N, window_size, sink_size, CONSUMERS * TOKENS, BLOCK_K, BLOCK_SINK, IS_CAUSAL, WINDOW
    )
    q_ring = make_ring(q_desc, CONSUMERS, 1)
    k_ring = make_ring(k_desc, STAGES, CONSUMERS)
    v_ring = make_ring(v_desc, STAGES, CONSUMERS)
    # No ring that nobody uses: the compiler gives its place to what it hands the producer, while a late warp may still
    # be initialising the barriers there.
    sink_k_ring, sink_v_ring = k_ring, v_ring
    if BLOCK_SINK > 0:
        sink_k_ring = make_ring(sink_k_desc, 1, CONSUMERS)
        sink_v_ring = make_ring(sink_v_desc, 1, CONSUMERS)
    fence_async_shared()
    program = Program(
        q_desc=q_desc, k_desc=k_desc, v_desc=v_desc, o_desc=o_desc, sink_k_desc=sink_k_desc, sink_v_desc=sink_v_desc,
        q_ring=q_ring, k_ring=k_ring, v_ring=v_ring, sink_k_ring=sink_k_ring, sink_v_ring=sink_v_ring,
        batch=number // query_tiles // heads, head=head, kv_head=head // group, q_start=q_start, keys=keys,
        window_size=window_size, sink_size=sink_size, qk_scale=qk_scale,
        D=D, BLOCK_K=BLOCK_K, BLOCK_SINK=BLOCK_SINK, TOKENS=TOKENS, CONSUMERS=CONSUMERS,
        IS_CAUSAL=IS_CAUSAL, WINDOW=WINDOW,
    )  # fmt: skip
    gl.static_assert(CONSUMERS >= 1 and CONSUMERS <= 3)
    gl.warp_specialize(
        ((consume, (program, 0)), (consume, (program, 1)), (consume, (program, 2)))[:CONSUMERS]  # noqa: RUF005
        + ((produce, (program,)),),
        [4] * (CONSUMERS - 1) + [1],
        [REGISTERS] * (CONSUMERS - 1) + [FOR_PRODUCER],
    )


# (BLOCK_K, CONSUMERS, STAGES, programs on a multiprocessor at a time), tuned on an H200. Long rows want many consumers
# that share K and V; short ones several small programs, so that one computes while another begins or ends.
LONG = {16: (128, 3, 2, 1), 32: (128, 3, 2, 1), 64: (128, 3, 2, 1), 128: (128, 2, 2, 1), 256: (64, 2, 2, 1)}
MIDDLE = LONG | {64: (64, 3, 3, 1), 128: (64, 3, 3, 1)}  # windows
SHORT = LONG | {16: (64, 1, 2, 3), 32: (64, 1, 2, 3), 64: (64, 1, 2, 3), 128: (64, 1, 2, 2)}
SHORT_KEYS = {16: 2047, 32: 2047, 64: 2047, 128: 512, 256: 0}  # up to which a row is short


def choose_tiles(N, D, is_causal, window_size):
    """BLOCK_K, CONSUMERS, STAGES and programs on a multiprocessor: what was fastest for rows of this length."""
    if window_size is not None and window_size < N:
        return (SHORT if window_size <= 256 else MIDDLE if window_size < 4096 else LONG)[D]
    keys = N // 2 if is_causal else N  # that a query sees on average
    return (SHORT if keys <= SHORT_KEYS[D] else LONG)[D]


def check_arguments(q, k, v, is_causal, window_size, sink_size):
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
        raise ValueError(f"q, k and v must share one dtype of {(*DTYPES,)}; got {q.dtype}, {k.dtype}, {v.dtype}")
    if not q.device == k.device == v.device or not q.is_cuda:
        raise ValueError(f"q, k and v must be on one GPU; got {q.device}, {k.device}, {v.device}")
    if torch.cuda.get_device_capability(q.device) != (9, 0):
        raise ValueError(f"this kernel is for Hopper GPUs (9, 0); got {torch.cuda.get_device_capability(q.device)}")
    if not q.stride(3) == k.stride(3) == v.stride(3) == 1:
        raise ValueError(f"the last stride must be 1; got q {q.stride()}, k {k.stride()}, v {v.stride()}")
    if window_size is None and sink_size:
        raise ValueError(f"sinks need a window; got sink_size={sink_size}, window_size=None")
    if window_size is not None and not is_causal:
        raise ValueError(f"a sliding window looks back only; got is_causal={is_causal}")
    if window_size is not None and window_size < 1:
        raise ValueError(f"window_size must be at least 1; got window_size={window_size}")
    if sink_size < 0:
        raise ValueError(f"sink_size must not be negative; got sink_size={sink_size}")


def flash_attention_forward(q, k, v, is_causal=True, window_size=None, sink_size=0):
    """Attention in one kernel launch on a Hopper GPU: full, causal, or causal with a sliding window and sinks.

    q: (B, Hq, N, D). k, v: (B, Hkv, N, D), Hq a multiple of Hkv. Last stride 1; float16 or bfloat16. A tensor whose
    start or strides are not multiples of 16 bytes is copied first.
    window_size: in tokens, the query's own included; None for no window. sink_size: in tokens, from the first one on.
    Returns o (B, Hq, N, D), contiguous, same dtype.
    Raises ValueError for arguments that do not fit.
    Method: "FlashAttention-3" (Shah et al., 2024), sections 3.1 and 3.2.
    """
    check_arguments(q, k, v, is_causal, window_size, sink_size)
    q, k, v = aligned(q), aligned(k), aligned(v)
    B, Hq, N, D = q.shape
    group = Hq // k.shape[1]
    BLOCK_K, CONSUMERS, STAGES, programs = choose_tiles(N, D, is_causal, window_size)
    at_launch, registers = registers_for(CONSUMERS, programs)
    PACK = math.gcd(group, MOST_PACKED) if window_size is not None else 1
    BLOCK_SINK = 16 if 0 < sink_size <= 16 else 0  # more than a few are tiles like all others
    rows = ROWS.value // PACK
    query_tiles = triton.cdiv(N, CONSUMERS * rows)
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    k_desc, v_desc = describe(k, 1, BLOCK_K), describe(v, 1, BLOCK_K)
    sinks = (describe(k, 1, BLOCK_SINK), describe(v, 1, BLOCK_SINK)) if BLOCK_SINK else (k_desc, v_desc)
    fast_attention_kernel[(query_tiles * (Hq // PACK) * B,)](
        describe(q, PACK, rows), k_desc, v_desc, describe(o, PACK, rows), *sinks,
        N, Hq, group, query_tiles, min(window_size or N, N), min(sink_size, N), LOG2_E / math.sqrt(D),
        D, BLOCK_K, BLOCK_SINK, PACK, CONSUMERS, STAGES, registers, is_causal, window_size is not None,
        num_warps=4, maxnreg=at_launch,
    )  # fmt: skip
    return o
