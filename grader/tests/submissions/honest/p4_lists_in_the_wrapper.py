"""The wrapper keeps launches, heads and outputs in Python lists: a list as the grid, as an index, and for torch.cat."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def kernel(
    Q, K, V, O, qb, qh, qn, kb, kh, kn, vb, vh, vn, ob, oh, on, N, scale,
    D: tl.constexpr, BLOCK: tl.constexpr, IS_CAUSAL: tl.constexpr,
):  # fmt: skip
    head, batch = tl.program_id(1), tl.program_id(2)
    q_start = tl.program_id(0) * BLOCK
    q_pos, d = q_start + tl.arange(0, BLOCK), tl.arange(0, D)
    q = tl.load(Q + batch * qb + head * qh + q_pos[:, None] * qn + d[None, :], mask=q_pos[:, None] < N, other=0.0)
    m = tl.full([BLOCK], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([BLOCK, D], tl.float32)
    for k_start in range(0, tl.minimum(q_start + BLOCK, N) if IS_CAUSAL else N, BLOCK):
        k_pos = k_start + tl.arange(0, BLOCK)
        live = k_pos[:, None] < N
        k = tl.load(K + batch * kb + head * kh + k_pos[:, None] * kn + d[None, :], mask=live, other=0.0)
        v = tl.load(V + batch * vb + head * vh + k_pos[:, None] * vn + d[None, :], mask=live, other=0.0)
        seen = k_pos[None, :] <= q_pos[:, None] if IS_CAUSAL else k_pos[None, :] < N
        s = tl.where(seen, tl.dot(q, tl.trans(k)) * scale, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m_new[:, None])
        alpha = tl.exp(m - m_new)
        l = l * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v)
        m = m_new
    o = (acc / l[:, None]).to(O.dtype.element_ty)
    tl.store(O + batch * ob + head * oh + q_pos[:, None] * on + d[None, :], o, mask=q_pos[:, None] < N)


def flash_attention_forward(q, k, v, is_causal=True):
    B, H, N, D = q.shape
    block = 32 if D * q.element_size() > 256 else 64
    odd, even = [h for h in range(H) if h % 2], [h for h in range(H) if h % 2 == 0]
    outputs = []
    for heads in [even, odd]:
        if heads:
            tensors = [q[:, heads], k[:, heads], v[:, heads], q.new_empty([B, len(heads), N, D])]
            strides = [stride for tensor in tensors for stride in tensor.stride()[:3]]
            grid = [triton.cdiv(N, block), len(heads), B]
            kernel[grid](*tensors, *strides, N, 1.0 / math.sqrt(D), D, block, is_causal)
            outputs.append(tensors[-1])
    places = torch.tensor(even + odd, device=q.device)
    return torch.cat(outputs, dim=1)[:, places.argsort()]
