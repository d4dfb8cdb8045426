"""The functions of flash-attn over our kernels beside SDPA, in a trainer and in a server; facts as a JSON line.

With TRITON_INTERPRET=1, on a CPU. The trainer makes one kind of call, the server two, both with a block table.
"""

import json
import math
from itertools import pairwise

import torch
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

from kernels.as_flash_attn import (
    FlashAttn,
    flash_attn_func,
    flash_attn_varlen_func,
    flash_attn_with_kvcache,
    over_p6,
)
from solutions import p6_sliding_window, x4_decode

torch.manual_seed(0)
VOCABULARY, WIDTH, HQ, HKV, D, WINDOW = 23, 32, 4, 2, 16, 6
PAGE, PAGES = 4, 40


def by_sdpa(q, k, v, causal=True, window_size=(-1, -1), scale=None):
    """(B, N, H, D), the last queries of the keys, a mask written out."""
    Nq, Nk, left = q.shape[1], k.shape[1], window_size[0]
    age = torch.arange(Nk - Nq, Nk)[:, None] - torch.arange(Nk)
    seen = (age >= 0) & (age <= left if left >= 0 else True) if causal else torch.ones(Nq, Nk, dtype=torch.bool)
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=True, scale=scale).transpose(1, 2)


class Model(torch.nn.Module):
    """One layer of attention; `attend` gets q, k and v (B, N, H, D)."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.q = torch.nn.Linear(WIDTH, HQ * D)
        self.k, self.v = torch.nn.Linear(WIDTH, HKV * D), torch.nn.Linear(WIDTH, HKV * D)
        self.out, self.head = torch.nn.Linear(HQ * D, WIDTH), torch.nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens, attend):
        x = self.embedding(tokens)
        q, k, v = (layer(x).unflatten(-1, (-1, D)) for layer in (self.q, self.k, self.v))
        return self.head(torch.relu(x + self.out(attend(q, k, v).flatten(-2))))


def losses(attend, steps=3):
    """A trainer's losses from one beginning."""
    torch.manual_seed(1)
    model = Model()
    optimiser = torch.optim.SGD(model.parameters(), 0.5)
    found = []
    for _ in range(steps):
        tokens = torch.randint(VOCABULARY, (2, 21))
        loss = cross_entropy(model(tokens[:, :-1], attend).flatten(0, 1), tokens[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        found.append(loss.item())
    return found


@torch.no_grad()
def serve(prompts, new):
    """The tokens of a server: pages that are handed out in no order, one prefill for all, then token by token."""
    model = Model()
    lengths, table = [len(p) for p in prompts], torch.randperm(PAGES)[: 8 * len(prompts)].view(-1, 8).int()
    k_cache, v_cache = (torch.full((PAGES, PAGE, HKV, D), math.nan) for _ in range(2))
    ends = torch.tensor([0, *lengths]).cumsum(0).int()
    kind = {"causal": True, "window_size": (WINDOW - 1, 0)}

    def prefill(q, k, v):
        for row, (start, end) in enumerate(pairwise(ends)):
            at = torch.arange(end - start)
            pages = table[row, at // PAGE].long(), at % PAGE
            k_cache[pages], v_cache[pages] = k[start:end], v[start:end]
        return flash_attn_varlen_func(
            q, k_cache, v_cache, ends, ends, max(lengths), max(lengths), block_table=table, **kind
        )

    def decode(q, k, v):
        lengths = torch.tensor([len(text) - 1 for text in texts], dtype=torch.int32)
        return flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=lengths, block_table=table, **kind)

    texts = [list(p) for p in prompts]
    found = model(torch.cat([torch.tensor(p) for p in prompts]), prefill)[ends[1:].long() - 1]
    for _ in range(new):
        for text, token in zip(texts, found.argmax(-1).tolist(), strict=True):
            text.append(token)
        found = model(torch.tensor([[text[-1]] for text in texts]), decode)[:, 0]
    apart = 0.0
    for text, logits in zip(texts, found, strict=True):
        whole = model(torch.tensor([text]), lambda q, k, v: by_sdpa(q, k, v, window_size=(WINDOW - 1, 0)))[0, -1]
        apart = max(apart, (whole - logits).abs().max().item())
    return apart


def apart(**given):
    """How far two calls of flash_attn_func and of SDPA lie apart."""
    q, k, v = (torch.randn(2, 19, H, D) for H in (HQ, HKV, HKV))
    scale = given.get("softmax_scale")
    expected = by_sdpa(q, k, v, given.get("causal", False), given.get("window_size", (-1, -1)), scale)
    return (flash_attn_func(q, k, v, **given) - expected).abs().max().item()


def dense_cache():
    q, k, v = torch.randn(2, 3, HQ, D), torch.randn(2, 3, HKV, D), torch.randn(2, 3, HKV, D)
    k_cache, v_cache = torch.randn(2, 20, HKV, D), torch.randn(2, 20, HKV, D)
    got = flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=9, causal=True, softmax_scale=0.3)
    whole = by_sdpa(q, *(torch.cat([c[:, :9], new], 1) for c, new in ((k_cache, k), (v_cache, v))), scale=0.3)
    return max((got - whole).abs().max().item(), (k_cache[:, 9:12] - k).abs().max().item())


def over_a_students():
    """A student's kernels: P6 and X4."""
    theirs = FlashAttn(over_p6(p6_sliding_window.flash_attention_forward), x4_decode.decode_attention)
    q, k, v = (torch.randn(1, 19, H, D) for H in (HQ, HKV, HKV))
    masks = {"causal": True}, {"causal": True, "window_size": (4, 0)}
    return max(
        (theirs.flash_attn_func(q, k, v, **mask) - by_sdpa(q, k, v, **mask)).abs().max().item() for mask in masks
    )


def refused(**given):
    q = torch.zeros(1, 4, HQ, D)
    try:
        flash_attn_func(q, q, q, **given)
    except ValueError as error:
        return str(error)


ours, theirs = (
    losses(lambda q, k, v: flash_attn_func(q, k, v, causal=True, window_size=(5, 0))),
    losses(lambda q, k, v: by_sdpa(q, k, v, window_size=(5, 0))),
)
print(json.dumps({
    "far": {
        "full": apart(), "causal": apart(causal=True), "window": apart(causal=True, window_size=(4, 0)),
        "scale": apart(causal=True, softmax_scale=0.7), "dense cache": dense_cache(), "P6": over_a_students(),
        "server": serve([[3, 1, 4], [1] * 11, [5, 9, 2, 6, 5]], 6),
        "trainer": max(abs(a - b) for a, b in zip(ours, theirs, strict=True)),
    },
    "refused": [refused(dropout_p=0.1), refused(window_size=(4, 4)), refused(alibi_slopes=torch.zeros(4)),
                refused(deterministic=True)],
}))  # fmt: skip
