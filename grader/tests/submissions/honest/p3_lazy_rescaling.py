"""As in FlashAttention-4, acc is rescaled only when some row's maximum has grown by more than 4 (in base 2); until
then p may exceed 1."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def lazy_kernel(
    Q, K, V, O, qb, qh, qn, kb, kh, kn, vb, vh, vn, ob, oh, on, N, scale_log2,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    qb, qh, qn = tl.cast(qb, tl.int64), tl.cast(qh, tl.int64), tl.cast(qn, tl.int64)
    kb, kh, kn = tl.cast(kb, tl.int64), tl.cast(kh, tl.int64), tl.cast(kn, tl.int64)
    vb, vh, vn = tl.cast(vb, tl.int64), tl.cast(vh, tl.int64), tl.cast(vn, tl.int64)
    ob, oh, on = tl.cast(ob, tl.int64), tl.cast(oh, tl.int64), tl.cast(on, tl.int64)
    head, batch = tl.program_id(1), tl.program_id(2)
    d = tl.arange(0, D)
    q_pos = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    q = tl.load(Q + batch * qb + head * qh + q_pos[:, None] * qn + d[None, :], mask=q_pos[:, None] < N, other=0.0)
    pivot = tl.full([BLOCK_Q], float("-inf"), tl.float32)  # at most 4 below the running maximum
    row_sum = tl.zeros([BLOCK_Q], tl.float32)
    acc = tl.zeros([BLOCK_Q, D], tl.float32)
    for k_start in range(0, N, BLOCK_K):
        k_pos = k_start + tl.arange(0, BLOCK_K)
        live = k_pos[:, None] < N
        k = tl.load(K + batch * kb + head * kh + k_pos[:, None] * kn + d[None, :], mask=live, other=0.0)
        v = tl.load(V + batch * vb + head * vh + k_pos[:, None] * vn + d[None, :], mask=live, other=0.0)
        scores = tl.where(k_pos[None, :] < N, tl.dot(q, tl.trans(k)) * scale_log2, float("-inf"))
        tile_max = tl.max(scores, 1)
        if tl.max(tile_max - pivot, 0) > 4.0:
            new_pivot = tl.maximum(pivot, tile_max)
            alpha = tl.exp2(pivot - new_pivot)
            row_sum *= alpha
            acc *= alpha[:, None]
            pivot = new_pivot
        p = tl.exp2(scores - pivot[:, None])
        row_sum += tl.sum(p, 1)
        acc += tl.dot(p.to(v.dtype), v)
    o = (acc / row_sum[:, None]).to(O.dtype.element_ty)
    tl.store(O + batch * ob + head * oh + q_pos[:, None] * on + d[None, :], o, mask=q_pos[:, None] < N)


def flash_attention_forward(q, k, v, is_causal=False):
    B, H, N, D = q.shape
    o = torch.empty_like(q)
    BLOCK_Q, BLOCK_K = (32, 32) if D * q.element_size() > 256 else (64, 32)
    lazy_kernel[(triton.cdiv(N, BLOCK_Q), H, B)](
        q, k, v, o, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        N, math.log2(math.e) / math.sqrt(D), D, BLOCK_Q, BLOCK_K, num_warps=4, num_stages=2,
    )  # fmt: skip
    return o
