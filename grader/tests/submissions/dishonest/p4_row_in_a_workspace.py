"""Way 8. One program a head, and a workspace no larger than q: the scores of D rows go to memory tile by tile and are
read again when the maximum is known. K and V are loaded once. Gains: P4, work included, without the online softmax."""

import torch
import triton
import triton.language as tl


@triton.jit
def kernel(Q, K, V, O, W, qb, qh, qn, kb, kh, kn, vb, vh, vn, H, N, scale, D: tl.constexpr, BK: tl.constexpr):
    h, b, d = tl.program_id(0), tl.program_id(1), tl.arange(0, D)[None, :]
    Q, K, V, W = Q + b * qb + h * qh, K + b * kb + h * kh, V + b * vb + h * vh, W + (b * H + h) * N * D
    for begin in range(0, N, D):
        i = begin + tl.arange(0, D)
        w, end = W + tl.arange(0, D)[:, None] * N, tl.minimum(begin + D, N)
        q = tl.load(Q + i[:, None] * qn + d, mask=i[:, None] < N, other=0.0)
        m, l, acc = tl.full([D], float("-inf"), tl.float32), tl.zeros([D], tl.float32), tl.zeros([D, D], tl.float32)
        for start in range(0, end, BK):
            j = start + tl.arange(0, BK)
            k = tl.load(K + j[:, None] * kn + d, mask=j[:, None] < N, other=0.0)
            s = tl.where(j[None, :] <= i[:, None], tl.dot(q, tl.trans(k)) * scale, float("-inf"))
            m = tl.maximum(m, tl.max(s, 1))
            tl.store(w + j[None, :], s, mask=j[None, :] < N)
        tl.debug_barrier()
        for start in range(0, end, BK):
            j = start + tl.arange(0, BK)
            v = tl.load(V + j[:, None] * vn + d, mask=j[:, None] < N, other=0.0)
            p = tl.exp(tl.load(w + j[None, :], mask=j[None, :] < N, other=float("-inf")) - m[:, None])
            l, acc = l + tl.sum(p, 1), acc + tl.dot(p.to(v.dtype), v)
        tl.debug_barrier()
        o_ptrs = O + ((b * H + h) * N + i)[:, None] * D + d
        tl.store(o_ptrs, (acc / l[:, None]).to(O.dtype.element_ty), mask=i[:, None] < N)


def flash_attention_forward(q, k, v, is_causal=True):
    B, H, N, D = q.shape
    o, workspace = torch.empty(q.shape, dtype=q.dtype, device=q.device), torch.empty(q.shape, device=q.device)
    strides = (*q.stride()[:3], *k.stride()[:3], *v.stride()[:3])
    kernel[(H, B)](q, k, v, o, workspace, *strides, H, N, D**-0.5, D, 32)
    return o
