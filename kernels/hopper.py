"""What the kernels of the fast forms share: rings of buffers in shared memory, and a softmax without a maximum.

A ring is a few buffers, each for one tile. The producer fills them and the consumers read them, and nobody waits for
anything but the buffer that is next:

    producer   acquire   wait until every consumer has released the buffer of tile i
               commit    ask the copy engine for the tile; the buffer's barrier counts the bytes that arrive
    consumer   wait      the tile, once all of its bytes are there
               release   this consumer has read it

Tile i takes buffer i % STAGES. The producer's warp only asks for tiles and needs few registers: it hands the others to
the consumers.

The softmax subtracts a pivot from the scores of a row before the exponential. In P2 that is the greatest score so far;
to find it costs an instruction for each score and an exchange between threads, before the first exponential can start.
But a pivot may be lower, as long as the exponentials stay in float16's range; only far above a row's scores it must not
be, or all of them become 0. Here it is the greatest score of a row's first tiles, so one of the row's own, and stays
until the sums, which are needed anyway, say that it is too low. That is rare:

    most tiles          p = 2^(s - pivot); sums of p; all small enough?
    where not all are   pivot = max(pivot, s); acc and the sums of before, times 2^(old - new); p = 2^(s - pivot)

Source: NVIDIA's CUTLASS, "Pipeline", for the four names; Shah et al., "FlashAttention-3", 2024, section 3.1; Hong et
al., "FlashDecoding++", 2023, section 3, for a pivot that is not the maximum, and doing again what it is too low for.
"""

from triton._C.libtriton import ir
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language._core import builtin
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.language.core import _aggregate

FOR_PRODUCER = gl.constexpr(24)  # registers of its threads
ROWS = gl.constexpr(64)  # of one consumer (queries, or keys): four warps, the height of one matrix instruction
Scalar = gl.tensor | gl.constexpr  # a number that is known at compile time is no tensor
# The pivot of rows that have seen no key, below all scores and finite: 2^(s - LOWEST) is infinite for the first key,
# which `outgrown` finds, and 0 for hidden ones.
LOWEST = gl.constexpr(-3.4028234663852886e38)
MOST_BITS = gl.constexpr(0x46800000)  # the bits of 2^14 as float32: the most that a thread's part of a row's sum may be


def aggregate(cls):
    """Triton's aggregate of a class that has annotations and no constructor: `Ring(tiles=tiles, full=full, ...)`."""

    def set_fields(self, **fields):
        for name, value in fields.items():
            setattr(self, name, value)

    set_fields.__triton_builtin__ = True  # the compiler calls it, and compiles nothing of it
    cls.__init__ = set_fields
    return _aggregate(cls)


@aggregate
class Ring:
    """STAGES buffers of NBYTES, and for each a barrier "full" and one "empty"."""

    tiles: gl.shared_memory_descriptor  # (STAGES, 1, heads, rows, D)
    full: gl.shared_memory_descriptor
    empty: gl.shared_memory_descriptor
    STAGES: gl.constexpr
    NBYTES: gl.constexpr

    @gluon.jit
    def acquire(self, i):
        """Wait until the buffer of tile i is empty; from now on its barrier expects a tile."""
        stage = i % self.STAGES
        mbarrier.wait(self.empty.index(stage), (i // self.STAGES & 1) ^ 1)  # a fresh barrier counts as passed
        mbarrier.expect(self.full.index(stage), self.NBYTES)

    @gluon.jit
    def commit(self, i, desc, batch, head, row, at: gl.constexpr = 0):
        """Ask for a tile of `desc`, the rows from `row` on; where it is a part of the buffer, it goes to row `at`."""
        stage = i % self.STAGES
        buffer = self.tiles.index(stage)
        if desc.block_shape[2] < buffer.shape[2]:
            buffer = buffer.slice(at, desc.block_shape[2], 2)
        tma.async_copy_global_to_shared(desc, [batch, head, row, 0], self.full.index(stage), buffer)

    @gluon.jit
    def load(self, i, desc, batch, head, row):
        """Tile i, the rows of `desc` from `row` on: acquire and commit."""
        self.acquire(i)
        self.commit(i, desc, batch, head, row)

    @gluon.jit
    def wait(self, i):
        """Tile i (heads * rows, D) in shared memory, once it is there."""
        stage = i % self.STAGES
        mbarrier.wait(self.full.index(stage), i // self.STAGES & 1)
        tile = self.tiles.index(stage)
        return tile.reshape([tile.shape[1] * tile.shape[2], tile.shape[3]])

    @gluon.jit
    def release(self, i):
        """This consumer has read tile i."""
        mbarrier.arrive(self.empty.index(i % self.STAGES), count=1)


@gluon.jit
def make_ring(desc, STAGES: gl.constexpr, READERS: gl.constexpr, PARTS: gl.constexpr = 1, EXTRA: gl.constexpr = 0):
    """A Ring whose buffers hold PARTS tiles of `desc`; one is empty when READERS have released it.

    EXTRA: bytes that arrive with each tile and go elsewhere.
    """
    tile: gl.constexpr = desc.block_shape
    shape: gl.constexpr = [STAGES, tile[0], tile[1], tile[2] * PARTS, tile[3]]
    tiles = gl.allocate_shared_memory(desc.dtype, shape, desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=READERS)
    return Ring(tiles=tiles, full=full, empty=empty, STAGES=STAGES, NBYTES=desc.block_type.nbytes * PARTS + EXTRA)


@gluon.constexpr_function
def layout_of_columns(columns):
    """(row, eight, quad, one) of a matrix instruction's scores in four warps; column 8 eight + 2 quad + one."""
    eights = [[0, 1 << bit, 0, 0] for bit in range((columns // 8).bit_length() - 1)]
    lanes = [[0, 0, 1, 0], [0, 0, 2, 0], [1, 0, 0, 0], [2, 0, 0, 0], [4, 0, 0, 0]]
    warps = [[16, 0, 0, 0], [32, 0, 0, 0]]
    return gl.DistributedLinearLayout([[0, 0, 0, 1], [8, 0, 0, 0], *eights], lanes, warps, [], [64, columns // 8, 4, 2])


@gluon.constexpr_function
def layout_of_sums():
    """(row, quad): what sum_in_threads returns."""
    return gl.SliceLayout(1, gl.SliceLayout(3, layout_of_columns(16)))


@gluon.jit
def sum_in_threads(p):
    """(64, 4): what each of the four threads of a row has of its sum. They add it up once, at the end."""
    columns: gl.constexpr = p.shape[1]
    parts = p.reshape([ROWS, columns // 8, 4, 2])
    parts = gl.convert_layout(parts, layout_of_columns(columns), assert_trivial=True)
    return gl.convert_layout(gl.sum(gl.sum(parts, 3), 1), layout_of_sums())


@gluon.jit
def exps(scores, pivot, qk_scale, P: gl.constexpr, dtype: gl.constexpr):
    """(p, sums): 2^(scores * qk_scale - pivot) as the left factor of p @ v, and their sums in each thread."""
    p = gl.exp2(scores * qk_scale - pivot[:, None])
    return gl.convert_layout(p.to(dtype), P), sum_in_threads(p)


@gluon.jit
def raise_pivot(scores, pivot, qk_scale):
    """(the greatest score so far as the new pivot, alpha: what belongs to the old one is to be multiplied by it)."""
    new_pivot = gl.maximum(pivot, gl.max(scores, 1) * qk_scale)
    return new_pivot, gl.exp2(pivot - new_pivot)


@gluon.jit
def rescale(acc, sums, alpha):
    """acc and sums of an old pivot, for the new one."""
    by_row = gl.convert_layout(alpha, gl.SliceLayout(1, acc.type.layout))
    return acc * by_row[:, None], sums * gl.convert_layout(alpha, gl.SliceLayout(1, sums.type.layout))[:, None]


@gluon.constexpr_function
def in_all_threads():
    """Four numbers, all of them in each thread of four warps."""
    return gl.DistributedLinearLayout([[1], [2]], [[0]] * 5, [[0]] * 2, [], [4])


@gluon.jit
def outgrown(sums):
    """Is one of the sums (64, 4), none of them negative, greater than 2^14 (MOST_BITS), or NaN?

    Sums that are not negative are ordered like their bits, and a warp finds its greatest integer in one instruction.
    """
    of_warps = gl.max(sums.to(gl.int32, bitcast=True).reshape([4, ROWS]), 1)
    return gl.max(gl.convert_layout(of_warps, in_all_threads()), 0) > MOST_BITS


@builtin
def add_to_global(desc, coordinates, tile, _semantic=None):
    """Have the copy engine add a tile of shared memory to the tensor of `desc`; `tma.store_wait` waits for it.

    Gluon has the instruction, and no function for it yet.
    """
    where = _semantic._convert_to_ir_values(coordinates, require_i64=False)
    _semantic.builder.create_async_tma_reduce(ir.DESCRIPTOR_REDUCE_KIND.ADD, desc.handle, where, tile.handle)


@gluon.jit
def wait_until_added(n):
    """1, once all that this one warp had the copy engine add is in memory; n: a number, which is not looked at.

    `tma.store_wait` waits until the tiles have left shared memory, which is earlier.
    """
    text: gl.constexpr = "cp.async.bulk.wait_group 0; bar.warp.sync 0xffffffff; mov.b32 $0, 1;"
    return gl.inline_asm_elementwise(text, "=r,r", [n], gl.int32, is_pure=False, pack=1)
