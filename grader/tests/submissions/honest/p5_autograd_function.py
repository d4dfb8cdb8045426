"""A torch.autograd.Function with a forward only, extra optional arguments, a heuristic for the tiles, and a self-
test under __main__."""

import math

import torch
import triton
import triton.language as tl


@triton.heuristics(
    {
        "BLOCK_Q": lambda args: 32 if args["D"] * args["Q"].element_size() > 256 else 64,
        "EVEN": lambda args: args["N"] % 32 == 0,
    }
)
@triton.jit
def _forward_kernel(
    Q, K, V, O, qb, qh, qn, kb, kh, kn, vb, vh, vn, ob, oh, on, N, GROUP: tl.constexpr, scale,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, EVEN: tl.constexpr, IS_CAUSAL: tl.constexpr,
):  # fmt: skip
    qb, qh, qn = tl.cast(qb, tl.int64), tl.cast(qh, tl.int64), tl.cast(qn, tl.int64)
    kb, kh, kn = tl.cast(kb, tl.int64), tl.cast(kh, tl.int64), tl.cast(kn, tl.int64)
    vb, vh, vn = tl.cast(vb, tl.int64), tl.cast(vh, tl.int64), tl.cast(vn, tl.int64)
    ob, oh, on = tl.cast(ob, tl.int64), tl.cast(oh, tl.int64), tl.cast(on, tl.int64)
    LOG2E: tl.constexpr = 1.4426950408889634
    q_start = tl.program_id(0) * BLOCK_Q
    head, batch = tl.program_id(1), tl.program_id(2)
    Q += batch * qb + head * qh
    K += batch * kb + (head // GROUP) * kh
    V += batch * vb + (head // GROUP) * vh
    d = tl.arange(0, D)
    q_pos = q_start + tl.arange(0, BLOCK_Q)
    q = tl.load(Q + q_pos[:, None] * qn + d[None, :], mask=q_pos[:, None] < N, other=0.0)
    m = tl.full([BLOCK_Q], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_Q], tl.float32)
    acc = tl.zeros([BLOCK_Q, D], tl.float32)
    for k_start in range(0, tl.minimum(q_start + BLOCK_Q, N) if IS_CAUSAL else N, BLOCK_K):
        k_start = tl.multiple_of(k_start, BLOCK_K)
        k_pos = k_start + tl.arange(0, BLOCK_K)
        if EVEN:
            k = tl.load(K + k_pos[:, None] * kn + d[None, :])
            v = tl.load(V + k_pos[:, None] * vn + d[None, :])
        else:
            k = tl.load(K + k_pos[:, None] * kn + d[None, :], mask=k_pos[:, None] < N, other=0.0)
            v = tl.load(V + k_pos[:, None] * vn + d[None, :], mask=k_pos[:, None] < N, other=0.0)
        s = tl.dot(q, tl.trans(k)) * (scale * LOG2E)
        seen = q_pos[:, None] >= k_pos[None, :] if IS_CAUSAL else k_pos[None, :] < N
        s = tl.where(seen, s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - m_new[:, None])
        alpha = tl.exp2(m - m_new)
        l = l * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        m = m_new
    o = (acc / l[:, None]).to(O.dtype.element_ty)
    tl.store(O + batch * ob + head * oh + q_pos[:, None] * on + d[None, :], o, mask=q_pos[:, None] < N)


class Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, scale, is_causal):
        B, Hq, N, D = q.shape
        o = torch.empty_like(q)
        grid = lambda meta: (triton.cdiv(N, meta["BLOCK_Q"]), Hq, B)  # noqa: E731
        _forward_kernel[grid](
            q, k, v, o, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
            N, Hq // k.shape[1], scale, D=D, BLOCK_K=32, IS_CAUSAL=is_causal,
        )  # fmt: skip
        ctx.save_for_backward(q, k, v, o)
        return o


def flash_attention_forward(q, k, v, is_causal=True, scale=None):
    return Attention.apply(q, k, v, 1.0 / math.sqrt(q.shape[-1]) if scale is None else scale, is_causal)


if __name__ == "__main__":
    x = torch.randn(1, 2, 100, 64, device="cuda", dtype=torch.float16)
    y = torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)
    torch.testing.assert_close(flash_attention_forward(x, x, x), y, atol=1e-2, rtol=0)
