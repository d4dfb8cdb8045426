"""P5 with 3-D blocks: (members of the group, queries, D), K and V broadcast over the members."""

import math

import torch
import triton
import triton.language as tl

HEAD_DIMS = (16, 32, 64, 128, 256)
DTYPES = (torch.float16, torch.bfloat16, torch.float32)


@triton.jit
def grouped_3d_kernel(
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
    N,
    group,
    qk_scale,
    D: tl.constexpr,
    G: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_K: tl.constexpr,
    IS_CAUSAL: tl.constexpr,
):
    """G: members of a program, a power of two. Grid: (query tiles, Hkv * parts of a group, B)."""
    q_start = tl.program_id(0) * BLOCK_Q
    parts = tl.cdiv(group, G)
    kv_head = (tl.program_id(1) // parts).to(tl.int64)
    members = tl.program_id(1) % parts * G + tl.arange(0, G)
    batch = tl.program_id(2).to(tl.int64)
    head = (kv_head * group + members)[:, None, None]
    q_pos = q_start + tl.arange(0, BLOCK_Q)
    d = tl.arange(0, D)
    exists = (members < group)[:, None, None] & (q_pos < N)[None, :, None]
    rows = q_pos.to(tl.int64)[None, :, None]
    q = tl.load(Q + batch * stride_qb + head * stride_qh + rows * stride_qn + d[None, None, :], mask=exists, other=0.0)
    K += batch * stride_kb + kv_head * stride_kh
    V += batch * stride_vb + kv_head * stride_vh
    m = tl.full([G, BLOCK_Q], float("-inf"), tl.float32)
    l = tl.zeros([G, BLOCK_Q], tl.float32)
    acc = tl.zeros([G, BLOCK_Q, D], tl.float32)
    end = tl.minimum(q_start + BLOCK_Q, N) if IS_CAUSAL else N
    for k_start in range(0, end, BLOCK_K):
        k_pos = k_start + tl.arange(0, BLOCK_K)
        far = k_pos.to(tl.int64)[:, None]
        k = tl.load(K + far * stride_kn + d[None, :], mask=k_pos[:, None] < N, other=0.0)
        v = tl.load(V + far * stride_vn + d[None, :], mask=k_pos[:, None] < N, other=0.0)
        kt = tl.broadcast_to(tl.trans(k)[None, :, :], (G, D, BLOCK_K))
        vg = tl.broadcast_to(v[None, :, :], (G, BLOCK_K, D))
        s = tl.dot(q, kt) * qk_scale
        seen = k_pos[None, :] < N
        if IS_CAUSAL:
            seen = seen & (k_pos[None, :] <= q_pos[:, None])
        s = tl.where(tl.broadcast_to(seen[None, :, :], s.shape), s, float("-inf"))
        new = tl.maximum(m, tl.max(s, 2))
        alpha = tl.exp2(m - new)
        p = tl.exp2(s - new[:, :, None])
        l = l * alpha + tl.sum(p, 2)
        acc = acc * alpha[:, :, None] + tl.dot(p.to(v.dtype), vg)
        m = new
    tl.store(
        O + batch * stride_ob + head * stride_oh + rows * stride_on + d[None, None, :],
        (acc / l[:, :, None]).to(O.dtype.element_ty),
        mask=exists,
    )


def check_arguments(q, k, v):
    """Raise ValueError, with the offending values in the text, unless the arguments are legal."""
    shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
    if not q.dim() == k.dim() == v.dim() == 4 or 0 in (*q.shape, *k.shape, *v.shape):
        raise ValueError(f"q, k and v must be (B, H, N, D) with no empty dimension; got {shapes}")
    if k.shape != v.shape or (q.shape[0], *q.shape[2:]) != (k.shape[0], *k.shape[2:]):
        raise ValueError(f"k and v must have one shape, and B, N and D of q; got {shapes}")
    if q.shape[1] % k.shape[1]:
        raise ValueError(f"Hq must be a multiple of Hkv; got Hq={q.shape[1]}, Hkv={k.shape[1]}")
    if q.shape[3] not in HEAD_DIMS:
        raise ValueError(f"head dim must be one of {HEAD_DIMS}; got D={q.shape[3]}")
    if not q.dtype == k.dtype == v.dtype or q.dtype not in DTYPES:
        raise ValueError(f"q, k and v must share one dtype of {DTYPES}; got {q.dtype}, {k.dtype}, {v.dtype}")
    if not q.device == k.device == v.device:
        raise ValueError(f"q, k and v must be on one device; got {q.device}, {k.device}, {v.device}")
    if not q.stride(3) == k.stride(3) == v.stride(3) == 1:
        raise ValueError(f"the last stride must be 1; got q {q.stride()}, k {k.stride()}, v {v.stride()}")


def flash_attention_forward(q, k, v, is_causal=True):
    """Causal or full attention, with shared heads."""
    check_arguments(q, k, v)
    B, Hq, N, D = q.shape
    Hkv = k.shape[1]
    group = Hq // Hkv
    o = torch.empty_like(q)
    G = 1 if group == 1 else 2 if group < 4 else 4
    BLOCK_Q, BLOCK_K = (32, 32) if D * q.element_size() <= 256 else (16, 16)
    if D * q.element_size() > 512:
        G = min(G, 2)
    grouped_3d_kernel[(triton.cdiv(N, BLOCK_Q), Hkv * triton.cdiv(group, G), B)](
        q,
        k,
        v,
        o,
        *q.stride()[:3],
        *k.stride()[:3],
        *v.stride()[:3],
        *o.stride()[:3],
        N,
        group,
        1.4426950408889634 / math.sqrt(D),
        D,
        G,
        BLOCK_Q,
        BLOCK_K,
        is_causal,
        num_stages=1,
    )
    return o
