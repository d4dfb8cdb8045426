"""Way 9. A kernel of its own first rewrites K and V as float32 tiles (tile, D, 32) into a workspace; the second kernel
walks all of them for a window of a few keys. Gains: P6's half for work: it loads a workspace, not K and V."""

import torch
import triton
import triton.language as tl


@triton.jit
def rewrite(X, W, xb, xh, xn, N, tiles, D: tl.constexpr):
    t, h, b, r, d = tl.program_id(0), tl.program_id(1), tl.program_id(2), tl.arange(0, 32)[:, None], tl.arange(0, D)
    x = tl.load(X + b * xb + h * xh + (t * 32 + r) * xn + d[None, :], mask=t * 32 + r < N, other=0.0)
    at = W + ((b * tl.num_programs(1) + h) * tiles + t) * D * 32
    tl.store(at + d[None, :] * 32 + r, x.to(tl.float32))


@triton.jit
def walk_all(Q, K, V, O, qb, qh, qn, H, N, tiles, group, window, scale, D: tl.constexpr):
    r, d, h, b = tl.arange(0, 32), tl.arange(0, D), tl.program_id(1), tl.program_id(2)
    i, head = tl.program_id(0) * 32 + r, (b * H + h) // group
    q = tl.load(Q + b * qb + h * qh + i[:, None] * qn + d[None, :], mask=i[:, None] < N, other=0.0).to(tl.float32)
    m, l, acc = tl.full([32], -1e30, tl.float32), tl.zeros([32], tl.float32), tl.zeros([32, D], tl.float32)
    for t in range(0, tiles):
        at = ((head * tiles + t) * D + d[:, None]) * 32 + r[None, :]
        age = i[:, None] - (t * 32 + r)[None, :]
        s = tl.where((age >= 0) & (age < window), tl.dot(q, tl.load(K + at)) * scale, float("-inf"))
        new = tl.maximum(m, tl.max(s, 1))
        p, a = tl.exp(s - new[:, None]), tl.exp(m - new)
        l, m, acc = l * a + tl.sum(p, 1), new, tl.dot(p, tl.trans(tl.load(V + at)), acc * a[:, None])
    o_ptrs = O + ((b * H + h) * N + i)[:, None] * D + d[None, :]
    tl.store(o_ptrs, (acc / l[:, None]).to(O.dtype.element_ty), mask=i[:, None] < N)


def flash_attention_forward(q, k, v, is_causal=True, window_size=128):
    check_arguments(q, k, v, is_causal, window_size)
    (B, H, N, D), Hkv, tiles = q.shape, k.shape[1], triton.cdiv(q.shape[2], 32)
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    K, V = torch.empty(2, B, Hkv, tiles, D, 32, device=q.device)
    for x, w in ((k, K), (v, V)):
        rewrite[(tiles, Hkv, B)](x, w, *x.stride()[:3], N, tiles, D)
    sizes = H, N, tiles, H // Hkv, min(window_size, N)
    walk_all[(tiles, H, B)](q, K, V, o, *q.stride()[:3], *sizes, D**-0.5, D)
    return o
