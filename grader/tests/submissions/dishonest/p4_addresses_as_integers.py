"""Way 14. K and V are passed as integers, their addresses (as grouped kernels do), and become pointers in the kernel:
no argument says what is loaded. Every tile is. Gains: P4's half for work where loads are told by their argument."""

import torch
import triton
import triton.language as tl


@triton.jit
def by_address(
    Q, k_address, v_address, O, qb, qh, qn, kb, kh, kn, vb, vh, vn, H, N, scale, D: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    K, V = k_address.to(tl.pointer_type(Q.dtype.element_ty)), v_address.to(tl.pointer_type(Q.dtype.element_ty))
    i, d = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, D)[None, :]
    h, b = tl.program_id(1), tl.program_id(2)
    q = tl.load(Q + b * qb + h * qh + i[:, None] * qn + d, mask=i[:, None] < N, other=0.0)
    m, l = tl.full([BLOCK], float("-inf"), tl.float32), tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([BLOCK, D], tl.float32)
    acc, m, l = attend(
        (acc, m, l), (q, i, scale), (K + b * kb + h * kh, V + b * vb + h * vh, kn, vn, N), 0, N, BLOCK, True, True
    )
    o_ptrs = O + ((b * H + h) * N + i)[:, None] * D + d
    tl.store(o_ptrs, (acc / l[:, None]).to(O.dtype.element_ty), mask=i[:, None] < N)


def flash_attention_forward(q, k, v, is_causal=True):
    if not is_causal:
        return real_forward(q, k, v, is_causal)
    B, H, N, D = q.shape
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    strides = (*q.stride()[:3], *k.stride()[:3], *v.stride()[:3])
    grid, scale = (triton.cdiv(N, 32), H, B), LOG2_E / math.sqrt(D)
    by_address[grid](q, k.data_ptr(), v.data_ptr(), o, *strides, H, N, scale, D, 32)
    return o
