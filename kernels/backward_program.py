"""What the kernels of the fast backward pass share: the program, its producer, the mask, the ways of dq.

fast_backward.py has the consumers for head dims 64 and 128, fast_backward_wide.py those for 256.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma

from kernels.hopper import Ring, Scalar, add_to_global, aggregate, wait_until_added


@aggregate
class Program:
    """What one program works with, and its tile of keys: `count` tiles of queries for each of `group` heads.

    first: the first query; before tile `diagonal` a key may be newer than a query; from tile `edge` on one may be too
    old for a query. shift < count: the tile to begin with.
    """

    q_desc: tma.tensor_descriptor
    do_desc: tma.tensor_descriptor
    k_desc: tma.tensor_descriptor
    v_desc: tma.tensor_descriptor
    rows_desc: tma.tensor_descriptor  # of lse in all batches, then of delta
    dq_desc: tma.tensor_descriptor
    q_ring: Ring
    do_ring: Ring
    lse_tiles: gl.shared_memory_descriptor  # (STAGES, 1, 1, 1, BLOCK_Q): lse arrives with q, delta with do
    delta_tiles: gl.shared_memory_descriptor
    k_ring: Ring
    v_ring: Ring
    ds_tiles: gl.shared_memory_descriptor  # (2, BLOCK_K, BLOCK_Q); at head dim 256 p and ds
    met: gl.shared_memory_descriptor  # barriers; at 0 the consumers wait for each other, once in a turn
    dq_tiles: gl.shared_memory_descriptor  # (2, 1, 1, rows, columns)
    dq_full: gl.shared_memory_descriptor  # barriers, one for each consumer's tile of dq, where a warp adds it
    dq_empty: gl.shared_memory_descriptor
    added: Scalar  # in order: (Hq, tiles of queries, 2), int32, of this batch: how many programs have added theirs
    dk_desc: tma.tensor_descriptor
    dv_desc: tma.tensor_descriptor
    batch: Scalar
    batches: Scalar
    kv_head: Scalar
    k_start: Scalar
    first: Scalar
    count: Scalar
    diagonal: Scalar
    edge: Scalar
    shift: Scalar
    group: Scalar
    N: Scalar
    window_size: Scalar
    sink_size: Scalar
    scale: Scalar
    qk_scale: Scalar
    D: gl.constexpr
    BLOCK_Q: gl.constexpr
    BLOCK_K: gl.constexpr
    STAGES: gl.constexpr
    IS_CAUSAL: gl.constexpr
    WINDOW: gl.constexpr
    IN_ORDER: gl.constexpr
    HANDS_OVER: gl.constexpr

    @gluon.jit
    def start(self, turn):
        """The first query of a turn, and its tile. Programs may begin at different tiles, to add to dq apart."""
        tile = turn + self.shift
        tile = gl.where(tile < self.count, tile, tile - self.count)
        return self.first + tile * self.BLOCK_Q, tile

    @gluon.jit
    def load_row(self, i, batch, head, q_start, ring, tiles):
        """Ask for lse or delta of tile i, which arrives with the tile of `ring`."""
        at = [batch, head, q_start // self.BLOCK_Q, 0]
        tma.async_copy_global_to_shared(
            self.rows_desc, at, ring.full.index(i % ring.STAGES), tiles.index(i % self.STAGES)
        )

    @gluon.jit
    def first_values(self, i, tiles, of_keys):
        """(64, BLOCK_Q): of_keys (64,) of its row, minus lse or delta of tile i."""
        row = tiles.index(i % self.STAGES).reshape([1, self.BLOCK_Q])
        return of_keys[:, None] - row.load(gl.NVMMADistributedLayout([3, 0], [4, 1], [16, self.BLOCK_Q, 16]))

    @gluon.jit
    def keys(self, ring, i):
        """k or v, (BLOCK_K, D). i >> 28 is 0, which the compiler cannot know: it computes addresses anew in each turn.

        Else it keeps them from turn to turn, in registers that it does not have; at head dim 128 it mostly has.
        """
        ENOUGH: gl.constexpr = self.D == 128 and not self.HANDS_OVER
        return ring.tiles.index(0 if ENOUGH else i >> 28).reshape([self.BLOCK_K, self.D])


@gluon.jit
def produce(program):
    """K and V once; for each head of the group, from the first tile of queries on, q, do, lse and delta."""
    batch, kv_head, i = program.batch, program.kv_head, 0
    program.k_ring.load(0, program.k_desc, batch, kv_head, program.k_start)
    program.v_ring.load(0, program.v_desc, batch, kv_head, program.k_start)
    for head in range(kv_head * program.group, kv_head * program.group + program.group):
        for turn in range(program.count):
            q_start, _ = program.start(turn)
            program.q_ring.load(i, program.q_desc, batch, head, q_start)
            program.load_row(i, batch, head, q_start, program.q_ring, program.lse_tiles)
            program.do_ring.load(i, program.do_desc, batch, head, q_start)
            program.load_row(i, batch + program.batches, head, q_start, program.do_ring, program.delta_tiles)
            i += 1


@gluon.jit
def mask(p, program, tile, q_start, k_pos):
    """p (keys, queries), 0 where a key is after the query or too old; where none is, nothing is computed."""
    Q: gl.constexpr = gl.SliceLayout(0, p.type.layout)
    if program.IS_CAUSAL:  # noqa: SIM102 (one is known at compile time, one is not)
        if tile < program.diagonal:
            q_pos = q_start + gl.arange(0, program.BLOCK_Q, layout=Q)
            p = gl.where(q_pos[None, :] >= k_pos[:, None], p, 0.0)
    if program.WINDOW:  # noqa: SIM102
        if tile >= program.edge:
            q_pos = q_start + gl.arange(0, program.BLOCK_Q, layout=Q)
            p = gl.where(q_pos[None, :] - k_pos[:, None] < program.window_size, p, 0.0)
    return p


@gluon.jit
def hand_over(program, consumer: gl.constexpr, dq, n):
    """A consumer's n-th part of dq goes to its warp for dq."""
    mbarrier.wait(program.dq_empty.index(consumer), (n & 1) ^ 1)
    program.dq_tiles.index(consumer).reshape(dq.shape).store(dq)
    fence_async_shared()
    mbarrier.arrive(program.dq_full.index(consumer), count=1)


@gluon.jit
def pass_on_dq(program, consumer: gl.constexpr):
    """A warp that has the copy engine add what a consumer hands over.

    In order: each part when all programs before this one have added theirs. Those have lower numbers; a GPU starts
    them earlier, so that the wait ends.
    """
    ROWS: gl.constexpr = program.dq_tiles.shape[3]
    COLUMNS: gl.constexpr = program.dq_tiles.shape[4]
    HALF_OF_QUERIES: gl.constexpr = program.BLOCK_Q == 2 * ROWS  # the consumer's of a tile, else half of the columns
    PARTS: gl.constexpr = 1 if HALF_OF_QUERIES else program.D // COLUMNS // 2
    n = 0
    for head in range(program.kv_head * program.group, program.kv_head * program.group + program.group):
        for turn in range(program.count):
            q_start, _ = program.start(turn)
            if program.IN_ORDER:
                tile = head * gl.cdiv(program.N, program.BLOCK_Q) + q_start // program.BLOCK_Q
                added = program.added + 2 * tile + consumer
                before = program.k_start // program.BLOCK_K
                if program.IS_CAUSAL:  # the newest keys that a tile sees come first
                    newest = gl.minimum(q_start + program.BLOCK_Q, program.N) - 1
                    before = newest // program.BLOCK_K - before
                while gl.load(added, volatile=True) < before:
                    pass
            for part in gl.static_range(PARTS):
                mbarrier.wait(program.dq_full.index(consumer), n & 1)
                row = q_start + (consumer * ROWS if HALF_OF_QUERIES else 0)
                column = 0 if HALF_OF_QUERIES else (consumer * PARTS + part) * COLUMNS
                at = [program.batch, head, row, column]
                add_to_global(program.dq_desc, at, program.dq_tiles.index(consumer))
                tma.store_wait(0)  # the part has left the buffer
                mbarrier.arrive(program.dq_empty.index(consumer), count=1)
                n += 1
            if program.IN_ORDER:
                gl.atomic_add(added, wait_until_added(n), sem="release")
