"""Written for a GPU and nothing else: asserts, allocations, contexts and events on "cuda", one program a processor."""

import math

import torch
import triton
import triton.language as tl

assert torch.cuda.is_available(), "this file needs a GPU"
DEVICE = triton.runtime.driver.active.get_active_torch_device()
PROCESSORS = triton.runtime.driver.active.utils.get_device_properties(0)["multiprocessor_count"]
HAS_BFLOAT16 = torch.cuda.is_bf16_supported()
LARGE = torch.cuda.get_device_capability() >= (8, 0) and "MI" not in torch.cuda.get_device_name(0)
NEGATIVE = torch.tensor([float("-inf")], device="cuda")


@triton.jit
def persistent_kernel(
    Q, K, V, O, Scale, qb, qh, qn, kb, kh, kn, vb, vh, vn, ob, oh, on, H, N, tiles, programs,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    qb, qh, qn = tl.cast(qb, tl.int64), tl.cast(qh, tl.int64), tl.cast(qn, tl.int64)
    kb, kh, kn = tl.cast(kb, tl.int64), tl.cast(kh, tl.int64), tl.cast(kn, tl.int64)
    vb, vh, vn = tl.cast(vb, tl.int64), tl.cast(vh, tl.int64), tl.cast(vn, tl.int64)
    ob, oh, on = tl.cast(ob, tl.int64), tl.cast(oh, tl.int64), tl.cast(on, tl.int64)
    scale = tl.load(Scale)
    d = tl.arange(0, D)
    per_head = tl.cdiv(N, BLOCK_Q)
    for tile in range(tl.program_id(0), tiles, programs):
        q_start = tile % per_head * BLOCK_Q
        head, batch = tile // per_head % H, tile // per_head // H
        q_pos = q_start + tl.arange(0, BLOCK_Q)
        q = tl.load(Q + batch * qb + head * qh + q_pos[:, None] * qn + d[None, :], mask=q_pos[:, None] < N, other=0.0)
        m = tl.full([BLOCK_Q], float("-inf"), tl.float32)
        l = tl.zeros([BLOCK_Q], tl.float32)
        acc = tl.zeros([BLOCK_Q, D], tl.float32)
        for k_start in range(0, N, BLOCK_K):
            k_pos = k_start + tl.arange(0, BLOCK_K)
            there = k_pos[:, None] < N
            k = tl.load(K + batch * kb + head * kh + k_pos[:, None] * kn + d[None, :], mask=there, other=0.0)
            v = tl.load(V + batch * vb + head * vh + k_pos[:, None] * vn + d[None, :], mask=there, other=0.0)
            scores = tl.where(k_pos[None, :] < N, tl.dot(q, tl.trans(k)) * scale, float("-inf"))
            m_new = tl.maximum(m, tl.max(scores, 1))
            alpha = tl.exp2(m - m_new)
            p = tl.exp2(scores - m_new[:, None])
            l = l * alpha + tl.sum(p, 1)
            acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
            m = m_new
        o_ptrs = O + batch * ob + head * oh + q_pos[:, None] * on + d[None, :]
        tl.store(o_ptrs, (acc / l[:, None]).to(O.dtype.element_ty), mask=q_pos[:, None] < N)


def flash_attention_forward(q, k, v, is_causal=False):
    assert q.is_cuda and k.is_cuda and v.is_cuda, "the tensors must be on the GPU"
    assert q.device == DEVICE and k.device.type == "cuda" and q.get_device() == torch.cuda.current_device()
    B, H, N, D = q.shape
    BLOCK_Q, BLOCK_K = 32, 32
    with torch.cuda.device(q.device):
        o = torch.empty(q.shape, dtype=q.dtype, device="cuda:0")
        scale = torch.full((1,), math.log2(math.e) / math.sqrt(D), device=torch.device("cuda")).cuda()
        tiles = triton.cdiv(N, BLOCK_Q) * H * B
        programs = min(tiles, torch.cuda.get_device_properties(q.device).multi_processor_count, PROCESSORS)
        done = torch.cuda.Event(enable_timing=True)
        persistent_kernel[(programs,)](
            q, k, v, o, scale, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
            H, N, tiles, programs, D=D, BLOCK_Q=BLOCK_Q, BLOCK_K=BLOCK_K, num_warps=4,
        )  # fmt: skip
        done.record(torch.cuda.current_stream())
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return o.to("cuda")
