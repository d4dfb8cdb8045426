"""The fast form of P3 to P7: one kernel for Hopper GPUs that keeps their matrix units busy. No problem: read it last.

The plain kernels wait: for a tile, for scores, for the softmax. Here nothing waits that can be told not to:

    tensor descriptors   one thread asks the copy engine (TMA) for a whole tile; rows past the end come as zeros
    two kinds of warps   a producer only asks for tiles, consumers only compute: 64 rows of queries each, on the same
                         tiles of K and V; for each buffer one barrier says "filled", another says "free"
    overlap              products are asynchronous: one consumer's run while another is in its softmax
    a pivot that stays   the softmax looks for a row's maximum in its first tiles, later where sums say so (hopper.py)
    tile after tile      a program takes many tiles of queries: K of the next arrives while this one is stored
    an order of tiles    so that all programs end at about the same time (tile_plan.py)
    packed heads         under a window, the query heads that share K and V share a tile: fewer keys for each row

Tiles of keys are visited from the newest to the oldest: the diagonal, which needs a mask, the inside, which needs none,
the window's edge. The online softmax does not mind the order.

One program, 2 consumers, BLOCK_K = 64, a window. The numbers are the order; 'm' marks the tiles with a mask.

        key tile            oldest              newest
        rows of consumer 0  [4m] [3m] [ 2] [1m] [0m]        both consumers read the same tiles; up to 16 sinks are
        rows of consumer 1  [4m] [3m] [ 2] [1m] [0m]        a tile of their own beside tile 0, more come last

Gluon is the layer under Triton's language, where layouts, barriers and warps are in the programmer's hands. It has no
interpreter: this runs on Hopper GPUs (compute capability 9.0), and elsewhere in tests alone (`gluon_on_cpu/`).

Source: Shah et al., "FlashAttention-3", 2024, section 3.1 (a producer; one consumer's softmax beside products of the
others); Ainslie et al., "GQA", 2023, for the heads; Xiao et al., "Attention Sinks", 2023, section 3, for the mask.
"""

# Before you change this file:
# - Use every ring that you make. The compiler reuses the memory of a barrier that nobody waits for, also for what it
#   hands to the producer, and puts no barrier between the two: short programs then hang, now and then.
# - The number of registers follows from the consumers and the programs of a multiprocessor (`registers_for`). Masks
#   cost registers: the diagonal's and the edge's mask are apart, so that neither spills.
# - A program takes many tiles of queries and numbers the rings through them (`done`, `turn`): count loads and waits
#   alike on both sides. Wait twice for a barrier only while nobody can have filled its buffer twice more. `attend`
#   waits again for the last tile of K: the second tile of K of the next queries is loaded only after every consumer
#   has released Q.
# - A pivot may be any finite number as long as the sums stay below `MOST_BITS`. `LOWEST` is the pivot of rows that
#   have seen no key; an exponential of such a row is infinite or NaN, and both count as too great.
# - Keep in one block what most tiles run: a branch around the exponentials cost 3 to 6 % of the block-sparse form.
# - The compiler moves waits. Compare the machine code (`cuobjdump -sass`) before and after: no spilled register
#   (`LDL`, `STL`) in the inner loop, and at 128 keys about 330 instructions from one `BRA` back to the next.
# - A constant in an aggregate (`Program`, `Tile`, `Ring`) needs the annotation `gl.constexpr`; in a tuple for
#   `gl.warp_specialize` it would become a value of the run.
# - Tune `tile_plan.FORMS` with forms that take turns in a changing order (`grader/gpu/timing.py`): one card's clock
#   moves by more than most ideas bring.

import math

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from kernels.hopper import (
    FOR_PRODUCER,
    LOWEST,
    ROWS,
    Ring,
    Scalar,
    aggregate,
    exps,
    make_ring,
    outgrown,
    raise_pivot,
    rescale,
)
from kernels.hopper_launch import POINTER, Launch, Launches, aligned, check_tensors, describe, registers_for
from kernels.tile_plan import find_plan
from solutions.x3_backward import check_sink_logits

LOG2_E = 1.4426950408889634
MOST_PACKED = 8  # heads that share a tile of queries: eight rows of each at the least


@aggregate
class Tile:
    """A tile of queries, and the tiles of keys that it visits: the window's, newest first, then those of many sinks.

    end: one past the newest key. window_tiles: without those of sinks; count: with them. diagonal: tiles before this
    one hold keys after a query. edge: from this one on the window's tiles hold keys too old for a query. sink_end:
    sinks before this key are in no tile of the window.
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
    sink_k_desc: tma.tensor_descriptor | gl.constexpr  # None unless BLOCK_SINK > 0
    sink_v_desc: tma.tensor_descriptor | gl.constexpr
    q_ring: Ring
    k_ring: Ring
    v_ring: Ring
    sink_k_ring: Ring
    sink_v_ring: Ring
    o_tiles: gl.shared_memory_descriptor
    tiles: Scalar  # of queries, in all heads
    query_tiles: Scalar  # in one head
    heads_at_once: Scalar
    there_and_back: Scalar
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
    lse: gl.tensor  # (B, Hq, N) in float32, or any address unless STORE_LSE
    sink_logits: gl.tensor  # (Hq,) in float32, or any address unless SINK_LOGITS
    STORE_LSE: gl.constexpr
    SINK_LOGITS: gl.constexpr

    @gluon.jit
    def number(self, turn):
        """The tile of queries that this program takes in a turn: every P-th, in odd turns from the other end."""
        programs, place = gl.num_programs(0), gl.program_id(0)
        return turn * programs + gl.where(turn & self.there_and_back == 1, programs - 1 - place, place)

    @gluon.jit
    def turns(self):
        """How many tiles of queries this program takes."""
        whole = self.tiles // gl.num_programs(0)
        return whole + gl.where(self.number(whole) < self.tiles, 1, 0)


@gluon.jit
def find_tile(program, number):
    """Tile `number`: heads_at_once heads at a time (tile_plan.py), and of these the longest rows first."""
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
    if program.WINDOW:
        oldest = gl.maximum(0, q_start - program.window_size + 1)
        oldest_for_last = gl.maximum(0, end - program.window_size)
    else:  # whole tiles from the first key on: what is past the end is in the newest
        end = gl.cdiv(end, BLOCK_K) * BLOCK_K
    if program.IS_CAUSAL:
        diagonal = gl.cdiv(end - 1 - q_start, BLOCK_K)
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
    done = 0  # tiles of keys, before this tile of queries
    for turn in range(program.turns()):
        tile = find_tile(program, program.number(turn))
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
    in_window = q_pos[:, None] - k_pos[None, :] < program.window_size
    visible = (k_pos >= 0)[None, :] & (in_window | (k_pos < program.sink_size)[None, :])
    return gl.where(visible, scores, float("-inf"))


@gluon.jit
def end_mask(scores, k_start, end):
    """-inf for the keys from `end` on."""
    return gl.where((positions(scores, k_start) < end)[None, :], scores, float("-inf"))


@gluon.jit
def mask(scores, program, tile, i, q_pos):
    """The scores of tile i, -inf for hidden keys; where all are visible nothing is computed."""
    k_start = tile.start(i)
    if program.IS_CAUSAL:  # noqa: SIM102 (one is known at compile time, one is not)
        if i < tile.diagonal:
            scores = causal_mask(scores, q_pos, k_start)
    if program.WINDOW:
        if (i >= tile.edge) & (i < tile.window_tiles):
            scores = window_mask(scores, q_pos, k_start, program)
        if i >= tile.window_tiles:
            scores = end_mask(scores, k_start, tile.sink_end)  # sinks, unless one of the window's tiles has them
    return scores


@gluon.jit
def attend(program, tile, turn, done, consumer: gl.constexpr):
    """The online softmax of 64 rows, PACK heads of 64 / PACK tokens each: (acc, row_sum, pivot), not yet divided."""
    D: gl.constexpr = program.D
    BLOCK_K: gl.constexpr = program.BLOCK_K
    BLOCK_SINK: gl.constexpr = program.BLOCK_SINK
    TOKENS: gl.constexpr = ROWS // program.PACK
    LOOK_AHEAD: gl.constexpr = BLOCK_K < 128  # wait for the next K and V before this tile's softmax, or after it?
    S: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_K, 16])  # where scores lie in registers
    O: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    P: gl.constexpr = gl.DotOperandLayout(0, O, 2)
    S_ROWS: gl.constexpr = gl.SliceLayout(1, S)
    k_ring, v_ring, qk_scale = program.k_ring, program.v_ring, program.qk_scale
    last = tile.count - 1

    q_pos = tile.q_start + consumer * TOKENS + gl.arange(0, ROWS, layout=S_ROWS) % TOKENS
    pivot = gl.full([ROWS], LOWEST, gl.float32, S_ROWS)  # in place of the paper's m, in base 2
    acc = gl.zeros([ROWS, D], gl.float32, O)
    no_scores = gl.zeros([ROWS, BLOCK_K], gl.float32, S)
    q = program.q_ring.wait(turn * program.CONSUMERS + consumer)  # (64, D)
    # Tile 0, and beside it a few sinks: their softmax under the product of tile 0, their product under its softmax.
    if BLOCK_SINK > 0:
        T: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_SINK, 16])
        sink_k = program.sink_k_ring.wait(turn)
        no_sinks = gl.zeros([ROWS, BLOCK_SINK], gl.float32, T)
        sinks_later = warpgroup_mma(q, sink_k.permute((1, 0)), no_sinks, use_acc=False, is_async=True)
    k = k_ring.wait(done)  # (BLOCK_K, D)
    scores_later = warpgroup_mma(q, k.permute((1, 0)), no_scores, use_acc=False, is_async=True)
    if BLOCK_SINK > 0:
        sink_scores = end_mask(warpgroup_mma_wait(1, [sinks_later]), 0, tile.sink_end)
        program.sink_k_ring.release(turn)
        sink_pivot, _ = raise_pivot(sink_scores, gl.convert_layout(pivot, gl.SliceLayout(1, T)), qk_scale)
        sink_p, sink_sums = exps(sink_scores, sink_pivot, qk_scale, P, program.o_desc.dtype)
        pivot = gl.convert_layout(sink_pivot, S_ROWS)
        acc_later = warpgroup_mma(sink_p, program.sink_v_ring.wait(turn), acc, is_async=True)
        scores = warpgroup_mma_wait(1, [scores_later])
    else:
        scores = warpgroup_mma_wait(0, [scores_later])
    k_ring.release(done)
    if not program.IS_CAUSAL:
        scores = end_mask(scores, tile.start(0), program.N)
    scores = mask(scores, program, tile, 0, q_pos)
    pivot, alpha = raise_pivot(scores, pivot, qk_scale)
    p, row_sums = exps(scores, pivot, qk_scale, P, program.o_desc.dtype)  # row_sums: the paper's l, in parts
    if BLOCK_SINK > 0:
        acc = warpgroup_mma_wait(0, [acc_later])
        program.sink_v_ring.release(turn)
        acc, sink_sums = rescale(acc, sink_sums, alpha)
        row_sums += sink_sums
    sums = row_sums

    # Every other tile: its scores beside the product of the tile before, its softmax while other consumers multiply.
    if LOOK_AHEAD:
        k, v = k_ring.wait(done + gl.minimum(1, last)), v_ring.wait(done)
    for i in range(1, tile.count):
        if not LOOK_AHEAD:
            k = k_ring.wait(done + i)
        scores_later = warpgroup_mma(q, k.permute((1, 0)), no_scores, use_acc=False, is_async=True)
        if not LOOK_AHEAD:
            v = v_ring.wait(done + i - 1)  # (BLOCK_K, D)
        acc_later = warpgroup_mma(p, v, acc, is_async=True)
        scores = mask(warpgroup_mma_wait(1, [scores_later]), program, tile, i, q_pos)  # p @ v goes on
        k_ring.release(done + i)
        if LOOK_AHEAD:
            k, v = k_ring.wait(done + gl.minimum(i + 1, last)), v_ring.wait(done + i)
        acc = warpgroup_mma_wait(0, [acc_later])
        v_ring.release(done + i - 1)
        too_low = i <= tile.diagonal  # up to here a row may have seen no key: there is no pivot to try
        if i > tile.diagonal:
            p, sums = exps(scores, pivot, qk_scale, P, program.o_desc.dtype)
            too_low = outgrown(sums)
        if too_low:
            pivot, alpha = raise_pivot(scores, pivot, qk_scale)
            acc, row_sums = rescale(acc, row_sums, alpha)
            p, sums = exps(scores, pivot, qk_scale, P, program.o_desc.dtype)
        row_sums += sums
    if not LOOK_AHEAD:
        v = v_ring.wait(done + last)
    acc = warpgroup_mma(p, v, acc)
    v_ring.release(done + last)
    O_ROWS: gl.constexpr = gl.SliceLayout(1, O)
    return acc, gl.convert_layout(gl.sum(row_sums, 1), O_ROWS), gl.convert_layout(pivot, O_ROWS)


@gluon.jit
def find_lse(program, tile, consumer: gl.constexpr, row_sum, pivot):
    """lse in base 2 of 64 rows, learned sinks in it, and stored where it is asked for."""
    TOKENS: gl.constexpr = ROWS // program.PACK
    rows = gl.arange(0, ROWS, layout=row_sum.type.layout)
    heads, q_pos = tile.head + rows // TOKENS, tile.q_start + consumer * TOKENS + rows % TOKENS
    lse = pivot + gl.log2(row_sum)
    if program.SINK_LOGITS:
        sink = gl.load(program.sink_logits + heads) * 1.4426950408889634
        greater = gl.maximum(lse, sink)
        lse = greater + gl.log2(gl.exp2(lse - greater) + gl.exp2(sink - greater))
    if program.STORE_LSE:
        of_head = (tile.batch * program.Hq + heads).to(gl.int64) * program.N
        gl.store(program.lse + of_head + q_pos, lse * 0.6931471805599453, mask=q_pos < program.N)
    return lse


@gluon.jit
def consume(program, consumer: gl.constexpr):
    """64 rows of each tile of queries: attend, divide, store."""
    SHARED: gl.constexpr = program.D == 256  # no memory is left: o goes out through q's buffer
    done = 0
    for turn in range(program.turns()):
        tile = find_tile(program, program.number(turn))
        acc, row_sum, pivot = attend(program, tile, turn, done, consumer)
        part = 1.0 / row_sum
        if program.SINK_LOGITS or program.STORE_LSE:
            lse = find_lse(program, tile, consumer, row_sum, pivot)
            if program.SINK_LOGITS:
                part = gl.exp2(pivot - lse)
        o = (acc * part[:, None]).to(program.o_desc.dtype)
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
        done += tile.count
    tma.store_wait(0)


# One program: CONSUMERS x 64 rows of queries at a time ----------------------------------------------------------------


SIZES = ("N", "Hq", "group", "tiles", "query_tiles", "heads_at_once", "there_and_back", "window_size", "sink_size")


@gluon.jit(do_not_specialize=SIZES)  # one compiled kernel for all of them
def fast_attention_kernel(
    q_desc, k_desc, v_desc, o_desc, sink_k_desc, sink_v_desc, lse, sink_logits,
    N, Hq, group, tiles, query_tiles, heads_at_once, there_and_back, window_size, sink_size, qk_scale,
    D: gl.constexpr, BLOCK_K: gl.constexpr, BLOCK_SINK: gl.constexpr, PACK: gl.constexpr, CONSUMERS: gl.constexpr,
    STAGES: gl.constexpr, REGISTERS: gl.constexpr, IS_CAUSAL: gl.constexpr, WINDOW: gl.constexpr,
    STORE_LSE: gl.constexpr, SINK_LOGITS: gl.constexpr,
):  # fmt: skip
    """Grid: as many programs as the GPU holds, or one for each tile of queries."""
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
        tiles=tiles, query_tiles=query_tiles, heads_at_once=heads_at_once, there_and_back=there_and_back,
        Hq=Hq, group=group, N=N, window_size=window_size, sink_size=sink_size, qk_scale=qk_scale,
        D=D, BLOCK_K=BLOCK_K, BLOCK_SINK=BLOCK_SINK, PACK=PACK, CONSUMERS=CONSUMERS,
        IS_CAUSAL=IS_CAUSAL, WINDOW=WINDOW, lse=lse, sink_logits=sink_logits, STORE_LSE=STORE_LSE,
        SINK_LOGITS=SINK_LOGITS,
    )  # fmt: skip
    gl.warp_specialize(
        ((consume, (program, 0)), (consume, (program, 1)), (consume, (program, 2)),  # noqa: RUF005
         (consume, (program, 3)))[:CONSUMERS] + ((produce, (program,)),),
        [4] * (CONSUMERS - 1) + [1],
        [REGISTERS] * (CONSUMERS - 1) + [FOR_PRODUCER],
    )  # fmt: skip


# Before the launch ----------------------------------------------------------------------------------------------------


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


def prepare(q, k, v, is_causal, window_size, sink_size, lse=False, logits=False, form=None, most_packed=MOST_PACKED):
    """The Launch for tensors of these shapes and layouts; None where one must be copied. form: see find_plan.

    lse, logits: whether lse is asked for, whether there are learned sinks.
    """
    check_arguments(q, k, v, is_causal, window_size, sink_size)
    if any(aligned(x) is not x for x in (q, k, v)):
        return None
    B, Hq, N, D = q.shape
    group, multiprocessors = Hq // k.shape[1], torch.cuda.get_device_properties(q.device).multi_processor_count
    PACK = math.gcd(group, most_packed) if window_size is not None else 1
    BLOCK_SINK = 16 if 0 < sink_size <= 16 else 0  # more than a few are tiles like all others
    rows, heads = ROWS.value // PACK, Hq // PACK * B
    sinks = 0 if BLOCK_SINK else sink_size
    plan = find_plan(q, group // PACK, rows, heads, is_causal, window_size, sinks, multiprocessors, form)
    BLOCK_K, CONSUMERS, STAGES, programs = plan.form
    at_launch, registers = registers_for(CONSUMERS, programs)
    sink_descs = (describe(k, 1, BLOCK_SINK), describe(v, 1, BLOCK_SINK)) if BLOCK_SINK else (None, None)
    return Launch(
        fast_attention_kernel, (plan.programs, 1, 1),
        (describe(q, PACK, rows), describe(k, 1, BLOCK_K), describe(v, 1, BLOCK_K),
         describe(q, PACK, rows, contiguous=True), *sink_descs, POINTER, POINTER),
        (N, Hq, group, plan.query_tiles * heads, plan.query_tiles, plan.heads_at_once, int(plan.there_and_back),
         min(window_size or N, N), min(sink_size, N), LOG2_E / math.sqrt(D),
         D, BLOCK_K, BLOCK_SINK, PACK, CONSUMERS, STAGES, registers, is_causal, window_size is not None,
         lse, logits),
        {"num_warps": 4, "maxnreg": at_launch},
    )  # fmt: skip


LAUNCHES = Launches(prepare)


def flash_attention_forward(q, k, v, is_causal=True, window_size=None, sink_size=0, sink_logits=None, with_lse=False):
    """Attention in one kernel launch on a Hopper GPU: full, causal, or causal with a sliding window and sinks.

    q: (B, Hq, N, D). k, v: (B, Hkv, N, D), Hq a multiple of Hkv. Last stride 1; float16 or bfloat16. A tensor whose
    start or strides are not multiples of 16 bytes is copied first.
    window_size: in tokens, the query's own included; None for no window. sink_size: in tokens, from the first one on.
    sink_logits: (Hq,), float32, or None: learned sinks; exp(sink_logits) joins the sum of exponentials of each row.
    Returns o (B, Hq, N, D), contiguous, same dtype; with_lse: also lse (B, Hq, N), float32, natural logarithm.
    Raises ValueError for arguments that do not fit.
    Method: "FlashAttention-3" (Shah et al., 2024), section 3.1.
    """
    told = is_causal, window_size, sink_size
    launch = LAUNCHES.find((q, k, v), *told, with_lse, sink_logits is not None)
    if sink_logits is not None:
        check_sink_logits(sink_logits, q)
    if launch is None:
        check_arguments(q, k, v, *told)  # of these, not of their copies
        return flash_attention_forward(aligned(q), aligned(k), aligned(v), *told, sink_logits, with_lse)
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device) if with_lse else None
    launch(q, k, v, o, k, v, o if lse is None else lse, o if sink_logits is None else sink_logits)
    return (o, lse) if with_lse else o
