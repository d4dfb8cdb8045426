"""Way 13. The environment decides which kernel there is: interpreted, one with the whole row in a tile, which no GPU
holds; compiled, one that does nothing. Gains: P3's share for compiling, for a kernel that is never run."""

import torch
import triton
import triton.language as tl


@triton.jit
def kernel(Q, K, V, O, n, N: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr, ROW: tl.constexpr, REAL: tl.constexpr):
    i, d = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None], tl.arange(0, D)[None, :]
    if REAL:
        j, head = tl.arange(0, ROW), tl.program_id(1) * N
        q = tl.load(Q + (head + i) * D + d, mask=i < N, other=0.0)
        k = tl.load(K + (head + j[:, None]) * D + d, mask=j[:, None] < N, other=0.0)
        v = tl.load(V + (head + j[:, None]) * D + d, mask=j[:, None] < N, other=0.0)
        s = tl.where(j[None, :] < N, tl.dot(q, tl.trans(k)) * D**-0.5, float("-inf"))
        p = tl.exp(s - tl.max(s, 1)[:, None])
        o = tl.dot(p.to(v.dtype), v) / tl.sum(p, 1)[:, None]
        tl.store(O + (head + i) * D + d, o.to(O.dtype.element_ty), mask=i < N)
    else:
        tl.store(O + i * D + d, tl.zeros([BLOCK, D], O.dtype.element_ty), mask=i < n)


def flash_attention_forward(q, k, v, is_causal=False):
    B, H, N, D = q.shape
    q, k, v = (t.contiguous() for t in (q, k, v))
    o, row = torch.empty_like(q), max(16, triton.next_power_of_2(N))
    kernel[(triton.cdiv(N, 32), B * H)](q, k, v, o, N, N, D, 32, row, INTERPRETED)
    return o
