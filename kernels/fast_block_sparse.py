"""The fast form of X1: block-sparse attention on Hopper GPUs, with the producer and the consumers of fast_attention.py.

Read that file first. What is new is where the tiles come from, and what hides keys:

    units                tiles with sides of any multiple of 64 are taken apart into units of 64 x 64. Each program has
                         a list of the units in which its queries see something, those of which all is visible first
    groups               a program works on 64 queries, or on two neighbours of 64 that share each tile of K
                         and V: their list is the union of theirs, and each has words of its own
    pairs                64 keys are few for the matrix units: where two units fit, any two of a list fill one buffer,
                         wherever they lie. An odd one out is paired with one past the end, which is zeros
    words                what hides keys is one word for 32 keys of a row. They lie in the order of the list and are
                         asked for two steps before they are needed

One row of tiles, 64 x 64, and its list in steps of two

        the row         F . F P . F C .          step 0    F F    no mask
        its list        F F F P C                step 1    F P    words of ones | words of bits
                                                 step 2    C -    words of a triangle | words of zeros

Source: Shah et al., "FlashAttention-3", 2024, section 3.1; Dao et al., "FlashAttention", 2022, section 3.3.
"""

# Before you change this file, read the comment at the top of fast_attention.py, too:
# - A word for 32 keys hides them, whatever the kind of tile, and two instructions of inline assembly hide a score.
#   With `gl.where` each score would take a predicate register, of which a thread has seven.
# - `layout_of_words` is the matrix instruction's layout of scores, bit by bit, so that a thread holds the words of
#   its own scores. `assert_trivial` stops the compiler where the two do not agree; keep it.
# - One loop for steps with a mask and without: between two loops the products in flight would have to end, and the
#   body would be there twice. Steps without a mask come first.
# - A step that needs a mask has words for all of its units, so that a load asks one question. The consumers ask for
#   words two steps before they need them.
# - `begin` asks for Q and the first K before the warps specialize. A barrier that only `begin` uses is like a ring
#   without use: so Q, which comes once, has no barrier "empty".
# - A division for the record's address would come before everything else. So the grid's three dimensions give head
#   and group, and heads are divided by batches only if there are several.
# - If no unit of a list shows all, the last unit comes second: at a border of documents a row sees the first or the
#   last, so its pivot is known from the first step on.
# - A program with an empty list takes one step of keys past the end, which are zeros: the barriers have one story.
# - `do_not_specialize=SIZES`, all but `group`: otherwise Triton compiles again, for seconds, for each size that is 1
#   or a multiple of 16. A size that you add to the arguments belongs there.
# - A unit's code is 32 bits and counts 64 bits of the mask at a time, so 17 GB of them for all heads together;
#   `prepare_lists` refuses more. The largest tile of `tiles_on_gpu` follows from two counts in one integer.

import functools
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

from kernels.block_sparse_lists import SIZE, Prepared, prepare_lists
from kernels.fast_attention import LOG2_E
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
from kernels.hopper_launch import DTYPES, HEAD_DIMS, aligned, describe, registers_for
from solutions import x1_block_sparse

UNIT = gl.constexpr(SIZE)  # keys in a unit; it has as many queries
RECORD = gl.constexpr(8)  # integers in a record
L2_FOR_KEYS = 40e6  # bytes of K and V that programs may work on at a time: they shall stay in the L2 cache
MOST_BLOCKS = 65535  # a grid's size in its second and third dimension


@aggregate
class UnitList:
    """The units of keys that a program visits, in steps of one or two.

    Units, Words: where its units and the words of its first masked step lie. length: of the list; steps, masked: the
    number of steps, and the first in which a key is hidden. past: the unit one past the end of the keys. first: the
    units of the first two steps.
    """

    Units: gl.tensor
    Words: gl.tensor
    length: Scalar
    past: Scalar
    first: gl.tuple
    steps: Scalar
    masked: Scalar
    PARTS: gl.constexpr  # units in a step

    @gluon.jit
    def unit(self, i, part: gl.constexpr):
        """The unit of keys that is that part of step i; past the end of the list, one past the end of the keys."""
        place = i * self.PARTS + part
        return gl.load(self.Units + place, mask=place < self.length, other=self.past)


@aggregate
class Program:
    """What one program works with: where it stands, its list, its rings, the descriptors that fill them.

    q_tiles, q_full: Q of each consumer, and the barrier that says it has come. It comes once, so none says "empty".
    """

    q_desc: tma.tensor_descriptor
    k_desc: tma.tensor_descriptor
    v_desc: tma.tensor_descriptor
    k_pair_desc: tma.tensor_descriptor
    v_pair_desc: tma.tensor_descriptor
    o_desc: tma.tensor_descriptor
    q_tiles: gl.shared_memory_descriptor
    q_full: gl.shared_memory_descriptor
    k_ring: Ring
    v_ring: Ring
    batch: Scalar
    head: Scalar
    kv_head: Scalar
    q_start: Scalar
    Lse: gl.tensor  # of this head
    units: UnitList
    Nq: Scalar
    qk_scale: Scalar
    D: gl.constexpr
    STEP: gl.constexpr
    CONSUMERS: gl.constexpr


# The producer: it asks for the units of a list ------------------------------------------------------------------------


@gluon.jit
def load_step(ring, i, desc, pair_desc, batch, head, unit, other):
    """Ask for the i-th step's keys: `unit`, and `other` where two units make a step; at once if they are neighbours."""
    ring.acquire(i)
    if ring.tiles.shape[3] == UNIT:
        ring.commit(i, desc, batch, head, unit * UNIT)
    elif other == unit + 1:
        ring.commit(i, pair_desc, batch, head, unit * UNIT)
    else:
        ring.commit(i, desc, batch, head, unit * UNIT)
        ring.commit(i, desc, batch, head, other * UNIT, at=UNIT)


@gluon.jit
def begin(program):
    """Ask for Q of each consumer and K of the first step, before the warps are specialized, which takes a while."""
    batch, kv_head, units = program.batch, program.kv_head, program.units
    k_ring, k_desc, k_pair_desc = program.k_ring, program.k_desc, program.k_pair_desc
    unit, other, _, _ = units.first
    for consumer in gl.static_range(program.CONSUMERS):
        row = [batch, program.head, program.q_start + consumer * ROWS, 0]
        q, full = program.q_tiles.index(consumer), program.q_full.index(consumer)
        mbarrier.expect(full, program.q_desc.block_type.nbytes)
        tma.async_copy_global_to_shared(program.q_desc, row, full, q)
    load_step(k_ring, 0, k_desc, k_pair_desc, batch, kv_head, unit, other)


@gluon.jit
def produce(program):
    """K of each step but the first, and V of each, each when it is needed."""
    batch, kv_head, units = program.batch, program.kv_head, program.units
    k_ring, k_desc, k_pair_desc = program.k_ring, program.k_desc, program.k_pair_desc
    v_ring, v_desc, v_pair_desc = program.v_ring, program.v_desc, program.v_pair_desc
    unit, other, next_unit, next_other = units.first
    if units.PARTS == 1:
        next_unit = other
    for i in range(1, units.steps):
        before, other_before, unit, other = unit, other, next_unit, next_other
        # A step ahead, and not looked at before the next step: a load takes a while.
        next_unit, next_other = units.unit(i + 1, 0), units.unit(i + 1, 1)
        load_step(k_ring, i, k_desc, k_pair_desc, batch, kv_head, unit, other)
        load_step(v_ring, i - 1, v_desc, v_pair_desc, batch, kv_head, before, other_before)
    load_step(v_ring, units.steps - 1, v_desc, v_pair_desc, batch, kv_head, unit, other)


# What is hidden: words of 32 keys -------------------------------------------------------------------------------------


@gluon.jit
def load_words(program, i, row, part, half, consumer: gl.constexpr):
    """The words (64, STEP / 64, 2) of masked step i for the rows of this consumer: visible keys are ones."""
    units = program.units
    unit = ((i - units.masked) * units.PARTS + part) * program.CONSUMERS + consumer
    word = 2 * row[:, None, None] + half[None, None, :]
    return gl.load(units.Words + (unit * (2 * UNIT))[None, :, None] + word, mask=i < units.steps)


@gluon.constexpr_function
def layout_of_words(step):
    """(row, unit, half, byte, pair, one) as the scores of a matrix instruction lie in the threads of four warps."""
    unit = [[0, 1, 0, 0, 0, 0]] if step == 128 else []
    in_word = [[0, 0, 0, 0, 0, 1], [8, 0, 0, 0, 0, 0], [0, 0, 0, 1, 0, 0], [0, 0, 0, 2, 0, 0], [0, 0, 1, 0, 0, 0]]
    lanes = [[0, 0, 0, 0, 1, 0], [0, 0, 0, 0, 2, 0], [1, 0, 0, 0, 0, 0], [2, 0, 0, 0, 0, 0], [4, 0, 0, 0, 0, 0]]
    warps = [[16, 0, 0, 0, 0, 0], [32, 0, 0, 0, 0, 0]]
    return gl.DistributedLinearLayout(in_word + unit, lanes, warps, [], [64, step // 64, 2, 4, 4, 2])


@gluon.constexpr_function
def along(layout, *dims):
    """What is left of the layout (row, unit, half, byte, pair, one) for a tensor of these dimensions alone."""
    for dim in range(5, -1, -1):
        layout = layout if dim in dims else gl.SliceLayout(dim, layout)
    return layout


@gluon.jit
def word_mask(scores, words, STEP: gl.constexpr, W: gl.constexpr, S: gl.constexpr):
    """-inf where the bit is zero. W says where words lie so that each thread has those of its own scores."""
    byte, pair = gl.arange(0, 4, along(W, 3)), gl.arange(0, 4, along(W, 4))
    one = gl.arange(0, 2, along(W, 5))
    # Key 64 * unit + 32 * half + 8 * byte + 2 * pair + one: shifted so that its bit is the sign of its byte, of which
    # one instruction makes 32 ones or zeros, and another takes the score or -inf. The compiler's own way would be
    # predicates, of which there are seven: each score would wait for the one before.
    left = (7 - 2 * pair)[None, None, None, None, :, None] - one[None, None, None, None, None, :]
    shifted, selector = gl.broadcast(
        words[:, :, :, None, None, None] << left, ((byte + 8) * 0x1111)[None, None, None, :, None, None]
    )
    return gl.inline_asm_elementwise(
        "{.reg .b32 m; prmt.b32 m, $2, 0, $3; lop3.b32 $0, $1, m, 0xff800000, 0xe2;}",
        "=f,f,r,r",
        [
            scores,
            gl.convert_layout(shifted.reshape([ROWS, STEP]), S, assert_trivial=True),
            gl.convert_layout(selector.reshape([ROWS, STEP]), S, assert_trivial=True),
        ],
        dtype=gl.float32, is_pure=True, pack=1,
    )  # fmt: skip


# A consumer: four warps, 64 rows --------------------------------------------------------------------------------------


@gluon.jit
def consume(program, consumer: gl.constexpr):
    """The online softmax of 64 rows over the steps of a list."""
    STEP: gl.constexpr = program.STEP
    S: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, STEP, 16])  # where scores lie in registers
    O: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, program.D, 16])
    P: gl.constexpr = gl.DotOperandLayout(0, O, 2)
    W: gl.constexpr = layout_of_words(STEP)
    ROW: gl.constexpr = along(W, 0)
    PART: gl.constexpr = along(W, 1)
    HALF: gl.constexpr = along(W, 2)
    S_ROWS: gl.constexpr = gl.SliceLayout(1, S)
    O_ROWS: gl.constexpr = gl.SliceLayout(1, O)
    k_ring, v_ring, units, qk_scale = program.k_ring, program.v_ring, program.units, program.qk_scale
    dtype: gl.constexpr = program.o_desc.dtype

    row, part, half = gl.arange(0, ROWS, ROW), gl.arange(0, STEP // UNIT, PART), gl.arange(0, 2, HALF)
    words = load_words(program, units.masked, row, part, half, consumer)
    next_words = load_words(program, units.masked + 1, row, part, half, consumer)
    pivot = gl.full([ROWS], LOWEST, gl.float32, S_ROWS)  # in place of the paper's m, in base 2
    acc = gl.zeros([ROWS, program.D], gl.float32, O)
    no_scores = gl.zeros([ROWS, STEP], gl.float32, S)
    mbarrier.wait(program.q_full.index(consumer), 0)
    q = program.q_tiles.index(consumer).reshape([ROWS, program.D])
    k = k_ring.wait(0)  # (STEP, D)
    scores_later = warpgroup_mma(q, k.permute((1, 0)), no_scores, use_acc=False, is_async=True)
    scores = warpgroup_mma_wait(0, [scores_later])
    k_ring.release(0)
    if units.masked <= 0:
        scores = word_mask(scores, words, STEP, W, S)
        words, next_words = next_words, load_words(program, 2, row, part, half, consumer)
    pivot, _ = raise_pivot(scores, pivot, qk_scale)
    p, row_sums = exps(scores, pivot, qk_scale, P, dtype)  # row_sums: the paper's l, in parts

    # Every other step: its scores beside the product of the step before.
    last = units.steps - 1
    k, v = k_ring.wait(gl.minimum(1, last)), v_ring.wait(0)  # v: (STEP, D)
    for i in range(1, units.steps):
        scores_later = warpgroup_mma(q, k.permute((1, 0)), no_scores, use_acc=False, is_async=True)
        acc_later = warpgroup_mma(p, v, acc, is_async=True)
        scores = warpgroup_mma_wait(1, [scores_later])  # all but the newest product: p @ v goes on
        k_ring.release(i)
        if i >= units.masked:
            scores = word_mask(scores, words, STEP, W, S)
            words, next_words = next_words, load_words(program, i + 2, row, part, half, consumer)
        k, v = k_ring.wait(gl.minimum(i + 1, last)), v_ring.wait(i)
        acc = warpgroup_mma_wait(0, [acc_later])
        v_ring.release(i - 1)
        p, sums = exps(scores, pivot, qk_scale, P, dtype)
        if outgrown(sums):
            pivot, alpha = raise_pivot(scores, pivot, qk_scale)
            acc, row_sums = rescale(acc, row_sums, alpha)
            p, sums = exps(scores, pivot, qk_scale, P, dtype)
        row_sums += sums
    acc = warpgroup_mma(p, v, acc)
    row_sum = gl.convert_layout(gl.sum(row_sums, 1), S_ROWS)

    first_row = program.q_start + consumer * ROWS
    seen = row_sum > 0
    row_sum = gl.where(seen, row_sum, 1.0)
    o = acc * gl.convert_layout(1.0 / row_sum, O_ROWS)[:, None]  # a division for each element takes a while
    q.store(o.to(dtype))  # q is not needed any more: its buffer takes o on the way out
    fence_async_shared()
    o_rows = [program.batch, program.head, first_row, 0]
    tma.async_copy_shared_to_global(program.o_desc, o_rows, program.q_tiles.index(consumer))
    lse = gl.where(seen, pivot * 0.6931471805599453 + gl.log(row_sum), float("-inf"))
    q_pos = first_row + gl.arange(0, ROWS, S_ROWS)
    gl.store(program.Lse + q_pos, lse, mask=q_pos < program.Nq)
    tma.store_wait(0)


# One program: CONSUMERS x 64 rows of queries --------------------------------------------------------------------------

SIZES = ("Nq", "past", "Hq", "map_per_batch", "map_per_head", "folded")


# A division takes a while, and what waits for it too. One is left out for a single batch, the other where no heads
# share K and V, since `group` is then known to be 1.
@gluon.jit(do_not_specialize=SIZES, do_not_specialize_on_alignment=["group"])
def fast_block_sparse_kernel(
    q_desc, k_desc, v_desc, k_pair_desc, v_pair_desc, o_desc, Lse, Records, Units, Words,
    Nq, past, Hq, group, map_per_batch, map_per_head, folded, qk_scale,
    D: gl.constexpr, STEP: gl.constexpr, CONSUMERS: gl.constexpr, STAGES: gl.constexpr,
    REGISTERS: gl.constexpr, MANY_BATCHES: gl.constexpr,
):  # fmt: skip
    """Grid: (heads of a block, groups, blocks): the longest lists of a block's heads first, then those of the next."""
    of_all, place, groups = (
        gl.program_id(2) * gl.num_programs(0) + gl.program_id(0),
        gl.program_id(1),
        gl.num_programs(1),
    )
    if place >= folded:  # a single wave: the second program of a multiprocessor is short where the first is long
        place = groups - 1 - (place - folded)
    batch, head = 0, of_all
    if MANY_BATCHES:
        batch, head = of_all // Hq, of_all % Hq
    this_map = batch * map_per_batch + head * map_per_head
    Records += (this_map * groups + place) * RECORD
    this_group, unmasked = gl.load(Records), gl.load(Records + 1)
    length, first_words = gl.load(Records + 2), gl.load(Records + 3)
    PARTS: gl.constexpr = STEP // UNIT
    units = UnitList(
        Units=Units + (this_map * groups + this_group).to(gl.int64) * past,
        Words=Words + first_words.to(gl.int64) * (CONSUMERS * 2 * UNIT),
        length=length, past=past,
        first=(gl.load(Records + 4), gl.load(Records + 5), gl.load(Records + 6), gl.load(Records + 7)),
        steps=gl.maximum(gl.cdiv(length, PARTS), 1), masked=unmasked // PARTS, PARTS=PARTS,
    )  # fmt: skip
    q_full = gl.allocate_shared_memory(gl.int64, [CONSUMERS, 1], mbarrier.MBarrierLayout())
    for consumer in gl.static_range(CONSUMERS):
        mbarrier.init(q_full.index(consumer), count=1)
    program = Program(
        q_desc=q_desc, k_desc=k_desc, v_desc=v_desc, k_pair_desc=k_pair_desc, v_pair_desc=v_pair_desc, o_desc=o_desc,
        q_tiles=gl.allocate_shared_memory(q_desc.dtype, [CONSUMERS, 1, 1, ROWS, D], q_desc.layout), q_full=q_full,
        k_ring=make_ring(k_desc, STAGES, CONSUMERS, PARTS), v_ring=make_ring(v_desc, STAGES, CONSUMERS, PARTS),
        batch=batch, head=head, kv_head=head // group, q_start=this_group * (CONSUMERS * ROWS),
        Lse=Lse + of_all.to(gl.int64) * Nq, units=units, Nq=Nq, qk_scale=qk_scale,
        D=D, STEP=STEP, CONSUMERS=CONSUMERS,
    )  # fmt: skip
    fence_async_shared()
    begin(program)
    gl.static_assert(CONSUMERS == 1 or CONSUMERS == 2)
    gl.warp_specialize(
        ((consume, (program, 0)), (consume, (program, 1)))[:CONSUMERS] + ((produce, (program,)),),  # noqa: RUF005
        [4] * (CONSUMERS - 1) + [1],
        [REGISTERS] * (CONSUMERS - 1) + [FOR_PRODUCER],
    )


# Before the launch ----------------------------------------------------------------------------------------------------

# Keys in a step, consumers, stages, programs on a multiprocessor at a time: what was fastest on an H200. For 64 queries
# alone, and for neighbours that share K and V. Up to D = 64 no neighbours do: two small programs that hide each other's
# waits are faster.
ALONE = {16: (128, 1, 2, 2), 32: (128, 1, 2, 2), 64: (128, 1, 2, 2), 128: (64, 1, 2, 2), 256: (64, 1, 2, 1)}
TOGETHER = ALONE | {128: (128, 2, 2, 1), 256: (64, 2, 2, 1)}


def prepare(tiles, D):
    """Tiles as the kernel takes them for heads of D, a Prepared: made once for a mask, used in every layer.

    Raises ValueError for a D or for tiles that this kernel does not take.
    """
    if D not in HEAD_DIMS:
        raise ValueError(f"head dim must be one of {HEAD_DIMS}; got D={D}")
    return prepare_lists(tiles, D, TOGETHER[D][:2], ALONE[D][:2])


def choose_lists(prepared, heads, multiprocessors):
    """(lists, form): neighbours together where that wastes little and leaves programs enough; heads: of all batches."""
    together, alone = prepared.together, prepared.alone
    programs = together.records.shape[1] * heads
    use_together = together.cost <= 1.05 * alone.cost and programs >= 4 * multiprocessors
    return (together, TOGETHER[prepared.D]) if use_together else (alone, ALONE[prepared.D])


@functools.lru_cache(4096)
def blocks_of_heads(kv_heads, kv_bytes):
    """How many blocks of equal size, as few as can be so that K and V of a block stay in the L2 cache, else the most.

    kv_heads, kv_bytes: of all batches. Query heads that share K and V are in one block.
    """
    divisors = [count for count in range(1, min(kv_heads, MOST_BLOCKS) + 1) if kv_heads % count == 0]
    return next((count for count in divisors if kv_bytes <= L2_FOR_KEYS * count), divisors[-1])


def check_arguments(q, k, v, tiles, softmax_scale):
    """Raise ValueError, with the offending values in the text, unless the arguments are legal."""
    x1_block_sparse.check_arguments(q, k, v, tiles)
    if q.dtype not in DTYPES:
        raise ValueError(f"q, k and v must share one dtype of {(*DTYPES,)}; got {q.dtype}")
    if softmax_scale is not None and not softmax_scale > 0:
        raise ValueError(f"softmax_scale must be positive; got {softmax_scale}")
    if not q.is_cuda or torch.cuda.get_device_capability(q.device) != (9, 0):
        where = torch.cuda.get_device_capability(q.device) if q.is_cuda else q.device
        raise ValueError(f"this kernel is for Hopper GPUs (9, 0); got {where}")


def block_sparse_attention(q, k, v, tiles, softmax_scale=None):
    """Attention over the visible pairs of `tiles`, in one kernel launch on a Hopper GPU once they are prepared.

    q: (B, Hq, Nq, D). k, v: (B, Hkv, Nk, D), Hq a multiple of Hkv. Last stride 1; float16 or bfloat16. A tensor whose
    start or strides are not multiples of 16 bytes is copied first. tiles: x1's Tiles, or better what `prepare` made of
    them, which takes longer than a short sequence's attention. softmax_scale: positive; 1 / sqrt(D) by default.
    Returns o (B, Hq, Nq, D), contiguous, same dtype, and lse (B, Hq, Nq), float32; zeros and -inf where no key is
    visible. Raises ValueError for arguments that do not fit.
    Method: "FlashAttention-3" (Shah et al., 2024), section 3.1.
    """
    prepared = tiles if isinstance(tiles, Prepared) else None
    check_arguments(q, k, v, prepared.tiles if prepared else tiles, softmax_scale)
    if prepared and q.shape[3] != prepared.D:
        raise ValueError(f"the tiles were prepared for a head dim of {prepared.D}; q has {q.shape[3]}")
    prepared = prepared or prepare(tiles, q.shape[3])
    tiles = prepared.tiles
    multiprocessors = torch.cuda.get_device_properties(q.device).multi_processor_count
    q, k, v = aligned(q), aligned(k), aligned(v)
    B, Hq, Nq, D = q.shape
    Nk = k.shape[2]
    lists, (step, consumers, stages, programs) = choose_lists(prepared, Hq * B, multiprocessors)
    at_launch, registers = registers_for(consumers, programs)
    groups = lists.records.shape[1]
    blocks = blocks_of_heads(k.shape[1] * B, 2 * k.element_size() * k.numel())
    one_wave = blocks == 1 and multiprocessors < groups * Hq * B <= multiprocessors * programs
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(B, Hq, Nq, dtype=torch.float32, device=q.device)
    k_desc, v_desc = describe(k, 1, UNIT.value), describe(v, 1, UNIT.value)
    pairs = (describe(k, 1, step), describe(v, 1, step)) if step > UNIT.value else (k_desc, v_desc)
    fast_block_sparse_kernel[(Hq * B // blocks, groups, blocks)](
        describe(q, 1, ROWS.value), k_desc, v_desc, *pairs, describe(o, 1, ROWS.value),
        lse, lists.records, lists.units, lists.words,
        Nq, triton.cdiv(Nk, UNIT.value), Hq, Hq // k.shape[1],
        tiles.heads if tiles.batches > 1 else 0, 1 if tiles.heads > 1 else 0,
        multiprocessors // (Hq * B) if one_wave else groups,
        LOG2_E * (softmax_scale or 1 / math.sqrt(D)),
        D, step, consumers, stages, registers, B > 1,
        num_warps=4, maxnreg=at_launch,
    )  # fmt: skip
    return o, lse
