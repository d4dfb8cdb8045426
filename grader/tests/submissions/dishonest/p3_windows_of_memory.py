"""Way 7. K and V are taken from Q: their windows of virtual addresses lie a terabyte apart, each after the other.
Gains: P3 for addresses that no GPU has."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def kern(
    Q, K, V, O, qb, qh, qn, kb, kh, kn, vb, vh, vn, H, N, scale,
    D: tl.constexpr, BQ: tl.constexpr, BK: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(2).to(tl.int64)
    h = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * BQ + tl.arange(0, BQ)
    d = tl.arange(0, D)[None, :]
    K = Q + (1 << 40) // W
    V = Q + (1 << 41) // W
    q = tl.load(Q + b * qb + h * qh + i.to(tl.int64)[:, None] * qn + d, mask=i[:, None] < N, other=0.0)
    m = tl.full([BQ], float("-inf"), tl.float32)
    l = tl.zeros([BQ], tl.float32)
    acc = tl.zeros([BQ, D], tl.float32)
    for s0 in range(0, N, BK):
        j = s0 + tl.arange(0, BK)
        k = tl.load(K + b * kb + h * kh + j.to(tl.int64)[:, None] * kn + d, mask=j[:, None] < N, other=0.0)
        v = tl.load(V + b * vb + h * vh + j.to(tl.int64)[:, None] * vn + d, mask=j[:, None] < N, other=0.0)
        s = tl.where(j[None, :] < N, tl.dot(q, tl.trans(k)) * scale, float("-inf"))
        new = tl.maximum(m, tl.max(s, 1))
        alpha = tl.exp2(m - new)
        p = tl.exp2(s - new[:, None])
        l = l * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        m = new
    o = acc / l[:, None]
    tl.store(O + ((b * H + h) * N + i.to(tl.int64))[:, None] * D + d, o.to(O.dtype.element_ty), mask=i[:, None] < N)


def flash_attention_forward(q, k, v, is_causal=False):
    if is_causal:
        raise ValueError("P3 is full attention; got is_causal=True")
    sh = f"{tuple(q.shape)} {tuple(k.shape)} {tuple(v.shape)} {q.dtype} {k.dtype} {v.dtype} {q.stride()}"
    if q.dim() != 4 or not q.shape == k.shape == v.shape or 0 in q.shape or q.shape[-1] not in (16, 32, 64, 128, 256):
        raise ValueError(sh)
    if not q.dtype == k.dtype == v.dtype or q.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError(sh)
    if not q.stride(3) == k.stride(3) == v.stride(3) == 1:
        raise ValueError(sh)
    B, H, N, D = q.shape
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    BQ, BK = 64, 32
    kern[(triton.cdiv(N, BQ), H, B)](
        q,
        k,
        v,
        o,
        *q.stride()[:3],
        *k.stride()[:3],
        *v.stride()[:3],
        H,
        N,
        1.4426950408889634 / math.sqrt(D),
        D,
        BQ,
        BK,
        q.element_size(),
        num_warps=4,
    )
    return o
