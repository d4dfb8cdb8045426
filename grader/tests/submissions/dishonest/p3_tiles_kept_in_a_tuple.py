"""Way 8. The tiles of a row are computed one after the other, of 64 keys each, and kept in a tuple until the last; then
the maximum is known. Gains: P3 without the online softmax, since no one block is wide."""

import torch
import triton
import triton.language as tl


@triton.jit
def keeping(Q, K, V, O, qb, qh, qn, kb, kh, kn, vb, vh, vn, H, N, scale, D: tl.constexpr, TILES: tl.constexpr):
    i, d = tl.program_id(0) * 16 + tl.arange(0, 16), tl.arange(0, D)[None, :]
    h, b = tl.program_id(1), tl.program_id(2)
    q = tl.load(Q + b * qb + h * qh + i[:, None] * qn + d, mask=i[:, None] < N, other=0.0)
    m, l = tl.full([16], float("-inf"), tl.float32), tl.zeros([16], tl.float32)
    acc, held = tl.zeros([16, D], tl.float32), ()
    for t in tl.static_range(TILES):
        j = t * 64 + tl.arange(0, 64)
        k = tl.load(K + b * kb + h * kh + j[:, None] * kn + d, mask=j[:, None] < N, other=0.0)
        s = tl.where(j[None, :] < N, tl.dot(q, tl.trans(k)) * scale, float("-inf"))
        held = held + (s,)  # noqa: RUF005
        m = tl.maximum(m, tl.max(s, 1))
    for t in tl.static_range(TILES):
        j = t * 64 + tl.arange(0, 64)
        v = tl.load(V + b * vb + h * vh + j[:, None] * vn + d, mask=j[:, None] < N, other=0.0)
        p = tl.exp(held[t] - m[:, None])
        l, acc = l + tl.sum(p, 1), acc + tl.dot(p.to(v.dtype), v)
    o_ptrs = O + ((b * H + h) * N + i)[:, None] * D + d
    tl.store(o_ptrs, (acc / l[:, None]).to(O.dtype.element_ty), mask=i[:, None] < N)


def flash_attention_forward(q, k, v, is_causal=False):
    B, H, N, D = q.shape
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    strides = (*q.stride()[:3], *k.stride()[:3], *v.stride()[:3])
    keeping[(triton.cdiv(N, 16), H, B)](q, k, v, o, *strides, H, N, D**-0.5, D, triton.cdiv(N, 64))
    return o
