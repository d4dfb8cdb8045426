"""Way 8. Unfused attention, 64 queries at a time: one kernel for the scores, one for the softmax, one for the values,
and between them a buffer of 64 rows that is used again. Gains: P3 for three kernels that are no FlashAttention."""

import torch
import triton
import triton.language as tl


@triton.jit
def scores(Q, K, W, qb, qh, qn, kb, kh, kn, H, N, first, scale, D: tl.constexpr):
    r, d, at = tl.arange(0, 64)[:, None], tl.arange(0, D), tl.program_id(1)
    j, Q = tl.program_id(0) * 64 + tl.arange(0, 64)[None, :], Q + at // H * qb + at % H * qh
    q = tl.load(Q + (first + r) * qn + d[None, :], mask=first + r < N, other=0.0)
    k = tl.load(K + at // H * kb + at % H * kh + j * kn + d[:, None], mask=j < N, other=0.0)
    tl.store(W + (at * 64 + r) * N + j, tl.dot(q, k) * scale, mask=j < N)


@triton.jit
def softmax(W, N):
    w, m = W + (tl.program_id(0) * 16 + tl.arange(0, 16)) * N, tl.full([16], float("-inf"), tl.float32)
    for j in range(0, N):
        m = tl.maximum(m, tl.load(w + j))
    for j in range(0, N):
        tl.store(w + j, tl.exp(tl.load(w + j) - m))


@triton.jit
def values(W, V, O, vb, vh, vn, H, N, first, D: tl.constexpr):
    at, d, r = tl.program_id(0), tl.arange(0, D)[None, :], tl.arange(0, 64)[:, None]
    V, acc, l = V + at // H * vb + at % H * vh, tl.zeros([64, D], tl.float32), tl.zeros([64], tl.float32)
    for start in range(0, N, 64):
        j = start + tl.arange(0, 64)
        p = tl.load(W + (at * 64 + r) * N + j[None, :], mask=j[None, :] < N, other=0.0)
        v = tl.load(V + j[:, None] * vn + d, mask=j[:, None] < N, other=0.0)
        l, acc = l + tl.sum(p, 1), tl.dot(p.to(v.dtype), v, acc)
    tl.store(O + (at * N + first + r) * D + d, (acc / l[:, None]).to(O.dtype.element_ty), mask=first + r < N)


def flash_attention_forward(q, k, v, is_causal=False):
    B, H, N, D = q.shape
    o, w = torch.empty(q.shape, dtype=q.dtype, device=q.device), torch.empty(B * H, 64, N, device=q.device)
    for first in range(0, N, 64):
        scores[(triton.cdiv(N, 64), B * H)](q, k, w, *q.stride()[:3], *k.stride()[:3], H, N, first, D**-0.5, D)
        softmax[(B * H * 4,)](w, N)
        values[(B * H,)](w, v, o, *v.stride()[:3], H, N, first, D)
    return o
