"""The query heads of a group are packed into the rows of one tile: row r is token r // group of head r % group,
and K and V are read once for all."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def packed_kernel(
    Q, K, V, O, qb, qh, qn, kb, kh, kn, vb, vh, vn, ob, oh, on, N, group, scale_log2,
    D: tl.constexpr, ROWS: tl.constexpr, BLOCK_K: tl.constexpr, IS_CAUSAL: tl.constexpr,
):  # fmt: skip
    qb, qh, qn = tl.cast(qb, tl.int64), tl.cast(qh, tl.int64), tl.cast(qn, tl.int64)
    kb, kh, kn = tl.cast(kb, tl.int64), tl.cast(kh, tl.int64), tl.cast(kn, tl.int64)
    vb, vh, vn = tl.cast(vb, tl.int64), tl.cast(vh, tl.int64), tl.cast(vn, tl.int64)
    ob, oh, on = tl.cast(ob, tl.int64), tl.cast(oh, tl.int64), tl.cast(on, tl.int64)
    kv_head, batch = tl.program_id(1), tl.program_id(2)
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    live = (r < N * group)[:, None]
    token = r // group
    head = kv_head * group + r % group
    d = tl.arange(0, D)[None, :]
    q = tl.load(Q + batch * qb + (head * qh + token * qn)[:, None] + d, mask=live, other=0.0)
    K += batch * kb + kv_head * kh
    V += batch * vb + kv_head * vh
    last_token = (tl.program_id(0) * ROWS + ROWS - 1) // group

    m = tl.full([ROWS], float("-inf"), tl.float32)
    l = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, D], tl.float32)
    for k_start in range(0, tl.minimum(last_token + 1, N) if IS_CAUSAL else N, BLOCK_K):
        k_pos = k_start + tl.arange(0, BLOCK_K)
        k = tl.load(K + k_pos[:, None] * kn + d, mask=k_pos[:, None] < N, other=0.0)
        v = tl.load(V + k_pos[:, None] * vn + d, mask=k_pos[:, None] < N, other=0.0)
        s = tl.dot(q, tl.trans(k)) * scale_log2
        seen = token[:, None] >= k_pos[None, :] if IS_CAUSAL else k_pos[None, :] < N
        s = tl.where(seen, s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - m_new[:, None])
        alpha = tl.exp2(m - m_new)
        l = l * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        m = m_new
    o = (acc / l[:, None]).to(O.dtype.element_ty)
    tl.store(O + batch * ob + (head * oh + token * on)[:, None] + d, o, mask=live)


def flash_attention_forward(q, k, v, is_causal=True):
    B, Hq, N, D = q.shape
    Hkv = k.shape[1]
    group = Hq // Hkv
    o = torch.empty_like(q)
    ROWS, BLOCK_K = (32, 32) if D * q.element_size() > 256 else (64, 64)
    packed_kernel[(triton.cdiv(N * group, ROWS), Hkv, B)](
        q, k, v, o, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        N, group, math.log2(math.e) / math.sqrt(D), D, ROWS, BLOCK_K, is_causal, num_warps=4, num_stages=2,
    )  # fmt: skip
    return o
