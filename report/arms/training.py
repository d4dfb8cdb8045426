"""A tiny transformer trained with the course's operator and with two of PyTorch's own: the loss of each step.

    python -m report training                 300 steps on a GPU, rows into report/results/
    python -m report training --steps 3 --tiny --device cpu     a smaller one, without a GPU

All three start from the same weights and see the same batches. The task is to repeat what was read: 128 tokens at
random, then the same again, of which the loss is taken. Query heads share key/value heads, and every second layer looks
back through a window. Weights are float32; attention is in bfloat16.
"""

import argparse
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from grader.core import in_process
from report.measuring.machine import write_both
from report.places import Refused

OURS, THEIRS = "attention_op", ("SDPA math", "SDPA efficient")
ARMS = (OURS, *THEIRS)
BACKENDS = {"SDPA math": "MATH", "SDPA efficient": "EFFICIENT_ATTENTION"}
SEED, RATE, WARM_UP = 20, 1e-3, 30


@dataclass(frozen=True)
class Shape:
    """Sizes of the model and of a batch; tokens: those that are repeated."""

    layers: int = 4
    heads: int = 8
    kv_heads: int = 2
    head_dim: int = 32
    window: int = 64
    tokens: int = 128
    batch: int = 16
    words: int = 64


TINY = Shape(layers=2, heads=2, kv_heads=1, head_dim=16, window=8, tokens=12, batch=2, words=8)


class Layer(nn.Module):
    """Attention and a multilayer perceptron, each on a normalised copy that is added."""

    def __init__(self, shape, window):
        super().__init__()
        self.shape, self.window = shape, window
        width, kv_width = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        self.q, self.k, self.v = (nn.Linear(width, size, bias=False) for size in (width, kv_width, kv_width))
        self.out = nn.Linear(width, width, bias=False)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))

    def forward(self, x, attend):
        normed = self.norms[0](x)
        dtype = torch.bfloat16 if x.is_cuda else torch.float32  # on a CPU bfloat16 is slow
        q, k, v = (each(normed).unflatten(2, (-1, self.shape.head_dim)).transpose(1, 2).to(dtype)
                   for each in (self.q, self.k, self.v))  # fmt: skip
        o = attend(q, k, v, self.window)
        x = x + self.out(o.transpose(1, 2).flatten(2).float())
        return x + self.mlp(self.norms[1](x))


class Transformer(nn.Module):
    def __init__(self, shape):
        super().__init__()
        width = shape.heads * shape.head_dim
        self.words, self.places = nn.Embedding(shape.words, width), nn.Embedding(2 * shape.tokens, width)
        self.layers = nn.ModuleList(Layer(shape, shape.window if i % 2 else None) for i in range(shape.layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, shape.words, bias=False)

    def forward(self, words, attend):
        x = self.words(words) + self.places.weight[: words.shape[1]]
        for layer in self.layers:
            x = layer(x, attend)
        return self.head(self.norm(x))


def attention_of(arm):
    """attend(q, k, v, window) of an arm."""
    if arm == OURS:
        from kernels.attention_op import attention

        return lambda q, k, v, window: attention(q, k, v, window_size=window)
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def attend(q, k, v, window):
        position = torch.arange(q.shape[2], device=q.device)
        age = position[:, None] - position[None, :]
        seen = (age >= 0) & (age < (window or q.shape[2]))
        k, v = (each.repeat_interleave(q.shape[1] // k.shape[1], 1) for each in (k, v))
        with sdpa_kernel(getattr(SDPBackend, BACKENDS[arm])):
            return functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)

    return attend


def batch_of(step, shape, device):
    """(words read, words asked for): a row of tokens twice, without its last one, and without its first."""
    generator = torch.Generator().manual_seed(SEED + step)
    once = torch.randint(shape.words, (shape.batch, shape.tokens), generator=generator)
    twice = torch.cat([once, once], 1).to(device)
    return twice[:, :-1], twice[:, 1:]


def losses(arm, steps, shape, device):
    """The loss of each step of one arm, from the same weights and batches as every other."""
    torch.manual_seed(SEED)
    model, attend, found = Transformer(shape).to(device), attention_of(arm), []
    optimiser = torch.optim.AdamW(model.parameters(), RATE)
    rates = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: min(1.0, (step + 1) / WARM_UP))
    for step in range(steps):
        read, asked = batch_of(step, shape, device)
        said = model(read, attend)[:, shape.tokens - 1 :]
        loss = functional.cross_entropy(said.flatten(0, 1), asked[:, shape.tokens - 1 :].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        rates.step()
        found.append(float(loss.detach()))
        if step % 50 == 0 or step == steps - 1:
            print(f"{arm}, step {step + 1} of {steps}: loss {found[-1]:.4f}", flush=True)
    return found


def main(argv):
    parser = argparse.ArgumentParser("python -m report training", description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--tiny", action="store_true", help="a model that a CPU can train")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--out", type=Path, help="the folder of training.csv (default: report/results/GPU'S NAME)")
    options = parser.parse_args(argv)
    if options.steps < 1:
        raise Refused(f"--steps must be at least 1; got {options.steps}")
    if options.device == "cuda" and not torch.cuda.is_available():
        raise Refused("PyTorch sees no GPU here; --tiny --device cpu --steps 3 needs none")
    if options.device == "cpu":
        in_process.begin()
    arms = [arm for arm in ARMS if options.device == "cuda" or arm != "SDPA efficient"]
    shape = TINY if options.tiny else Shape()
    found = {arm: losses(arm, options.steps, shape, options.device) for arm in arms}
    steps = zip(range(options.steps), *found.values(), strict=True)
    write_both(options, "training", [["step", *found], *steps], {"shape": asdict(shape)})
    return 0
