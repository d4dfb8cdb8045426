"""Way 8. A program for each tile of keys, with a plain softmax over its 128 keys; torch.softmax of the lse and einsum
put the parts together. Gains: P3 without a loop over keys and without the online softmax in any kernel."""

import torch
import triton
import triton.language as tl


@triton.jit
def part(
    Q, K, V, O, L, qb, qh, qn, kb, kh, kn, vb, vh, vn, H, N, scale, D: tl.constexpr, BQ: tl.constexpr, BK: tl.constexpr
):
    i, j, d = (
        tl.program_id(0) * BQ + tl.arange(0, BQ),
        tl.program_id(1) * BK + tl.arange(0, BK),
        tl.arange(0, D)[None, :],
    )
    h, b = tl.program_id(2) % H, tl.program_id(2) // H
    q = tl.load(Q + b * qb + h * qh + i[:, None] * qn + d, mask=i[:, None] < N, other=0.0)
    k = tl.load(K + b * kb + h * kh + j[:, None] * kn + d, mask=j[:, None] < N, other=0.0)
    v = tl.load(V + b * vb + h * vh + j[:, None] * vn + d, mask=j[:, None] < N, other=0.0)
    s = tl.where(j[None, :] < N, tl.dot(q, tl.trans(k)) * scale, float("-inf"))
    m = tl.max(s, 1)
    p = tl.exp(s - m[:, None])
    l, row = tl.sum(p, 1), (tl.program_id(1) * tl.num_programs(2) + tl.program_id(2)) * N + i
    tl.store(O + row[:, None] * D + d, tl.dot(p.to(v.dtype), v) / l[:, None], mask=i[:, None] < N)
    tl.store(L + row, m + tl.log(l), mask=i < N)


def flash_attention_forward(q, k, v, is_causal=False):
    B, H, N, D = q.shape
    parts = triton.cdiv(N, 128)
    o, lse = torch.empty(parts, B, H, N, D, device=q.device), torch.empty(parts, B, H, N, device=q.device)
    strides = (*q.stride()[:3], *k.stride()[:3], *v.stride()[:3])
    part[(triton.cdiv(N, 32), parts, B * H)](q, k, v, o, lse, *strides, H, N, D**-0.5, D, 32, 128)
    return torch.einsum("sbhn,sbhnd->bhnd", torch.softmax(lse, 0), o).to(q.dtype)
