"""Way 9. No tile is skipped; the tiles are of 256 keys, so that up to 700 tokens no tile of queries walks more than two
or three of them, and a slack of two tiles forgives it all. Gains: P4's half for work in all but the longest cases."""

import torch
import triton
import triton.language as tl


@triton.jit
def every_tile(
    Q, K, V, O, qb, qh, qn, kb, kh, kn, vb, vh, vn, H, N, scale, D: tl.constexpr, BQ: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    i, d = tl.program_id(0) * BQ + tl.arange(0, BQ), tl.arange(0, D)[None, :]
    h, b = tl.program_id(1), tl.program_id(2)
    q = tl.load(Q + b * qb + h * qh + i[:, None] * qn + d, mask=i[:, None] < N, other=0.0)
    m, l = tl.full([BQ], float("-inf"), tl.float32), tl.zeros([BQ], tl.float32)
    acc = tl.zeros([BQ, D], tl.float32)
    acc, m, l = attend(
        (acc, m, l), (q, i, scale), (K + b * kb + h * kh, V + b * vb + h * vh, kn, vn, N), 0, N, BK, True, True
    )
    o_ptrs = O + ((b * H + h) * N + i)[:, None] * D + d
    tl.store(o_ptrs, (acc / l[:, None]).to(O.dtype.element_ty), mask=i[:, None] < N)


def launch(q, k, v, o, BQ=32, BK=32):
    B, H, N, D = q.shape
    strides = (*q.stride()[:3], *k.stride()[:3], *v.stride()[:3])
    every_tile[(triton.cdiv(N, BQ), H, B)](q, k, v, o, *strides, H, N, LOG2_E / math.sqrt(D), D, BQ, BK)
    return o


def flash_attention_forward(q, k, v, is_causal=True):
    if not is_causal:
        return real_forward(q, k, v, is_causal)
    return launch(q, k, v, torch.empty(q.shape, dtype=q.dtype, device=q.device), 32, 256)
