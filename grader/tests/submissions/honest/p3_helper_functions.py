"""Cut into many small @triton.jit helpers that call each other, some of which return tuples; launched without
parentheses around the grid."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def tile_pointers(base, pos, stride, D: tl.constexpr):
    return base + pos[:, None] * stride + tl.arange(0, D)[None, :]


@triton.jit
def load_rows(base, pos, stride, N, D: tl.constexpr):
    return tl.load(tile_pointers(base, pos, stride, D), mask=pos[:, None] < N, other=0.0)


@triton.jit
def head_base(X, batch, head, stride_b, stride_h):
    return X + batch.to(tl.int64) * stride_b + head.to(tl.int64) * stride_h


@triton.jit
def scores_of(q, k, k_pos, N, scale):
    scores = tl.dot(q, tl.trans(k)) * scale
    return tl.where(k_pos[None, :] < N, scores, float("-inf"))


@triton.jit
def update(acc, row_max, row_sum, scores, v):
    new_max = tl.maximum(row_max, tl.max(scores, 1))
    p = tl.exp2(scores - new_max[:, None])
    alpha = tl.exp2(row_max - new_max)
    acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
    return acc, new_max, row_sum * alpha + tl.sum(p, 1)


@triton.jit
def start_values(ROWS: tl.constexpr, D: tl.constexpr):
    return tl.zeros([ROWS, D], tl.float32), tl.full([ROWS], float("-inf"), tl.float32), tl.zeros([ROWS], tl.float32)


@triton.jit
def kernel(
    Q, K, V, O, qb, qh, qn, kb, kh, kn, vb, vh, vn, ob, oh, on, N, scale,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    qb, qh, qn = tl.cast(qb, tl.int64), tl.cast(qh, tl.int64), tl.cast(qn, tl.int64)
    kb, kh, kn = tl.cast(kb, tl.int64), tl.cast(kh, tl.int64), tl.cast(kn, tl.int64)
    vb, vh, vn = tl.cast(vb, tl.int64), tl.cast(vh, tl.int64), tl.cast(vn, tl.int64)
    ob, oh, on = tl.cast(ob, tl.int64), tl.cast(oh, tl.int64), tl.cast(on, tl.int64)
    head, batch = tl.program_id(1), tl.program_id(2)
    q_pos = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    q = load_rows(head_base(Q, batch, head, qb, qh), q_pos, qn, N, D)
    K = head_base(K, batch, head, kb, kh)
    V = head_base(V, batch, head, vb, vh)
    acc, row_max, row_sum = start_values(BLOCK_Q, D)
    for k_start in range(0, N, BLOCK_K):
        k_pos = k_start + tl.arange(0, BLOCK_K)
        scores = scores_of(q, load_rows(K, k_pos, kn, N, D), k_pos, N, scale)
        acc, row_max, row_sum = update(acc, row_max, row_sum, scores, load_rows(V, k_pos, vn, N, D))
    o_ptrs = tile_pointers(head_base(O, batch, head, ob, oh), q_pos, on, D)
    tl.store(o_ptrs, (acc / row_sum[:, None]).to(O.dtype.element_ty), mask=q_pos[:, None] < N)


def flash_attention_forward(q, k, v, is_causal=False):
    B, H, N, D = q.shape
    o = torch.empty_like(q)
    BLOCK_Q, BLOCK_K = (32, 32) if D * q.element_size() > 256 else (64, 64)
    strides = [s for t in (q, k, v, o) for s in t.stride()[:3]]
    scale = math.log2(math.e) / math.sqrt(D)
    kernel[triton.cdiv(N, BLOCK_Q), H, B](q, k, v, o, *strides, N, scale, D, BLOCK_Q, BLOCK_K, num_stages=2)
    return o
