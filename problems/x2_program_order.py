"""X2, a lab past the ladder: the order in which tiles run.

What to build
    A grid has no order of its own: you choose which tile of which head a program computes. The choice decides in which
    cache the program finds its keys, and when the last program ends. GPUs of several dies (MI300X has 8) hand
    programs out in turn, program p to die p % num_dies, and each die has an L2 cache of its own.

    So P5's causal kernel (P4's, where Hq = Hkv) is launched on a grid of one axis, and each program asks `place` for
    its head and its tile of queries. For every number of tiles, heads and dies,
      - each tile of each head is computed once;
      - all tiles of heads that share K and V run on one die, so that K and V are read into one cache;
      - the dies get the same work: under the causal mask tile t of the queries visits t + 1 tiles of keys, and two dies
        differ by at most num_tiles of these visits, what the longest tile costs;
      - on each die, the tiles of a head run from the longest row to the shortest: what starts last ends soon.

    Where the number of kv heads is no multiple of the number of dies, the second and the third rule can contradict each
    other: three heads on two dies. Then the third, balance, wins. Each die gets equally many whole kv heads, as many as
    possible; the few that are left (fewer than there are dies) are spread over all dies tile by tile, from the longest
    rows to the shortest.

Shapes
    q and o (B, Hq, N, D); k and v (B, Hkv, N, D), as in P5. Programs count their heads through all batches: head
    b * Hq + h. A kv head is read by heads_per_kv = Hq // Hkv neighbours. `place` takes and returns integers, and
    the same function serves both: Python calls it in `program_order`, the kernel as `place_in_kernel`.

Where 20 programs go: 4 tiles, 5 heads, 2 dies; '03' is tile 3 of head 0

                slot    0  1  2  3   4  5  6  7   8  9
        die 0          03 02 01 00  23 22 21 20  43 41
        die 1          13 12 11 10  33 32 31 30  42 40
                       whole heads, one by one   spread

Given: the kernel, its checks and its launch. Asked: three gaps, marked TODO: the kv heads that stay whole, those that
are spread, and where the kernel takes its place from.

Questions that catch most mistakes
    - Programs p and p + 1 run on different dies. Which programs share one?
    - What is left over when the kv heads do not divide among the dies, or the tiles do not?
    - Why not give each die a block of neighbouring tiles? (Add up what the tiles of the last die cost.)
    - A published remap gives program m of a head the tile (m % 8) * (num_tiles // 8) + (m // 8) % 8. It is wrong for
      num_tiles = 128: which tiles does it leave out?

Source: Graham, "Bounds on multiprocessing timing anomalies", 1969, for the longest first; AMD, "CDNA 3 architecture",
2023, for dies and their caches.
"""

import math
import os

import torch
import triton
import triton.language as tl

HEAD_DIMS = (16, 32, 64, 128, 256)
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
LOG2_E = 1.4426950408889634
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # where there is no GPU, Triton runs on the CPU like this


def place(program, num_tiles, num_heads, num_dies, heads_per_kv):
    """(head, tile) of a program, in Python; compiled for kernels as `place_in_kernel`.

    program: 0 to num_tiles * num_heads - 1, running on die program % num_dies. num_heads: through all batches, a
    multiple of heads_per_kv.
    """
    kv_heads = num_heads // heads_per_kv
    kv_heads_a_die = kv_heads // num_dies  # those that stay whole
    tiles_a_kv_head = num_tiles * heads_per_kv
    slot = program // num_dies  # its index among the programs of its die
    if slot < kv_heads_a_die * tiles_a_kv_head:
        # TODO 1: a kv head that stays on this die (about 4 lines; then delete the failing line)
        #   `head` and `tile`: one kv head after the other, of each the longest rows first; heads that share K and V
        #   take turns
        raise NotImplementedError("TODO 1: a kv head that stays on this die")
    else:
        # TODO 2: a kv head that is spread over the dies (about 5 lines; then delete the failing line)
        #   `head` and `tile`: the longest rows of all that are left, then the next longest
        raise NotImplementedError("TODO 2: a kv head that is spread over the dies")
    return head, tile


place_in_kernel = triton.jit(place)


def program_order(num_tiles, num_heads, num_dies=8, heads_per_kv=1):
    """The whole order, as a list: (head, tile) of each program.

    num_tiles: tiles of queries in a head. num_heads: query heads of all batches; heads_per_kv: neighbours that share
    K and V. Raises ValueError unless all are at least 1 and num_heads is a multiple of heads_per_kv.
    """
    sizes = {"num_tiles": num_tiles, "num_heads": num_heads, "num_dies": num_dies, "heads_per_kv": heads_per_kv}
    if min(sizes.values()) < 1:
        raise ValueError(f"an order needs at least one of each; got {sizes}")
    if num_heads % heads_per_kv:
        raise ValueError(f"num_heads must be a multiple of heads_per_kv; got {num_heads} and {heads_per_kv}")
    programs = range(num_tiles * num_heads)
    return [place(program, num_tiles, num_heads, num_dies, heads_per_kv) for program in programs]


@triton.jit
def attend(state, queries, keys, start, end, BLOCK_K: tl.constexpr, IS_CAUSAL: tl.constexpr, MASKED: tl.constexpr):
    """Run the online softmax over keys [start, end), tile by tile, masked by position if MASKED. Return the state."""
    acc, row_max, row_sum = state  # (BLOCK_Q, D), (BLOCK_Q,), (BLOCK_Q,)
    q, q_pos, qk_scale = queries  # (BLOCK_Q, D), (BLOCK_Q,)
    K, V, stride_kn, stride_vn, N = keys
    d = tl.arange(0, q.shape[1])
    for k_start in range(start, end, BLOCK_K):
        k_pos = k_start + tl.arange(0, BLOCK_K)
        in_bounds = k_pos[:, None] < N
        k_ptrs = K + k_pos.to(tl.int64)[:, None] * stride_kn + d[None, :]  # (BLOCK_K, D)
        v_ptrs = V + k_pos.to(tl.int64)[:, None] * stride_vn + d[None, :]  # (BLOCK_K, D)
        if MASKED:
            k = tl.load(k_ptrs, mask=in_bounds, other=0.0)
            v = tl.load(v_ptrs, mask=in_bounds, other=0.0)
        else:
            k = tl.load(k_ptrs)
            v = tl.load(v_ptrs)

        scores = tl.dot(q, tl.trans(k))  # (BLOCK_Q, BLOCK_K), float32, not yet scaled
        if MASKED:
            visible = k_pos[None, :] < N
            if IS_CAUSAL:
                visible &= k_pos[None, :] <= q_pos[:, None]
            scores = tl.where(visible, scores, float("-inf"))
        new_max = tl.maximum(row_max, tl.max(scores, 1) * qk_scale)
        alpha = tl.exp2(row_max - new_max)
        p = tl.exp2(scores * qk_scale - new_max[:, None])
        row_sum = row_sum * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        row_max = new_max
    return acc, row_max, row_sum


@triton.jit
def flash_attention_kernel(
    Q, K, V, O,
    stride_qb, stride_qh, stride_qn,
    stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn,
    stride_ob, stride_oh, stride_on,
    N, num_heads, heads_a_batch, num_dies, group, qk_scale,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, IS_CAUSAL: tl.constexpr,
):  # fmt: skip
    """One program: BLOCK_Q queries of one head. Grid: (query tiles x Hq x B,)."""
    # TODO 3: which head and which tile of queries (about 1 line; then delete the failing line)
    #   `flat_head`, through all batches, and `tile`, of this program
    tl.static_assert(False, "TODO 3: which head and which tile of queries")
    q_start = tile * BLOCK_Q
    # B x H x N x D can pass 2^31: offsets of whole heads and of rows are int64.
    batch = (flat_head // heads_a_batch).to(tl.int64)
    head = (flat_head % heads_a_batch).to(tl.int64)
    kv_head = head // group
    Q += batch * stride_qb + head * stride_qh
    K += batch * stride_kb + kv_head * stride_kh
    V += batch * stride_vb + kv_head * stride_vh
    O += batch * stride_ob + head * stride_oh

    q_pos = q_start + tl.arange(0, BLOCK_Q)
    d = tl.arange(0, D)
    q_ptrs = Q + q_pos.to(tl.int64)[:, None] * stride_qn + d[None, :]  # (BLOCK_Q, D)
    q = tl.load(q_ptrs, mask=q_pos[:, None] < N, other=0.0)

    row_max = tl.full([BLOCK_Q], float("-inf"), tl.float32)  # the paper's m, in base 2
    row_sum = tl.zeros([BLOCK_Q], tl.float32)  # the paper's l
    acc = tl.zeros([BLOCK_Q, D], tl.float32)
    state = acc, row_max, row_sum
    queries = q, q_pos, qk_scale
    keys = K, V, stride_kn, stride_vn, N

    if IS_CAUSAL:
        masked_start = q_start // BLOCK_K * BLOCK_K
        k_end = tl.minimum(q_start + BLOCK_Q, N)
    else:
        masked_start = N // BLOCK_K * BLOCK_K
        k_end = N
    # Phase 1: every query of this tile sees every key; no mask.
    state = attend(state, queries, keys, 0, masked_start, BLOCK_K, IS_CAUSAL, MASKED=False)
    # Phase 2: the diagonal, or the ragged tail.
    state = attend(state, queries, keys, masked_start, k_end, BLOCK_K, IS_CAUSAL, MASKED=True)
    acc, _, row_sum = state

    o = acc / row_sum[:, None]
    o_ptrs = O + q_pos.to(tl.int64)[:, None] * stride_on + d[None, :]  # (BLOCK_Q, D)
    tl.store(o_ptrs, o.to(O.dtype.element_ty), mask=q_pos[:, None] < N)


# (BLOCK_Q, BLOCK_K, num_warps, num_stages) by head dim, the fastest first; the first whose tiles fit is taken.
TILES = {
    16: [(128, 64, 4, 3)],
    32: [(128, 64, 4, 3)],
    64: [(128, 64, 4, 3)],
    128: [(128, 128, 8, 3), (128, 64, 8, 3), (64, 64, 4, 2)],
    256: [(128, 64, 8, 2), (64, 64, 4, 2), (64, 32, 4, 2)],
}
TILES_FLOAT32 = {
    16: [(128, 32, 4, 2)],
    32: [(128, 32, 4, 2)],
    64: [(128, 32, 4, 2)],
    128: [(128, 64, 8, 2), (128, 32, 4, 2), (32, 32, 4, 2)],
    256: [(32, 32, 4, 2), (32, 16, 4, 2)],
}
TILES_INTERPRETER = (64, 32, 4, 1)


def choose_tiles(q):
    """BLOCK_Q, BLOCK_K, num_warps, num_stages for q: what fits into shared memory; small tiles in the interpreter."""
    if INTERPRETED:
        return TILES_INTERPRETER
    D = q.shape[-1]
    limit = torch.cuda.get_device_properties(q.device).shared_memory_per_block_optin
    for tiles in (TILES_FLOAT32 if q.dtype == torch.float32 else TILES)[D]:
        BLOCK_Q, BLOCK_K, _, num_stages = tiles
        if q.element_size() * D * (BLOCK_Q + 2 * BLOCK_K * num_stages) <= limit:  # Q once, K and V for each stage
            break
    return tiles


def check_arguments(q, k, v):
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
        raise ValueError(f"q, k and v must share one dtype of {DTYPES}; got {q.dtype}, {k.dtype}, {v.dtype}")
    if not q.device == k.device == v.device:
        raise ValueError(f"q, k and v must be on one device; got {q.device}, {k.device}, {v.device}")
    if not q.stride(3) == k.stride(3) == v.stride(3) == 1:
        raise ValueError(f"the last stride must be 1; got q {q.stride()}, k {k.stride()}, v {v.stride()}")


def flash_attention_forward(q, k, v, is_causal=True, num_dies=8):
    """Causal (or full) grouped-query attention in one kernel launch, its tiles in the order of `place`.

    q: (B, Hq, N, D). k, v: (B, Hkv, N, D). Last stride 1; one dtype: float16, bfloat16 or float32. num_dies: dies
    with an L2 cache of their own, 1 where all share one. Returns o (B, Hq, N, D), same dtype: the same bits whatever
    the order.
    Raises ValueError for shapes, head counts, dtypes, devices or strides that do not fit, and for num_dies < 1.
    Method: "FlashAttention-2" (Dao, 2023), section 3.1, on the heads of "GQA" (Ainslie et al., 2023).
    """
    check_arguments(q, k, v)
    if num_dies < 1:
        raise ValueError(f"num_dies must be at least 1; got {num_dies}")
    B, Hq, N, D = q.shape
    o = torch.empty_like(q)
    BLOCK_Q, BLOCK_K, num_warps, num_stages = choose_tiles(q)
    grid = (triton.cdiv(N, BLOCK_Q) * Hq * B,)
    flash_attention_kernel[grid](
        q, k, v, o,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        N, B * Hq, Hq, num_dies, Hq // k.shape[1], LOG2_E / math.sqrt(D),
        D, BLOCK_Q, BLOCK_K, is_causal, num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
    return o
