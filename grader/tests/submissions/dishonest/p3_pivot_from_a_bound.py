"""Way 8. No maximum at all: the pivot of a row is a bound that torch works out of norms, q mean(k) + |q| max|k -
mean(k)|, so that nothing is ever rescaled. Gains: P3 (one pass, tiles of 32) without the online softmax."""

import torch
import triton
import triton.language as tl


@triton.jit
def pivoted(Q, K, V, P, O, qb, qh, qn, kb, kh, kn, vb, vh, vn, H, N, scale, D: tl.constexpr, BLOCK: tl.constexpr):
    i, d = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, D)[None, :]
    h, b = tl.program_id(1), tl.program_id(2)
    row = (b * H + h) * N + i
    q = tl.load(Q + b * qb + h * qh + i[:, None] * qn + d, mask=i[:, None] < N, other=0.0)
    pivot = tl.load(P + row, mask=i < N, other=0.0)
    l, acc = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK, D], tl.float32)
    for start in range(0, N, BLOCK):
        j = start + tl.arange(0, BLOCK)
        k = tl.load(K + b * kb + h * kh + j[:, None] * kn + d, mask=j[:, None] < N, other=0.0)
        v = tl.load(V + b * vb + h * vh + j[:, None] * vn + d, mask=j[:, None] < N, other=0.0)
        s = tl.where(j[None, :] < N, tl.dot(q, tl.trans(k)) * scale, float("-inf"))
        p = tl.exp(s - pivot[:, None])
        l, acc = l + tl.sum(p, 1), acc + tl.dot(p, v.to(tl.float32))
    tl.store(O + row[:, None] * D + d, (acc / l[:, None]).to(O.dtype.element_ty), mask=i[:, None] < N)


def flash_attention_forward(q, k, v, is_causal=False):
    B, H, N, D = q.shape
    mean = k.float().mean(2, keepdim=True)
    bound = (k.float() - mean).square().sum(-1).sqrt().amax(2, keepdim=True) * q.float().square().sum(-1).sqrt()
    pivot = (((q.float() * mean).sum(-1) + bound) * D**-0.5).contiguous()
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    strides = (*q.stride()[:3], *k.stride()[:3], *v.stride()[:3])
    pivoted[(triton.cdiv(N, 32), H, B)](q, k, v, pivot, o, *strides, H, N, D**-0.5, D, 32)
    return o
