"""What the kernels of the fast backward pass share: the program, its producer, the mask, the way of dq.

fast_backward.py has the consumers for head dims 64 and 128, fast_backward_wide.py those for 256.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, tma

from solutions.hopper import Ring, Scalar, add_to_global, aggregate


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
    lse_desc: tma.tensor_descriptor
    delta_desc: tma.tensor_descriptor
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

    @gluon.jit
    def start(self, turn):
        """The first query of a turn, and its tile. Programs may begin at different tiles, to add to dq apart."""
        tile = turn + self.shift
        tile = gl.where(tile < self.count, tile, tile - self.count)
        return self.first + tile * self.BLOCK_Q, tile

    @gluon.jit
    def load_row(self, i, desc, batch, head, q_start, ring, tiles):
        """Ask for lse or delta of tile i, which arrives with the tile of `ring`."""
        at = [batch, head, q_start // self.BLOCK_Q, 0]
        tma.async_copy_global_to_shared(desc, at, ring.full.index(i % ring.STAGES), tiles.index(i % self.STAGES))

    @gluon.jit
    def first_values(self, i, tiles, of_keys):
        """(64, BLOCK_Q): of_keys (64,) of its row, minus lse or delta of tile i."""
        row = tiles.index(i % self.STAGES).reshape([1, self.BLOCK_Q])
        return of_keys[:, None] - row.load(gl.NVMMADistributedLayout([3, 0], [4, 1], [16, self.BLOCK_Q, 16]))

    @gluon.jit
    def keys(self, ring, i):
        """k or v, (BLOCK_K, D). i >> 28 is 0, which the compiler cannot know: it computes addresses anew in each turn.

        Else it keeps them from turn to turn, in registers that it does not have.
        """
        return ring.tiles.index(i >> 28).reshape([self.BLOCK_K, self.D])


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
            program.load_row(i, program.lse_desc, batch, head, q_start, program.q_ring, program.lse_tiles)
            program.do_ring.load(i, program.do_desc, batch, head, q_start)
            program.load_row(i, program.delta_desc, batch, head, q_start, program.do_ring, program.delta_tiles)
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
def add_dq(program, dq, buffer, head, row, column):
    """Have the copy engine add a consumer's part of a tile to dq."""
    tma.store_wait(0)  # the tile before has left the buffer (it is in memory at the end of the kernel)
    buffer.reshape(dq.shape).store(dq)
    fence_async_shared()
    add_to_global(program.dq_desc, [program.batch, head, row, column], buffer)
