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
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

HEAD_DIMS = (16, 32, 64, 128, 256)
DTYPES = {torch.float16: gl.float16, torch.bfloat16: gl.bfloat16}
LOG2_E = 1.4426950408889634
MOST_PACKED = 8  # heads that share a tile of queries: eight rows of each at the least
FOR_PRODUCER = gl.constexpr(24)  # registers of its threads
ROWS = gl.constexpr(64)  # of queries for one consumer: four warps, the height of one matrix instruction


# Rings of buffers: the producer fills, the consumers take and release -------------------------------------------------


@gluon.jit
def make_ring(desc, STAGES: gl.constexpr, READERS: gl.constexpr):
    """STAGES buffers for tiles of `desc`; for each a barrier "filled" and one "free", which READERS must reach."""
    tiles = gl.allocate_shared_memory(desc.dtype, [STAGES] + desc.block_shape, desc.layout)  # noqa: RUF005
    filled = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(filled.index(stage), count=1)
        mbarrier.init(free.index(stage), count=READERS)
    return tiles, filled, free


@gluon.jit
def fill(ring, desc, i, batch, head, row, STAGES: gl.constexpr):
    """Ask for the i-th tile, the rows from `row` on, once its buffer is free."""
    tiles, filled, free = ring
    stage = i % STAGES
    mbarrier.wait(free.index(stage), (i // STAGES & 1) ^ 1)  # a fresh barrier counts as passed
    mbarrier.expect(filled.index(stage), desc.block_type.nbytes)
    tma.async_copy_global_to_shared(desc, [batch, head, row, 0], filled.index(stage), tiles.index(stage))


@gluon.jit
def take(ring, i, SIZE: gl.constexpr, D: gl.constexpr, STAGES: gl.constexpr):
    """The i-th tile (SIZE, D) in shared memory, once it is there."""
    tiles, filled, _ = ring
    mbarrier.wait(filled.index(i % STAGES), i // STAGES & 1)
    return tiles.index(i % STAGES).reshape([SIZE, D])


@gluon.jit
def release(ring, i, STAGES: gl.constexpr):
    """This consumer has read the i-th tile."""
    _, _, free = ring
    mbarrier.arrive(free.index(i % STAGES), count=1)


@gluon.jit
def start_of(i, span, BLOCK_K: gl.constexpr):
    """The first key of tile i: backwards from the newest; after the window's tiles those of many sinks, forwards."""
    end, tiles, _, _, _, _ = span
    return gl.where(i < tiles, end - (i + 1) * BLOCK_K, (i - tiles) * BLOCK_K)


# The producer: one warp that asks for tiles ---------------------------------------------------------------------------


@gluon.jit
def produce(
    descs, rings, place, span,
    BLOCK_K: gl.constexpr, BLOCK_SINK: gl.constexpr, PACK: gl.constexpr, CONSUMERS: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Q for each consumer, then K and V from the newest tile to the oldest, each when it is needed; the sinks early."""
    q_desc, k_desc, v_desc, sink_k_desc, sink_v_desc = descs
    q_ring, k_ring, v_ring, sink_k_ring, sink_v_ring = rings
    batch, head, kv_head, q_start = place
    end, _, last, _, _, _ = span
    for consumer in gl.static_range(CONSUMERS):
        fill(q_ring, q_desc, consumer, batch, head, q_start + consumer * (ROWS // PACK), CONSUMERS)
    if BLOCK_SINK > 0:
        fill(sink_k_ring, sink_k_desc, 0, batch, kv_head, 0, 1)
    fill(k_ring, k_desc, 0, batch, kv_head, end - BLOCK_K, STAGES)
    if BLOCK_SINK > 0:
        fill(sink_v_ring, sink_v_desc, 0, batch, kv_head, 0, 1)
    for i in range(1, last):
        fill(k_ring, k_desc, i, batch, kv_head, start_of(i, span, BLOCK_K), STAGES)
        fill(v_ring, v_desc, i - 1, batch, kv_head, start_of(i - 1, span, BLOCK_K), STAGES)
    fill(v_ring, v_desc, last - 1, batch, kv_head, start_of(last - 1, span, BLOCK_K), STAGES)


# A consumer: four warps, 64 rows --------------------------------------------------------------------------------------


@gluon.jit
def softmax_step(scores, row_max, row_sum, qk_scale):
    """(p, alpha, new_max, row_sum): the probabilities of this tile, and what earlier tiles are rescaled by."""
    new_max = gl.maximum(row_max, gl.max(scores, 1) * qk_scale)
    # A row that has seen no key yet has the maximum -inf: its pivot must be finite, or exp2(-inf - -inf) is NaN.
    pivot = gl.where(new_max == float("-inf"), 0.0, new_max)
    alpha = gl.exp2(row_max - pivot)
    p = gl.exp2(scores * qk_scale - pivot[:, None])
    return p, alpha, new_max, row_sum * alpha + gl.sum(p, 1)


@gluon.jit
def hide_young(scores, q_pos, k_start, BLOCK_K: gl.constexpr, LAYOUT: gl.constexpr):
    """-inf for keys after the query: tiles on the diagonal."""
    k_pos = k_start + gl.arange(0, BLOCK_K, layout=gl.SliceLayout(0, LAYOUT))
    return gl.where(q_pos[:, None] >= k_pos[None, :], scores, float("-inf"))


@gluon.jit
def hide_old(
    scores, q_pos, k_start, window_size, sink_size, BLOCK_K: gl.constexpr, WINDOW: gl.constexpr, LAYOUT: gl.constexpr
):
    """-inf for keys that have left the window and are no sinks; the oldest tile may also begin before the first key."""
    k_pos = k_start + gl.arange(0, BLOCK_K, layout=gl.SliceLayout(0, LAYOUT))
    visible = (k_pos >= 0)[None, :]
    if WINDOW:
        visible = visible & ((q_pos[:, None] - k_pos[None, :] < window_size) | (k_pos < sink_size)[None, :])
    return gl.where(visible, scores, float("-inf"))


@gluon.jit
def hide_window(scores, k_start, sink_end, BLOCK_K: gl.constexpr, LAYOUT: gl.constexpr):
    """-inf for keys that are no sinks, or that one of the window's tiles has counted."""
    k_pos = k_start + gl.arange(0, BLOCK_K, layout=gl.SliceLayout(0, LAYOUT))
    return gl.where((k_pos < sink_end)[None, :], scores, float("-inf"))


@gluon.jit
def consume(
    state, consumer: gl.constexpr,
    D: gl.constexpr, BLOCK_K: gl.constexpr, BLOCK_SINK: gl.constexpr, PACK: gl.constexpr, CONSUMERS: gl.constexpr,
    STAGES: gl.constexpr, IS_CAUSAL: gl.constexpr, WINDOW: gl.constexpr,
):  # fmt: skip
    """The online softmax of 64 rows: PACK heads of 64 / PACK tokens each."""
    S: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_K, 16])  # where scores lie in registers
    O: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    P: gl.constexpr = gl.DotOperandLayout(0, O, 2)
    S_ROWS: gl.constexpr = gl.SliceLayout(1, S)
    O_ROWS: gl.constexpr = gl.SliceLayout(1, O)
    o_desc, rings, place, span, window_size, sink_size, qk_scale = state
    q_ring, k_ring, v_ring, sink_k_ring, sink_v_ring = rings
    batch, head, _, q_start = place
    end, tiles, last, diagonal, edge, sink_end = span

    first_row = q_start + consumer * (ROWS // PACK)
    q_pos = first_row + gl.arange(0, ROWS, layout=S_ROWS) % (ROWS // PACK)
    row_max = gl.full([ROWS], float("-inf"), gl.float32, S_ROWS)  # the paper's m, in base 2
    row_sum = gl.full([ROWS], 0.0, gl.float32, S_ROWS)  # the paper's l
    acc = gl.zeros([ROWS, D], gl.float32, O)
    no_scores = gl.zeros([ROWS, BLOCK_K], gl.float32, S)
    q = take(q_ring, consumer, ROWS, D, CONSUMERS)
    # Tile 0, and beside it a few sinks: their softmax under the product of tile 0, their product under its softmax.
    if BLOCK_SINK > 0:
        T: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_SINK, 16])
        T_ROWS: gl.constexpr = gl.SliceLayout(1, T)
        sink_k = take(sink_k_ring, 0, BLOCK_SINK, D, 1)
        no_sinks = gl.zeros([ROWS, BLOCK_SINK], gl.float32, T)
        sinks_later = warpgroup_mma(q, sink_k.permute((1, 0)), no_sinks, use_acc=False, is_async=True)
    k = take(k_ring, 0, BLOCK_K, D, STAGES)
    scores_later = warpgroup_mma(q, k.permute((1, 0)), no_scores, use_acc=False, is_async=True)
    if BLOCK_SINK > 0:
        sink_scores = warpgroup_mma_wait(1, [sinks_later])
        k_pos = gl.arange(0, BLOCK_SINK, layout=gl.SliceLayout(0, T))
        sink_scores = gl.where((k_pos < sink_end)[None, :], sink_scores, float("-inf"))
        none_max, none_sum = gl.convert_layout(row_max, T_ROWS), gl.convert_layout(row_sum, T_ROWS)
        sink_p, _, sink_max, sink_sum = softmax_step(sink_scores, none_max, none_sum, qk_scale)
        row_max, row_sum = gl.convert_layout(sink_max, S_ROWS), gl.convert_layout(sink_sum, S_ROWS)
        sink_v = take(sink_v_ring, 0, BLOCK_SINK, D, 1)
        acc_later = warpgroup_mma(gl.convert_layout(sink_p.to(o_desc.dtype), P), sink_v, acc, is_async=True)
        scores = warpgroup_mma_wait(1, [scores_later])
    else:
        scores = warpgroup_mma_wait(0, [scores_later])
    release(k_ring, 0, STAGES)
    if IS_CAUSAL:
        scores = hide_young(scores, q_pos, end - BLOCK_K, BLOCK_K, S)
    if edge <= 0:
        scores = hide_old(scores, q_pos, end - BLOCK_K, window_size, sink_size, BLOCK_K, WINDOW, S)
    p, alpha, row_max, row_sum = softmax_step(scores, row_max, row_sum, qk_scale)
    if BLOCK_SINK > 0:
        acc = warpgroup_mma_wait(0, [acc_later])
        acc = acc * gl.convert_layout(alpha, O_ROWS)[:, None]
    p = gl.convert_layout(p.to(o_desc.dtype), P)

    # Every other tile, its scores and softmax under the product of the tile before.
    for i in range(1, last):
        k = take(k_ring, i, BLOCK_K, D, STAGES)
        scores_later = warpgroup_mma(q, k.permute((1, 0)), no_scores, use_acc=False, is_async=True)
        v = take(v_ring, i - 1, BLOCK_K, D, STAGES)
        acc_later = warpgroup_mma(p, v, acc, is_async=True)
        scores = warpgroup_mma_wait(1, [scores_later])  # all but the newest product: p @ v goes on
        release(k_ring, i, STAGES)
        k_start = start_of(i, span, BLOCK_K)
        if i < diagonal:
            scores = hide_young(scores, q_pos, k_start, BLOCK_K, S)
        if (i >= edge) & (i < tiles):
            scores = hide_old(scores, q_pos, k_start, window_size, sink_size, BLOCK_K, WINDOW, S)
        if WINDOW:  # noqa: SIM102 (one is known at compile time, one is not)
            if i >= tiles:
                scores = hide_window(scores, k_start, sink_end, BLOCK_K, S)
        p_next, alpha, row_max, row_sum = softmax_step(scores, row_max, row_sum, qk_scale)
        acc = warpgroup_mma_wait(0, [acc_later])
        release(v_ring, i - 1, STAGES)
        acc = acc * gl.convert_layout(alpha, O_ROWS)[:, None]
        p = gl.convert_layout(p_next.to(o_desc.dtype), P)
    v = take(v_ring, last - 1, BLOCK_K, D, STAGES)
    acc = warpgroup_mma(p, v, acc)

    o = acc / gl.convert_layout(row_sum, O_ROWS)[:, None]
    q.store(o.to(o_desc.dtype))  # q is not needed any more: its buffer takes o on the way out
    fence_async_shared()
    tma.async_copy_shared_to_global(o_desc, [batch, head, first_row, 0], q_ring[0].index(consumer))
    tma.store_wait(0)


# One program: CONSUMERS x 64 rows of queries --------------------------------------------------------------------------


@gluon.jit
def fast_attention_kernel(
    q_desc, k_desc, v_desc, o_desc, sink_k_desc, sink_v_desc,
    N, Hq, group, query_tiles, window_size, sink_size, qk_scale,
    D: gl.constexpr, BLOCK_K: gl.constexpr, BLOCK_SINK: gl.constexpr, PACK: gl.constexpr, CONSUMERS: gl.constexpr,
    STAGES: gl.constexpr, REGISTERS: gl.constexpr, IS_CAUSAL: gl.constexpr, WINDOW: gl.constexpr,
):  # fmt: skip
    """Grid: (query tiles x heads / PACK x B); the longest rows of a head first, so that no long one is left over."""
    program = gl.program_id(0)
    heads = Hq // PACK
    tile = query_tiles - 1 - program % query_tiles
    batch = program // query_tiles // heads
    head = program // query_tiles % heads * PACK
    TOKENS: gl.constexpr = CONSUMERS * ROWS // PACK
    q_start = tile * TOKENS
    place = (batch, head, head // group, q_start)

    # Tile i holds the keys [end - (i + 1) * BLOCK_K, end - i * BLOCK_K).
    end, oldest, oldest_for_last = N, 0, 0
    if IS_CAUSAL:
        end = gl.minimum(q_start + TOKENS, N)
    if WINDOW:
        oldest = gl.maximum(0, q_start - window_size + 1)
        oldest_for_last = gl.maximum(0, end - window_size)
    tiles = gl.cdiv(end - oldest, BLOCK_K)
    diagonal = 0
    if IS_CAUSAL:
        diagonal = gl.cdiv(end - 1 - q_start, BLOCK_K)  # tiles that hold a key younger than the first query
    edge = (end - oldest_for_last) // BLOCK_K  # from here on tiles hold keys too old for the last query
    sink_end = gl.minimum(sink_size, gl.maximum(0, end - tiles * BLOCK_K))  # sinks before the window's tiles
    last = tiles
    if BLOCK_SINK == 0:
        last = tiles + gl.cdiv(sink_end, BLOCK_K)
    span = (end, tiles, last, diagonal, edge, sink_end)

    q_ring = make_ring(q_desc, CONSUMERS, 1)
    k_ring = make_ring(k_desc, STAGES, CONSUMERS)
    v_ring = make_ring(v_desc, STAGES, CONSUMERS)
    # No ring that nobody uses: the compiler gives its place to what it hands the producer, while a late warp may still
    # be initialising the barriers there.
    if BLOCK_SINK > 0:
        rings = (q_ring, k_ring, v_ring, make_ring(sink_k_desc, 1, CONSUMERS), make_ring(sink_v_desc, 1, CONSUMERS))
    else:
        rings = (q_ring, k_ring, v_ring, k_ring, v_ring)
    fence_async_shared()
    descs = (q_desc, k_desc, v_desc, sink_k_desc, sink_v_desc)
    state = (o_desc, rings, place, span, window_size, sink_size, qk_scale)
    gl.static_assert(CONSUMERS >= 1 and CONSUMERS <= 3)
    if CONSUMERS == 1:
        gl.warp_specialize(
            [
                (consume, (state, 0, D, BLOCK_K, BLOCK_SINK, PACK, CONSUMERS, STAGES, IS_CAUSAL, WINDOW)),
                (produce, (descs, rings, place, span, BLOCK_K, BLOCK_SINK, PACK, CONSUMERS, STAGES)),
            ],
            [1], [FOR_PRODUCER],
        )  # fmt: skip
    elif CONSUMERS == 2:
        gl.warp_specialize(
            [
                (consume, (state, 0, D, BLOCK_K, BLOCK_SINK, PACK, CONSUMERS, STAGES, IS_CAUSAL, WINDOW)),
                (consume, (state, 1, D, BLOCK_K, BLOCK_SINK, PACK, CONSUMERS, STAGES, IS_CAUSAL, WINDOW)),
                (produce, (descs, rings, place, span, BLOCK_K, BLOCK_SINK, PACK, CONSUMERS, STAGES)),
            ],
            [4, 1], [REGISTERS, FOR_PRODUCER],
        )  # fmt: skip
    else:
        gl.warp_specialize(
            [
                (consume, (state, 0, D, BLOCK_K, BLOCK_SINK, PACK, CONSUMERS, STAGES, IS_CAUSAL, WINDOW)),
                (consume, (state, 1, D, BLOCK_K, BLOCK_SINK, PACK, CONSUMERS, STAGES, IS_CAUSAL, WINDOW)),
                (consume, (state, 2, D, BLOCK_K, BLOCK_SINK, PACK, CONSUMERS, STAGES, IS_CAUSAL, WINDOW)),
                (produce, (descs, rings, place, span, BLOCK_K, BLOCK_SINK, PACK, CONSUMERS, STAGES)),
            ],
            [4, 4, 1], [REGISTERS, REGISTERS, FOR_PRODUCER],
        )  # fmt: skip


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


def registers_for(CONSUMERS, programs):
    """(registers of a thread at the launch, registers of a consumer's thread once the producer gave up its own)."""
    at_launch = 65536 // programs // (128 * (CONSUMERS + 1)) // 8 * 8
    return at_launch, (at_launch * (CONSUMERS + 1) - FOR_PRODUCER.value) // CONSUMERS // 8 * 8


def describe(tensor, heads, rows):
    """A tensor descriptor of (B, H, N, D) for tiles (1, heads, rows, D)."""
    block = [1, heads, rows, tensor.shape[3]]
    layout = gl.NVMMASharedLayout.get_default_for(block, DTYPES[tensor.dtype])
    # A dimension of size 1 may have any stride; the copy engine wants multiples of 16 bytes all the same.
    strides = [
        stride if size > 1 else tensor.shape[3] for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    ]
    return TensorDescriptor(tensor, list(tensor.shape), [*strides[:3], 1], block, layout)


def aligned(tensor):
    """The tensor, or a copy where the copy engine cannot read it: 16 bytes for its start and for every stride."""
    size = tensor.element_size()
    strides = [stride for length, stride in zip(tensor.shape[:3], tensor.stride(), strict=False) if length > 1]
    fits = tensor.data_ptr() % 16 == 0 and all(stride > 0 and stride * size % 16 == 0 for stride in strides)
    return tensor if fits else tensor.clone(memory_format=torch.contiguous_format)


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
