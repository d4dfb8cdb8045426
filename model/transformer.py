"""A decoder-only transformer on bytes: grouped heads, rotary positions, and attention that is a function argument.

Source: Vaswani et al., 2017, decoder alone; Su et al., "RoFormer", 2021, for the positions; Ainslie et al., "GQA",
2023, for the heads.
"""

from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn import functional

VOCABULARY = 256  # a token is a byte
START = 0  # stands before every text; no text of the corpus has this byte


@dataclass(frozen=True)
class Shape:
    """Sizes of a model, and which keys its attention sees; window_size: None for all; learned_sinks: see Layer."""

    layers: int = 4
    width: int = 192
    hidden: int = 512
    heads: int = 8
    kv_heads: int = 2
    head_dim: int = 32
    rope_base: float = 10_000.0
    window_size: int | None = None
    sink_size: int = 0
    learned_sinks: bool = False


@dataclass
class Cache:
    """Keys and values of the tokens so far: k and v are (layers, B, Hkv, Nmax, D), lengths (B,) int32."""

    k: torch.Tensor
    v: torch.Tensor
    lengths: torch.Tensor

    @classmethod
    def empty(cls, shape, batch, tokens, dtype, device="cpu"):
        size = shape.layers, batch, shape.kv_heads, tokens, shape.head_dim
        k, v = (torch.zeros(size, dtype=dtype, device=device) for _ in range(2))
        return cls(k, v, torch.zeros(batch, dtype=torch.int32, device=device))


@dataclass
class Whole:
    """Attention of a sequence to itself: attend(q, k, v, **options); with a cache, k and v also go into row `row`."""

    attend: object
    cache: Cache | None = None
    row: int = 0

    def __call__(self, layer, q, k, v, options):
        if self.cache is not None:
            for kept, new in ((self.cache.k, k), (self.cache.v, v)):
                kept[layer, self.row, :, : new.shape[2]] = new[0]
        return self.attend(q, k, v, **options)


@dataclass
class Step:
    """Attention of new tokens to the cache, which they join: decode(q, k_cache, v_cache, lengths, **options)."""

    decode: object
    cache: Cache
    lengths: torch.Tensor = field(init=False)  # the new tokens included

    def __call__(self, layer, q, k, v, options):
        count = q.shape[2]
        self.lengths = self.cache.lengths + count
        rows = torch.arange(q.shape[0], device=q.device)[:, None]
        places = self.cache.lengths.long()[:, None] + torch.arange(count, device=q.device)
        for kept, new in ((self.cache.k, k), (self.cache.v, v)):
            kept[layer][rows, :, places] = new.transpose(1, 2)
        options = dict(options)
        if sink_size := options.pop("sink_size"):
            raise ValueError(f"decoding has no sink tokens; got sink_size={sink_size}")
        return self.decode(q, self.cache.k[layer], self.cache.v[layer], self.lengths, **options)


def turns(positions, shape):
    """cos and sin of the rotary angles, (1, 1, N, D/2) or (B, 1, N, D/2), at positions (N,) or (B, N)."""
    half = shape.head_dim // 2
    speeds = shape.rope_base ** (-torch.arange(half, device=positions.device, dtype=torch.float32) / half)
    angles = positions.to(torch.float32)[..., None] * speeds
    angles = angles.unsqueeze(-3).reshape(-1, 1, *angles.shape[-2:])
    return angles.cos(), angles.sin()


def rotate(x, cos, sin):
    """x (B, H, N, D), float32, with each pair (i, i + D/2) turned by its position's angle."""
    one, other = x.float().chunk(2, 3)
    return torch.cat([one * cos - other * sin, other * cos + one * sin], 3)


class Layer(nn.Module):
    """Attention and a multilayer perceptron, each on a normalised copy that is added.

    sink_logits: (Hq,), float32, or None: a learned logit of each head that joins the softmax's denominator.
    """

    def __init__(self, shape):
        super().__init__()
        self.shape, q_width, kv_width = shape, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        self.q, self.k, self.v = (nn.Linear(shape.width, size, bias=False) for size in (q_width, kv_width, kv_width))
        self.out = nn.Linear(q_width, shape.width, bias=False)
        self.up = nn.Linear(shape.width, shape.hidden, bias=False)
        self.down = nn.Linear(shape.hidden, shape.width, bias=False)
        self.norms = nn.ModuleList(nn.RMSNorm(shape.width) for _ in range(2))
        self.sink_logits = nn.Parameter(torch.zeros(shape.heads)) if shape.learned_sinks else None

    def forward(self, x, number, turned, attention, dtype):
        shape, normed = self.shape, self.norms[0](x)
        q, k, v = (each(normed).unflatten(2, (-1, shape.head_dim)).transpose(1, 2) for each in (self.q, self.k, self.v))
        q, k = (rotate(each, *turned) for each in (q, k))
        options = {"window_size": shape.window_size, "sink_size": shape.sink_size, "sink_logits": self.sink_logits}
        o = attention(number, q.to(dtype), k.to(dtype), v.to(dtype), options)  # (B, Hq, N, D)
        x = x + self.out(o.transpose(1, 2).flatten(2).to(x.dtype))
        return x + self.down(functional.gelu(self.up(self.norms[1](x))))


class Transformer(nn.Module):
    """Logits of the next byte. `attention`, a Whole or a Step, computes all attention, in `dtype`."""

    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(VOCABULARY, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm, self.head = nn.RMSNorm(shape.width), nn.Linear(shape.width, VOCABULARY, bias=False)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                into_stream = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(weight, std=0.02 / (2 * shape.layers) ** 0.5 if into_stream else 0.02)

    def forward(self, tokens, attention, dtype, positions=None):
        """tokens: (B, N), int64. positions: (N,) or (B, N); by default 0 to N - 1. Returns logits (B, N, 256)."""
        positions = torch.arange(tokens.shape[1], device=tokens.device) if positions is None else positions
        x, turned = self.embedding(tokens), turns(positions, self.shape)
        for number, layer in enumerate(self.layers):
            x = layer(x, number, turned, attention, dtype)
        return self.head(self.norm(x))

    def prefill(self, tokens, attend, cache, row=0):
        """The logits (N, 256) of one sequence, tokens (N,), whose keys and values fill a row of the cache."""
        logits = self(tokens[None], Whole(attend, cache, row), cache.k.dtype)
        cache.lengths[row] = len(tokens)
        return logits[0]

    def step(self, tokens, decode, cache):
        """The logits (B, Nq, 256) of new tokens (B, Nq) behind those of the cache, which they join."""
        step = Step(decode, cache)
        positions = cache.lengths[:, None] + torch.arange(tokens.shape[1], device=tokens.device)
        logits = self(tokens, step, cache.k.dtype, positions)
        cache.lengths = step.lengths
        return logits
