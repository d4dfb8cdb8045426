"""Everything is transposed: scores are (keys, queries), softmax runs down axis 0, and the accumulator is (D,
queries)."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def transposed_kernel(
    Q, K, V, O, qb, qh, qn, kb, kh, kn, vb, vh, vn, ob, oh, on, N, scale_log2,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    qb, qh, qn = tl.cast(qb, tl.int64), tl.cast(qh, tl.int64), tl.cast(qn, tl.int64)
    kb, kh, kn = tl.cast(kb, tl.int64), tl.cast(kh, tl.int64), tl.cast(kn, tl.int64)
    vb, vh, vn = tl.cast(vb, tl.int64), tl.cast(vh, tl.int64), tl.cast(vn, tl.int64)
    ob, oh, on = tl.cast(ob, tl.int64), tl.cast(oh, tl.int64), tl.cast(on, tl.int64)
    head, batch = tl.program_id(1), tl.program_id(2)
    d = tl.arange(0, D)
    q_pos = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)[None, :]
    qt_ptrs = Q + batch * qb + head * qh + q_pos * qn + d[:, None]
    qt = tl.load(qt_ptrs, mask=q_pos < N, other=0.0)  # (D, BLOCK_Q)
    row_max = tl.full([BLOCK_Q], float("-inf"), tl.float32)
    row_sum = tl.zeros([BLOCK_Q], tl.float32)
    acc = tl.zeros([D, BLOCK_Q], tl.float32)
    for k_start in range(0, N, BLOCK_K):
        k_row = k_start + tl.arange(0, BLOCK_K)
        k = tl.load(K + batch * kb + head * kh + k_row[:, None] * kn + d[None, :], mask=k_row[:, None] < N, other=0.0)
        vt = tl.load(V + batch * vb + head * vh + k_row[None, :] * vn + d[:, None], mask=k_row[None, :] < N, other=0.0)
        scores = tl.where(k_row[:, None] < N, tl.dot(k, qt) * scale_log2, float("-inf"))  # (BLOCK_K, BLOCK_Q)
        new_max = tl.maximum(row_max, tl.max(scores, 0))
        p = tl.exp2(scores - new_max[None, :])
        alpha = tl.exp2(row_max - new_max)
        row_sum = row_sum * alpha + tl.sum(p, 0)
        acc = tl.dot(vt, p.to(vt.dtype), acc * alpha[None, :])
        row_max = new_max
    o = (acc / row_sum[None, :]).to(O.dtype.element_ty)
    tl.store(O + batch * ob + head * oh + q_pos * on + d[:, None], o, mask=q_pos < N)


def flash_attention_forward(q, k, v, is_causal=False):
    B, H, N, D = q.shape
    o = torch.empty_like(q)
    BLOCK_Q, BLOCK_K = (32, 32) if D * q.element_size() > 256 else (64, 64)
    transposed_kernel[(triton.cdiv(N, BLOCK_Q), H, B)](
        q, k, v, o, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        N, math.log2(math.e) / math.sqrt(D), D, BLOCK_Q, BLOCK_K, num_warps=4, num_stages=2,
    )  # fmt: skip
    return o
