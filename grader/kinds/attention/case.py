"""What a case of the ladder is: one question to a kernel, as plain data."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from grader.kinds.attention.masks import Visibility

EVERYTHING = 2**31 - 1  # a window or the like, the largest of int32: sums with it overflow


@dataclass(frozen=True)
class Case:
    """One question to a kernel, as a sentence: Case("ragged tail", N=129, D=64, window=32).

    N: tokens, of queries and keys; Nk where the keys differ in number. Hkv: None for as many as Hq.
    layout and values: names that inputs.py knows. gpu: True for what only a GPU runs. left_out: arguments that are not
    given; what the case says of them is their default. tiles: BLOCK_Q and BLOCK_K that the module's TILES_INTERPRETER
    has for this case, where it is a tuple of integers.
    """

    name: str
    B: int = 1
    Hq: int = 1
    Hkv: int | None = None
    N: int = 64
    Nk: int | None = None
    D: int = 32
    dtype: str = "float16"
    causal: bool = False
    window: int | None = None
    sinks: int | None = None
    layout: str = "contiguous"
    values: str = "normal"
    gpu: bool = False
    left_out: tuple[str, ...] = ()
    tiles: tuple[int, int] | None = None

    @property
    def kv_heads(self):
        return self.Hkv or self.Hq

    @property
    def shares_heads(self):
        return self.kv_heads < self.Hq

    @property
    def num_keys(self):
        return self.Nk or self.N

    @property
    def shapes(self):
        """Those of q, k and v."""
        keys = (self.B, self.kv_heads, self.num_keys, self.D)
        return [(self.B, self.Hq, self.N, self.D), keys, keys]

    @property
    def visibility(self):
        return Visibility(self.causal, self.window, self.sinks or 0)

    def seen_at(self, batch, head):
        """The visibility of one batch and head."""
        return self.visibility

    @property
    def fits_gpu(self):
        """False where a GPU would need the memory of all that lies between the rows."""
        return not self.layout.startswith("far")

    attends: ClassVar[bool] = True  # False for a question that is not about attention's output
    one_mask: ClassVar[bool] = True  # for all batches and heads
    products: ClassVar[int] = 2  # of D for each visible pair: scores and o
    multiplied: ClassVar[int] = 2  # the same where a kernel may compute some of them again
    tile_letters: ClassVar[bool] = False  # True where the mask is cut into tiles of a known size, `block`

    def letters(self, visibility):
        """{"letters": the kinds of such tiles} for a picture."""
        return {}

    @property
    def positions(self):
        return torch.arange(self.N), torch.arange(self.num_keys)

    @property
    def scale(self):
        """What scores are multiplied by."""
        return 1.0 / math.sqrt(self.D)

    @property
    def flops(self):
        """FLOPs over the visible pairs alone."""
        return 2 * self.products * self.B * self.Hq * self.D * self.visibility.pairs(self.N, self.num_keys)

    @property
    def least_bytes(self):
        """Bytes of the inputs and outputs: q, k, v and o."""
        rows = 2 * self.Hq * self.N + 2 * self.kv_heads * self.num_keys
        return self.B * rows * self.D * getattr(torch, self.dtype).itemsize

    @property
    def smaller(self):
        """The same for a GPU on which the whole score matrix would not fit."""
        return replace(self, B=1)

    @property
    def arguments(self):
        """The keyword arguments of the entry point, beside its tensors."""
        named = {"is_causal": self.causal, "window_size": self.window, "sink_size": self.sinks}
        return {name: value for name, value in named.items() if value is not None and name not in self.left_out}

    def describe(self, seed):
        """`B=2 Hq=4 Hkv=2 N=129 D=64 window=32, float16, seed 3`"""
        sizes = {"B": self.B, "Hq": self.Hq, "Hkv": self.kv_heads, "N": self.N, "Nk": self.Nk, "D": self.D}
        sizes |= {"window": self.window, "sinks": self.sinks}
        text = " ".join(f"{name}={value}" for name, value in sizes.items() if value is not None)
        extras = [self.dtype] + (["causal"] if self.causal and self.window is None else [])
        extras += [self.layout] if self.layout != "contiguous" else []
        extras += [f"{self.values} values"] if self.values != "normal" else []
        extras += [f"{name} not passed" for name in self.left_out]
        extras += [f"tiles {self.tiles[0]} x {self.tiles[1]}"] if self.tiles else []
        return f"{text}, {', '.join(extras)}, seed {seed}"


def example_sizes(problem):
    """Sizes {name: text} of a call in which tiles, heads and masks of the problem differ: some of each."""
    asked = {"Hq": "4", "Hkv": "2"} if any(case.Hkv for case in problem.cases) else {}
    masks = {"window": "40", "sinks": "3"}
    asked |= {name: size for name, size in masks.items() if any(getattr(case, name) for case in problem.cases)}
    return {"N": "150"} | asked
