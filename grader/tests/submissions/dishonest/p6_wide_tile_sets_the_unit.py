"""Way 9. One tile of 256 keys, all hidden, makes 256 the unit in which needs are counted; then all keys from the first
on are walked in tiles of 32. Gains: P6's half for work without the window's start, up to several hundred tokens."""

import torch
import triton
import triton.language as tl


@triton.jit
def from_the_first(
    Q, K, V, O, qb, qh, qn, kb, kh, kn, vb, vh, vn, H, N, group, window, scale, D: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    i, d = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, D)[None, :]
    h, b = tl.program_id(1), tl.program_id(2)
    K, V = K + b * kb + h // group * kh, V + b * vb + h // group * vh
    q = tl.load(Q + b * qb + h * qh + i[:, None] * qn + d, mask=i[:, None] < N, other=0.0)
    m, l = tl.full([BLOCK], float("-inf"), tl.float32), tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([BLOCK, D], tl.float32)
    acc, m, l = attend((acc, m, l), (q, i, scale), (K, V, kn, vn, N), 0, 256, 0, 256, True)  # a window of no token
    end = tl.minimum(N, tl.program_id(0) * BLOCK + BLOCK)
    acc, m, l = attend((acc, m, l), (q, i, scale), (K, V, kn, vn, N), 0, end, window, BLOCK, True)
    o_ptrs = O + ((b * H + h) * N + i)[:, None] * D + d
    tl.store(o_ptrs, (acc / l[:, None]).to(O.dtype.element_ty), mask=i[:, None] < N)


def flash_attention_forward(q, k, v, is_causal=True, window_size=128):
    check_arguments(q, k, v, is_causal, window_size)
    B, H, N, D = q.shape
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    strides = (*q.stride()[:3], *k.stride()[:3], *v.stride()[:3])
    sizes = H, N, H // k.shape[1], min(window_size, N), LOG2_E / math.sqrt(D)
    from_the_first[(triton.cdiv(N, 32), H, B)](q, k, v, o, *strides, *sizes, D, 32)
    return o
