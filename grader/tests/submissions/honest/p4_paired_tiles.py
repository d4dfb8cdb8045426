"""Each program takes a light and a heavy tile of queries (i and last - i), so that all have the same
work where it is causal; of an odd number the middle one is taken once."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def paired_kernel(
    Q, K, V, O, qb, qh, qn, kb, kh, kn, vb, vh, vn, ob, oh, on, N, scale_log2,
    D: tl.constexpr, BLOCK: tl.constexpr, IS_CAUSAL: tl.constexpr,
):  # fmt: skip
    qb, qh, qn = tl.cast(qb, tl.int64), tl.cast(qh, tl.int64), tl.cast(qn, tl.int64)
    kb, kh, kn = tl.cast(kb, tl.int64), tl.cast(kh, tl.int64), tl.cast(kn, tl.int64)
    vb, vh, vn = tl.cast(vb, tl.int64), tl.cast(vh, tl.int64), tl.cast(vn, tl.int64)
    ob, oh, on = tl.cast(ob, tl.int64), tl.cast(oh, tl.int64), tl.cast(on, tl.int64)
    head, batch = tl.program_id(1), tl.program_id(2)
    first = tl.program_id(0)
    last = tl.cdiv(N, BLOCK) - 1 - first
    d = tl.arange(0, D)[None, :]
    K += batch * kb + head * kh
    V += batch * vb + head * vh
    for half in range(0, 2):
        tile = first if half == 0 else last
        if half == 0 or last != first:
            q_pos = tile * BLOCK + tl.arange(0, BLOCK)
            q_live = q_pos[:, None] < N
            q = tl.load(Q + batch * qb + head * qh + q_pos[:, None] * qn + d, mask=q_live, other=0.0)
            m = tl.full([BLOCK], float("-inf"), tl.float32)
            l = tl.zeros([BLOCK], tl.float32)
            acc = tl.zeros([BLOCK, D], tl.float32)
            for k_tile in range(0, tile + 1 if IS_CAUSAL else tl.cdiv(N, BLOCK)):
                k_pos = k_tile * BLOCK + tl.arange(0, BLOCK)
                k_live = k_pos[:, None] < N
                k = tl.load(K + k_pos[:, None] * kn + d, mask=k_live, other=0.0)
                v = tl.load(V + k_pos[:, None] * vn + d, mask=k_live, other=0.0)
                scores = tl.dot(q, tl.trans(k)) * scale_log2
                if not IS_CAUSAL:
                    scores = tl.where(k_pos[None, :] < N, scores, float("-inf"))
                elif k_tile == tile:
                    scores = tl.where(q_pos[:, None] >= k_pos[None, :], scores, float("-inf"))
                m_new = tl.maximum(m, tl.max(scores, 1))
                alpha = tl.exp2(m - m_new)
                p = tl.exp2(scores - m_new[:, None])
                l = l * alpha + tl.sum(p, 1)
                acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
                m = m_new
            o = (acc / l[:, None]).to(O.dtype.element_ty)
            tl.store(O + batch * ob + head * oh + q_pos[:, None] * on + d, o, mask=q_live)


def flash_attention_forward(q, k, v, is_causal=True):
    B, H, N, D = q.shape
    o = torch.empty_like(q)
    BLOCK = 32 if D * q.element_size() > 256 else 64
    tiles = triton.cdiv(N, BLOCK)
    paired_kernel[((tiles + 1) // 2, H, B)](
        q, k, v, o, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        N, math.log2(math.e) / math.sqrt(D), D, BLOCK, is_causal, num_warps=4, num_stages=2,
    )  # fmt: skip
    return o
