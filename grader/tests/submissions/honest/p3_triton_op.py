"""An operator that torch.compile looks into: torch.library.triton_op, which writes into its argument."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def kernel(
    Q, K, V, O, qb, qh, qn, kb, kh, kn, vb, vh, vn, ob, oh, on, N, scale, D: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    qb, qh, qn = tl.cast(qb, tl.int64), tl.cast(qh, tl.int64), tl.cast(qn, tl.int64)
    kb, kh, kn = tl.cast(kb, tl.int64), tl.cast(kh, tl.int64), tl.cast(kn, tl.int64)
    vb, vh, vn = tl.cast(vb, tl.int64), tl.cast(vh, tl.int64), tl.cast(vn, tl.int64)
    ob, oh, on = tl.cast(ob, tl.int64), tl.cast(oh, tl.int64), tl.cast(on, tl.int64)
    head, batch = tl.program_id(1), tl.program_id(2)
    q_pos, d = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, D)
    q = tl.load(Q + batch * qb + head * qh + q_pos[:, None] * qn + d[None, :], mask=q_pos[:, None] < N, other=0.0)
    m = tl.full([BLOCK], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([BLOCK, D], tl.float32)
    for k_start in range(0, N, BLOCK):
        k_pos = k_start + tl.arange(0, BLOCK)
        live = k_pos[:, None] < N
        k = tl.load(K + batch * kb + head * kh + k_pos[:, None] * kn + d[None, :], mask=live, other=0.0)
        v = tl.load(V + batch * vb + head * vh + k_pos[:, None] * vn + d[None, :], mask=live, other=0.0)
        s = tl.where(k_pos[None, :] < N, tl.dot(q, tl.trans(k)) * scale, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m_new[:, None])
        alpha = tl.exp(m - m_new)
        l = l * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v)
        m = m_new
    o = (acc / l[:, None]).to(O.dtype.element_ty)
    tl.store(O + batch * ob + head * oh + q_pos[:, None] * on + d[None, :], o, mask=q_pos[:, None] < N)


@torch.library.triton_op("course::attend_into", mutates_args={"o"})
def attend_into(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor, block: int) -> None:
    B, H, N, D = q.shape
    strides = *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3]
    grid = (triton.cdiv(N, block), H, B)
    torch.library.wrap_triton(kernel)[grid](q, k, v, o, *strides, N, 1.0 / math.sqrt(D), D=D, BLOCK=block)


def flash_attention_forward(q, k, v, is_causal=False):
    o = torch.empty_like(q)
    attend_into(q, k, v, o, 32 if q.shape[-1] * q.element_size() > 256 else 64)
    return o
