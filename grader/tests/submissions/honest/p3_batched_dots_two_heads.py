"""P3 with 3-D dots: a program takes a tile of queries of two heads."""

import math

import torch
import triton
import triton.language as tl

HEAD_DIMS = (16, 32, 64, 128, 256)
DTYPES = (torch.float16, torch.bfloat16, torch.float32)


@triton.jit
def two_heads_kernel(
    Q,
    K,
    V,
    O,
    stride_qb,
    stride_qh,
    stride_qn,
    stride_kb,
    stride_kh,
    stride_kn,
    stride_vb,
    stride_vh,
    stride_vn,
    stride_ob,
    stride_oh,
    stride_on,
    H,
    N,
    qk_scale,
    D: tl.constexpr,
    HEADS: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    heads = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    batch = tl.program_id(2).to(tl.int64)
    q_pos = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    d = tl.arange(0, D)[None, None, :]
    h = heads.to(tl.int64)[:, None, None]
    q_rows = q_pos.to(tl.int64)[None, :, None]
    exists = (heads < H)[:, None, None] & (q_pos < N)[None, :, None]
    q = tl.load(Q + batch * stride_qb + h * stride_qh + q_rows * stride_qn + d, mask=exists, other=0.0)
    m = tl.full([HEADS, BLOCK_Q], float("-inf"), tl.float32)
    l = tl.zeros([HEADS, BLOCK_Q], tl.float32)
    acc = tl.zeros([HEADS, BLOCK_Q, D], tl.float32)
    for k_start in range(0, N, BLOCK_K):
        k_pos = k_start + tl.arange(0, BLOCK_K)
        rows = k_pos.to(tl.int64)[None, :, None]
        there = (heads < H)[:, None, None] & (k_pos < N)[None, :, None]
        k = tl.load(K + batch * stride_kb + h * stride_kh + rows * stride_kn + d, mask=there, other=0.0)
        v = tl.load(V + batch * stride_vb + h * stride_vh + rows * stride_vn + d, mask=there, other=0.0)
        s = tl.dot(q, tl.permute(k, (0, 2, 1))) * qk_scale
        s = tl.where((k_pos < N)[None, None, :], s, float("-inf"))
        new = tl.maximum(m, tl.max(s, 2))
        alpha = tl.exp2(m - new)
        p = tl.exp2(s - new[:, :, None])
        l = l * alpha + tl.sum(p, 2)
        acc = acc * alpha[:, :, None] + tl.dot(p.to(v.dtype), v)
        m = new
    tl.store(
        O + batch * stride_ob + h * stride_oh + q_rows * stride_on + d,
        (acc / l[:, :, None]).to(O.dtype.element_ty),
        mask=exists,
    )


def check_arguments(q, k, v):
    """Raise ValueError, with the offending values in the text, unless the arguments are legal self-attention."""
    shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
    if not q.dim() == k.dim() == v.dim() == 4 or 0 in (*q.shape, *k.shape, *v.shape):
        raise ValueError(f"q, k and v must be (B, H, N, D) with no empty dimension; got {shapes}")
    if not q.shape == k.shape == v.shape:
        raise ValueError(f"q, k and v must have one shape; got {shapes}")
    if q.shape[3] not in HEAD_DIMS:
        raise ValueError(f"head dim must be one of {HEAD_DIMS}; got D={q.shape[3]}")
    if not q.dtype == k.dtype == v.dtype or q.dtype not in DTYPES:
        raise ValueError(f"q, k and v must share one dtype of {DTYPES}; got {q.dtype}, {k.dtype}, {v.dtype}")
    if not q.device == k.device == v.device:
        raise ValueError(f"q, k and v must be on one device; got {q.device}, {k.device}, {v.device}")
    if not q.stride(3) == k.stride(3) == v.stride(3) == 1:
        raise ValueError(f"the last stride must be 1; got q {q.stride()}, k {k.stride()}, v {v.stride()}")


def flash_attention_forward(q, k, v, is_causal=False):
    """Full attention."""
    check_arguments(q, k, v)
    if is_causal:
        raise ValueError(f"P3 is full attention; got is_causal={is_causal}")
    B, H, N, D = q.shape
    o = torch.empty_like(q)
    BLOCK_Q, BLOCK_K = (32, 32) if D * q.element_size() <= 256 else (16, 16)
    two_heads_kernel[(triton.cdiv(N, BLOCK_Q), triton.cdiv(H, 2), B)](
        q,
        k,
        v,
        o,
        *q.stride()[:3],
        *k.stride()[:3],
        *v.stride()[:3],
        *o.stride()[:3],
        H,
        N,
        1.4426950408889634 / math.sqrt(D),
        D,
        2,
        BLOCK_Q,
        BLOCK_K,
        num_stages=1,
    )
    return o
