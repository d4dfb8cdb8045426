"""Way 8. Tiles of 64 keys, but all of them at once: K is one block (tiles, 64, D), the dots are batched, the softmax
runs over two axes. Gains: P3 without the online softmax where a tile's last axis is what is measured."""

import torch
import triton
import triton.language as tl


@triton.jit
def batched(Q, K, V, O, qb, qh, qn, kb, kh, kn, vb, vh, vn, H, N, scale, D: tl.constexpr, T: tl.constexpr):
    i, d = tl.program_id(0) * 16 + tl.arange(0, 16), tl.arange(0, D)
    h, b = tl.program_id(1), tl.program_id(2)
    q = tl.load(Q + b * qb + h * qh + i[:, None] * qn + d[None, :], mask=i[:, None] < N, other=0.0)
    j = (tl.arange(0, T)[:, None] * 64 + tl.arange(0, 64)[None, :])[:, :, None]
    k = tl.load(K + b * kb + h * kh + j * kn + d[None, None, :], mask=j < N, other=0.0)
    v = tl.load(V + b * vb + h * vh + j * vn + d[None, None, :], mask=j < N, other=0.0)
    s = tl.dot(tl.broadcast_to(q[None, :, :], (T, 16, D)), tl.permute(k, (0, 2, 1))) * scale
    s = tl.where(tl.permute(j, (0, 2, 1)) < N, s, float("-inf"))
    p = tl.exp(s - tl.max(tl.max(s, 2), 0)[None, :, None])
    o = tl.sum(tl.dot(p.to(v.dtype), v), 0) / tl.sum(tl.sum(p, 2), 0)[:, None]
    tl.store(O + ((b * H + h) * N + i)[:, None] * D + d[None, :], o.to(O.dtype.element_ty), mask=i[:, None] < N)


def flash_attention_forward(q, k, v, is_causal=False):
    B, H, N, D = q.shape
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    strides = (*q.stride()[:3], *k.stride()[:3], *v.stride()[:3])
    tiles = triton.next_power_of_2(triton.cdiv(N, 64))
    batched[(triton.cdiv(N, 16), H, B)](q, k, v, o, *strides, H, N, D**-0.5, D, tiles)
    return o
