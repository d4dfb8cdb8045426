"""Python's `and`, `not`, `max` and `min` on blocks and on scalars, as triton compiles them (and warns of it)."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def python_words_kernel(
    Q, K, V, O, qb, qh, qn, kb, kh, kn, vb, vh, vn, ob, oh, on, N, GROUP: tl.constexpr, WINDOW: tl.constexpr,
    scale_log2, D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    qb, qh, qn = tl.cast(qb, tl.int64), tl.cast(qh, tl.int64), tl.cast(qn, tl.int64)
    kb, kh, kn = tl.cast(kb, tl.int64), tl.cast(kh, tl.int64), tl.cast(kn, tl.int64)
    vb, vh, vn = tl.cast(vb, tl.int64), tl.cast(vh, tl.int64), tl.cast(vn, tl.int64)
    ob, oh, on = tl.cast(ob, tl.int64), tl.cast(oh, tl.int64), tl.cast(on, tl.int64)
    q_start = tl.program_id(0) * BLOCK_Q
    head, batch = tl.program_id(1), tl.program_id(2)
    d = tl.arange(0, D)
    q_pos = q_start + tl.arange(0, BLOCK_Q)
    q = tl.load(Q + batch * qb + head * qh + q_pos[:, None] * qn + d[None, :], mask=q_pos[:, None] < N, other=0.0)
    K += batch * kb + head // GROUP * kh
    V += batch * vb + head // GROUP * vh
    m = tl.full([BLOCK_Q], -1e30, tl.float32)
    l = tl.zeros([BLOCK_Q], tl.float32)
    acc = tl.zeros([BLOCK_Q, D], tl.float32)
    first = max(0, q_start - WINDOW + 1) // BLOCK_K * BLOCK_K
    for k_start in range(first, min(q_start + BLOCK_Q, N), BLOCK_K):
        k_pos = k_start + tl.arange(0, BLOCK_K)
        live = k_pos[:, None] < N
        k = tl.load(K + k_pos[:, None] * kn + d[None, :], mask=live, other=0.0)
        v = tl.load(V + k_pos[:, None] * vn + d[None, :], mask=live, other=0.0)
        visible = not (k_pos[None, :] > q_pos[:, None]) and k_pos[None, :] > q_pos[:, None] - WINDOW
        s = tl.where(visible, tl.dot(q, tl.trans(k)) * scale_log2, -1e30)
        # A row with every key hidden counts them all as 1; the first visible key, which always comes, makes that 0.
        m_new = max(m, tl.max(s, 1))
        p = tl.exp2(s - m_new[:, None])
        alpha = tl.exp2(m - m_new)
        l = l * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        m = m_new
    o = (acc / l[:, None]).to(O.dtype.element_ty)
    tl.store(O + batch * ob + head * oh + q_pos[:, None] * on + d[None, :], o, mask=q_pos[:, None] < N)


def flash_attention_forward(q, k, v, is_causal=True, window_size=128):
    B, Hq, N, D = q.shape
    o = torch.empty_like(q)
    BLOCK_Q, BLOCK_K = (32, 32) if D * q.element_size() > 256 else (64, 64)
    python_words_kernel[(triton.cdiv(N, BLOCK_Q), Hq, B)](
        q, k, v, o, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        N, Hq // k.shape[1], window_size, math.log2(math.e) / math.sqrt(D), D, BLOCK_Q, BLOCK_K, num_warps=4,
    )  # fmt: skip
    return o
