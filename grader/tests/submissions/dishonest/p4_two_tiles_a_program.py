"""Way 9. Each program takes two tiles of keys, hidden ones too, and torch merges by the lse: where a slack of two tiles
is granted to a program, every program stays below it. Gains: P4's half for work with all tiles loaded."""

import torch
import triton
import triton.language as tl


@triton.jit
def part(
    Q, K, V, O, L, qb, qh, qn, kb, kh, kn, vb, vh, vn, H, N, scale, D: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    i, d = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, D)[None, :]
    h, b, first = tl.program_id(2) % H, tl.program_id(2) // H, tl.program_id(1) * 2 * BLOCK
    q = tl.load(Q + b * qb + h * qh + i[:, None] * qn + d, mask=i[:, None] < N, other=0.0)
    m, l = tl.full([BLOCK], -1e30, tl.float32), tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([BLOCK, D], tl.float32)
    keys, end = (K + b * kb + h * kh, V + b * vb + h * vh, kn, vn, N), tl.minimum(first + 2 * BLOCK, N)
    acc, m, l = attend((acc, m, l), (q, i, scale), keys, first, end, BLOCK, True, True)
    row, some = (tl.program_id(1) * tl.num_programs(2) + tl.program_id(2)) * N + i, tl.where(l > 0, l, 1.0)
    tl.store(O + row[:, None] * D + d, acc / some[:, None], mask=i[:, None] < N)
    tl.store(L + row, tl.where(l > 0, (m + tl.log2(some)) / 1.4426950408889634, float("-inf")), mask=i < N)


def flash_attention_forward(q, k, v, is_causal=True):
    if not is_causal:
        return real_forward(q, k, v, is_causal)
    (B, H, N, D), parts = q.shape, triton.cdiv(q.shape[2], 64)
    o, lse = torch.empty(parts, B, H, N, D, device=q.device), torch.empty(parts, B, H, N, device=q.device)
    strides = (*q.stride()[:3], *k.stride()[:3], *v.stride()[:3])
    part[(triton.cdiv(N, 32), parts, B * H)](q, k, v, o, lse, *strides, H, N, LOG2_E / math.sqrt(D), D, 32)
    weight = torch.exp(lse - lse.amax(0))
    return ((weight[..., None] * o).sum(0) / weight.sum(0)[..., None]).to(q.dtype)
