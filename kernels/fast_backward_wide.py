"""The consumers of the fast backward pass at head dim 256, where dk and dv of 64 keys fill the registers of two.

A program owns 64 keys. Each consumer has half of the head dim of dk, dv and dq, and one of the two products that sum
over all of it:

    the first    s = k q^T, p = 2^s        p goes to the other through shared memory
    the second   dp = v do^T, ds = p dp    ds goes to the first

Barriers: at 0 both have read p and ds of a turn, at 1 p is there, at 2 ds.

The rest is as in fast_backward.py.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from kernels.backward_program import hand_over, mask
from kernels.hopper import ROWS

HALF, PIECE = gl.constexpr(128), gl.constexpr(64)  # columns of a consumer, and of one tile of dq


@gluon.constexpr_function
def layout(columns):
    return gl.NVMMADistributedLayout([3, 0], [4, 1], [16, columns, 16])


@gluon.jit
def add_dk_and_dq(program, i, q, ds, dk, MINE: gl.constexpr):
    """dk with a tile of queries added; both pieces of its dq are on their way. ds is the tile in shared memory."""
    no_dq = gl.zeros([ROWS, PIECE], gl.float32, layout(PIECE))
    k = program.keys(program.k_ring, i)
    dq_later = warpgroup_mma(ds.permute((1, 0)), k.slice(MINE, PIECE, 1), no_dq, use_acc=False, is_async=True)
    dk_later = warpgroup_mma(ds, q.slice(MINE, HALF, 1), dk, is_async=True)
    dq = warpgroup_mma_wait(1, [dq_later])  # dk goes on
    hand_over(program, MINE // HALF, dq, 2 * i)
    k = k.slice(MINE + PIECE, PIECE, 1)
    dq_later = warpgroup_mma(ds.permute((1, 0)), k, no_dq, use_acc=False, is_async=True)
    dk, dq = warpgroup_mma_wait(0, [dk_later, dq_later])
    mbarrier.arrive(program.met.index(0), count=1)  # p and ds have been read
    program.q_ring.release(i)
    hand_over(program, MINE // HALF, dq, 2 * i + 1)
    return dk


@gluon.jit
def consume_scores(program, consumer: gl.constexpr):
    """p of every tile, and the first half of dk, dv and dq."""
    dtype: gl.constexpr = program.q_desc.dtype
    S: gl.constexpr = layout(program.BLOCK_Q)
    P: gl.constexpr = gl.DotOperandLayout(0, layout(HALF), 2)
    k_pos = program.k_start + gl.arange(0, ROWS, layout=gl.SliceLayout(1, S))
    # The first values of s are -inf for keys that do not exist, and for sinks, which have a kernel of their own.
    unseen = gl.where((k_pos < program.N) & (k_pos >= program.sink_size), 0.0, float("-inf"))
    dk, dv = gl.zeros([ROWS, HALF], gl.float32, layout(HALF)), gl.zeros([ROWS, HALF], gl.float32, layout(HALF))
    p_tile, ds_tile = program.ds_tiles.index(0), program.ds_tiles.index(1)
    program.k_ring.wait(0)
    i = 0
    for _ in range(program.group):
        for turn in range(program.count):
            q_start, tile = program.start(turn)
            q = program.q_ring.wait(i)  # (BLOCK_Q, 256)
            less = program.first_values(i, program.lse_tiles, unseen)
            scores = warpgroup_mma(program.keys(program.k_ring, i), q.permute((1, 0)), less)
            p = mask(gl.exp2(scores * program.qk_scale), program, tile, q_start, k_pos).to(dtype)
            mbarrier.wait(program.met.index(0), (i & 1) ^ 1)  # the other has read the p before
            p_tile.store(p)
            fence_async_shared()
            mbarrier.arrive(program.met.index(1), count=1)
            do = program.do_ring.wait(i)
            dv_later = warpgroup_mma(gl.convert_layout(p, P), do.slice(0, HALF, 1), dv, is_async=True)
            mbarrier.wait(program.met.index(2), i & 1)  # ds is there
            dv = warpgroup_mma_wait(0, [dv_later])
            program.do_ring.release(i)
            dk = add_dk_and_dq(program, i, q, ds_tile, dk, 0)
            i += 1
    store(program, dk, dv, i, program.v_ring, program.dv_desc, 0)


@gluon.jit
def consume_gradients(program, consumer: gl.constexpr):
    """ds of every tile, and the second half of dk, dv and dq."""
    dtype: gl.constexpr = program.q_desc.dtype
    S: gl.constexpr = layout(program.BLOCK_Q)
    k_pos = program.k_start + gl.arange(0, ROWS, layout=gl.SliceLayout(1, S))
    no_keys = gl.minimum(k_pos, 0).to(gl.float32)  # 0, which the compiler cannot know
    dk, dv = gl.zeros([ROWS, HALF], gl.float32, layout(HALF)), gl.zeros([ROWS, HALF], gl.float32, layout(HALF))
    p_tile, ds_tile = program.ds_tiles.index(0), program.ds_tiles.index(1)
    program.k_ring.wait(0)
    program.v_ring.wait(0)
    turns = program.group * program.count
    for i in range(turns):
        do = program.do_ring.wait(i)
        less_delta = program.first_values(i, program.delta_tiles, no_keys)
        dp = warpgroup_mma(program.keys(program.v_ring, i), do.permute((1, 0)), less_delta)
        mbarrier.wait(program.met.index(1), i & 1)  # p is there
        dv_later = warpgroup_mma(p_tile, do.slice(HALF, HALF, 1), dv, is_async=True)
        ds = (p_tile.load(S).to(gl.float32) * dp).to(dtype)  # with the rounded p
        mbarrier.wait(program.met.index(0), (i & 1) ^ 1)  # the other has read the ds before, else it sent no p
        ds_tile.store(ds)
        fence_async_shared()
        mbarrier.arrive(program.met.index(2), count=1)
        dv = warpgroup_mma_wait(0, [dv_later])
        program.do_ring.release(i)
        q = program.q_ring.wait(i)
        dk = add_dk_and_dq(program, i, q, ds_tile, dk, HALF)
    store(program, dk, dv, turns, program.k_ring, program.dk_desc, HALF)


@gluon.jit
def store(program, dk, dv, turns, ring, desc, MINE: gl.constexpr):
    """Half of dk and dv into the buffers of k and v, which nobody reads any more; then the tile of `ring` to `desc`."""
    dtype: gl.constexpr = program.q_desc.dtype
    mbarrier.wait(program.met.index(0), (turns & 1) ^ 1)
    program.keys(program.v_ring, 0).slice(MINE, HALF, 1).store(dv.to(dtype))
    program.keys(program.k_ring, 0).slice(MINE, HALF, 1).store((dk * program.scale).to(dtype))
    fence_async_shared()
    mbarrier.arrive(program.met.index(0), count=1)
    mbarrier.wait(program.met.index(0), turns & 1)
    tma.async_copy_shared_to_global(desc, [program.batch, program.kv_head, program.k_start, 0], ring.tiles.index(0))
    tma.store_wait(0)
