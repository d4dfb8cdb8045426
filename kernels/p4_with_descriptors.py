"""P3 and P4 with tensor descriptors: the first step from the plain kernels to fast_attention.py. Not a problem.

The loop is P4's. What is new is how tiles come and go: the host describes each tensor once (where it lies, its
shape, its strides, the shape of a tile), and the kernel asks for "the tile at this row". On a Hopper GPU or a later
one the copy engine (TMA) does the rest: no pointer arithmetic in registers, no mask for rows past the end, which come
as zeros and are not written back. Elsewhere Triton turns descriptors into pointers again.

And the tiles are chosen so that two programs fit a multiprocessor: while one computes its softmax, the other's
products use the matrix units.

Source: "FlashAttention-3" (Shah et al., 2024), section 3.1, for the copy engine; the loop as in P4.
"""

import math
import os

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

LOG2_E = 1.4426950408889634
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


@triton.jit
def attend(state, queries, keys, start, end, BLOCK_K: tl.constexpr, IS_CAUSAL: tl.constexpr, MASKED: tl.constexpr):
    """Run the online softmax over keys [start, end), tile by tile, masked by position if MASKED. Return the state."""
    acc, row_max, row_sum = state  # (BLOCK_Q, D), (BLOCK_Q,), (BLOCK_Q,)
    q, q_pos, qk_scale = queries  # (BLOCK_Q, D), (BLOCK_Q,)
    k_desc, v_desc, batch, kv_head, N = keys
    for k_start in tl.range(start, end, BLOCK_K):
        k = k_desc.load([batch, kv_head, k_start, 0]).reshape(BLOCK_K, q.shape[1])
        scores = tl.dot(q, k.T)  # (BLOCK_Q, BLOCK_K), float32, not yet scaled
        if MASKED:
            k_pos = k_start + tl.arange(0, BLOCK_K)
            if IS_CAUSAL:
                visible = q_pos[:, None] - k_pos[None, :] >= 0
            else:
                visible = (k_pos < N)[None, :]
            scores = tl.where(visible, scores, float("-inf"))
        new_max = tl.maximum(row_max, tl.max(scores, 1) * qk_scale)
        alpha = tl.exp2(row_max - new_max)
        p = tl.exp2(scores * qk_scale - new_max[:, None])
        row_sum = row_sum * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        v = v_desc.load([batch, kv_head, k_start, 0]).reshape(BLOCK_K, q.shape[1])
        acc = tl.dot(p.to(v.dtype), v, acc)
        row_max = new_max
    return acc, row_max, row_sum


@triton.jit
def attention_kernel(
    q_desc, k_desc, v_desc, o_desc, N, Hq, query_tiles, qk_scale,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr, IS_CAUSAL: tl.constexpr,
):  # fmt: skip
    """One program: BLOCK_Q queries of one head, the longest rows of a head first. Grid: (query tiles x Hq x B)."""
    program = tl.program_id(0)
    tile = program % query_tiles
    if IS_CAUSAL:
        tile = query_tiles - 1 - tile
    batch = program // query_tiles // Hq
    head = program // query_tiles % Hq
    kv_head = head // GROUP
    q_start = tile * BLOCK_Q
    q = q_desc.load([batch, head, q_start, 0]).reshape(BLOCK_Q, D)
    q_pos = q_start + tl.arange(0, BLOCK_Q)
    row_max = tl.full([BLOCK_Q], float("-inf"), tl.float32)  # the paper's m, in base 2
    row_sum = tl.zeros([BLOCK_Q], tl.float32)  # the paper's l
    acc = tl.zeros([BLOCK_Q, D], tl.float32)
    state = acc, row_max, row_sum
    queries = q, q_pos, qk_scale
    keys = k_desc, v_desc, batch, kv_head, N
    if IS_CAUSAL:
        masked_start, k_end = (q_start + 1) // BLOCK_K * BLOCK_K, tl.minimum(q_start + BLOCK_Q, N)
    else:
        masked_start, k_end = N // BLOCK_K * BLOCK_K, N
    state = attend(state, queries, keys, 0, masked_start, BLOCK_K, IS_CAUSAL, MASKED=False)
    state = attend(state, queries, keys, masked_start, k_end, BLOCK_K, IS_CAUSAL, MASKED=True)
    acc, _, row_sum = state
    o = acc / row_sum[:, None]
    o_desc.store([batch, head, q_start, 0], o.to(o_desc.dtype).reshape(1, 1, BLOCK_Q, D))


# (BLOCK_Q, BLOCK_K, num_warps, num_stages) for float16 and bfloat16, tuned on an H200.
TILES = {64: (64, 64, 4, 3), 128: (128, 64, 4, 2), 256: (128, 64, 8, 2)}
TILES_INTERPRETER = (64, 32, 4, 1)


def describe(tensor, rows):
    """A tensor descriptor of (B, H, N, D) for tiles (1, 1, rows, D)."""
    return TensorDescriptor(tensor, list(tensor.shape), list(tensor.stride()), [1, 1, rows, tensor.shape[3]])


def flash_attention_forward(q, k, v, is_causal=True):
    """Attention over tensor descriptors, full or causal.

    q: (B, Hq, N, D). k, v: (B, Hkv, N, D), Hq a multiple of Hkv. float16 or bfloat16; D is 64, 128 or 256; the last
    stride 1, every other one and the start multiples of 16 bytes.
    Returns o (B, Hq, N, D), contiguous, same dtype. Raises ValueError for another head dim or dtype.
    """
    B, Hq, N, D = q.shape
    if D not in TILES or q.dtype not in (torch.float16, torch.bfloat16):
        raise ValueError(f"D must be one of {(*TILES,)}, the dtype float16 or bfloat16; got D={D}, {q.dtype}")
    BLOCK_Q, BLOCK_K, num_warps, num_stages = TILES_INTERPRETER if INTERPRETED else TILES[D]
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    query_tiles = triton.cdiv(N, BLOCK_Q)
    attention_kernel[(query_tiles * Hq * B,)](
        describe(q, BLOCK_Q), describe(k, BLOCK_K), describe(v, BLOCK_K), describe(o, BLOCK_Q),
        N, Hq, query_tiles, LOG2_E / math.sqrt(D),
        D, BLOCK_Q, BLOCK_K, Hq // k.shape[1], is_causal, num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
    return o
