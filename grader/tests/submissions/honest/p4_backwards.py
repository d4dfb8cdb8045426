"""Keys are walked from the last that is seen back to the first token, with a counter that is turned into a position in
the loop."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def backwards(
    Q, K, V, O, qb, qh, qn, kb, kh, kn, vb, vh, vn, ob, oh, on, N, scale_log2,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, IS_CAUSAL: tl.constexpr,
):  # fmt: skip
    qb, qh, qn = tl.cast(qb, tl.int64), tl.cast(qh, tl.int64), tl.cast(qn, tl.int64)
    kb, kh, kn = tl.cast(kb, tl.int64), tl.cast(kh, tl.int64), tl.cast(kn, tl.int64)
    vb, vh, vn = tl.cast(vb, tl.int64), tl.cast(vh, tl.int64), tl.cast(vn, tl.int64)
    ob, oh, on = tl.cast(ob, tl.int64), tl.cast(oh, tl.int64), tl.cast(on, tl.int64)
    q_start = tl.program_id(0) * BLOCK_Q
    h, b = tl.program_id(1), tl.program_id(2)
    d = tl.arange(0, D)[None, :]
    q_pos = q_start + tl.arange(0, BLOCK_Q)
    q = tl.load(Q + b * qb + h * qh + q_pos[:, None] * qn + d, mask=(q_pos < N)[:, None], other=0.0)
    K += b * kb + h * kh
    V += b * vb + h * vh

    row_max = tl.full([BLOCK_Q], float("-inf"), tl.float32)
    row_sum = tl.zeros([BLOCK_Q], tl.float32)
    acc = tl.zeros([BLOCK_Q, D], tl.float32)
    tiles = tl.cdiv(tl.minimum(q_start + BLOCK_Q, N), BLOCK_K) if IS_CAUSAL else tl.cdiv(N, BLOCK_K)
    for step in range(tiles):
        k_start = (tiles - 1 - step) * BLOCK_K
        k_pos = k_start + tl.arange(0, BLOCK_K)
        k = tl.load(K + k_pos[:, None] * kn + d, mask=(k_pos < N)[:, None], other=0.0)
        v = tl.load(V + k_pos[:, None] * vn + d, mask=(k_pos < N)[:, None], other=0.0)
        scores = tl.dot(q, tl.trans(k)) * scale_log2
        scores = tl.where(k_pos[None, :] <= q_pos[:, None] if IS_CAUSAL else k_pos[None, :] < N, scores, float("-inf"))
        new_max = tl.maximum(row_max, tl.max(scores, 1))
        # With the diagonal first, the early rows of the tile may see nothing in the first steps.
        pivot = tl.where(new_max > float("-inf"), new_max, 0.0)
        p = tl.exp2(scores - pivot[:, None])
        alpha = tl.exp2(row_max - pivot)
        row_sum = row_sum * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc=acc * alpha[:, None])
        row_max = new_max

    o = acc / row_sum[:, None]
    tl.store(O + b * ob + h * oh + q_pos[:, None] * on + d, o.to(O.dtype.element_ty), mask=(q_pos < N)[:, None])


def flash_attention_forward(q, k, v, is_causal=True):
    B, H, N, D = q.shape
    o = torch.empty_like(q)
    BLOCK_Q, BLOCK_K = (32, 16) if D == 256 else (64, 32)
    grid = lambda meta: (triton.cdiv(N, meta["BLOCK_Q"]), H, B)  # noqa: E731
    backwards[grid](
        q, k, v, o, *q.stride()[:-1], *k.stride()[:-1], *v.stride()[:-1], *o.stride()[:-1], N,
        math.log2(math.e) / math.sqrt(D), D=D, BLOCK_Q=BLOCK_Q, BLOCK_K=BLOCK_K, IS_CAUSAL=is_causal, num_warps=4,
        num_stages=2,
    )  # fmt: skip
    return o
