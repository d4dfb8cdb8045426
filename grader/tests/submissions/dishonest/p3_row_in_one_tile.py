"""Way 8. One tile of keys as wide as the row, at every length: softmax as in a textbook. Gains: P3 without the online
softmax."""

import torch
import triton
import triton.language as tl


@triton.jit
def row_kernel(
    Q, K, V, O, qb, qh, qn, kb, kh, kn, vb, vh, vn, H, N, scale, D: tl.constexpr, BQ: tl.constexpr, ROW: tl.constexpr
):
    i, j, d = tl.program_id(0) * BQ + tl.arange(0, BQ), tl.arange(0, ROW), tl.arange(0, D)[None, :]
    h, b = tl.program_id(1), tl.program_id(2)
    q = tl.load(Q + b * qb + h * qh + i[:, None] * qn + d, mask=i[:, None] < N, other=0.0)
    k = tl.load(K + b * kb + h * kh + j[:, None] * kn + d, mask=j[:, None] < N, other=0.0)
    v = tl.load(V + b * vb + h * vh + j[:, None] * vn + d, mask=j[:, None] < N, other=0.0)
    s = tl.where(j[None, :] < N, tl.dot(q, tl.trans(k)) * scale, float("-inf"))
    p = tl.exp(s - tl.max(s, 1)[:, None])
    o = tl.dot(p.to(v.dtype), v) / tl.sum(p, 1)[:, None]
    tl.store(O + ((b * H + h) * N + i)[:, None] * D + d, o.to(O.dtype.element_ty), mask=i[:, None] < N)


def flash_attention_forward(q, k, v, is_causal=False):
    B, H, N, D = q.shape
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    strides = (*q.stride()[:3], *k.stride()[:3], *v.stride()[:3])
    row = max(16, triton.next_power_of_2(N))
    row_kernel[(triton.cdiv(N, 16), H, B)](q, k, v, o, *strides, H, N, D**-0.5, D, 16, row)
    return o
