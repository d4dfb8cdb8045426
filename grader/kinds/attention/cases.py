"""The ladder as plain data: its cases and its seven problems."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from grader.course.masks import Visibility
from grader.course.problem import Problem

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
    def visibility(self):
        return Visibility(self.causal, self.window, self.sinks or 0)

    def seen_at(self, batch, head):
        """The visibility of one batch and head."""
        return self.visibility

    attends: ClassVar[bool] = True  # False for a question that is not about attention's output
    one_mask: ClassVar[bool] = True  # for all batches and heads
    products: ClassVar[int] = 2  # of D for each visible pair: scores and o
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
        extras += [f"{name} left out" for name in self.left_out]
        extras += [f"TILES_INTERPRETER {self.tiles[0]} x {self.tiles[1]}"] if self.tiles else []
        return f"{text}, {', '.join(extras)}, seed {seed}"


# Cases -------------------------------------------------------------------------------------------------------------


MANY_TILES = Case("many tiles", N=397, D=16, dtype="float32")
LONG_ROW = Case("long row", N=1030, D=16, dtype="float32")  # shows who needs no online softmax, or skips no tile


def common_cases(long=MANY_TILES, **fixed):
    """The cases that every problem has; `fixed` holds what the problem adds to each (causal, window, heads ...)."""
    cases = (
        Case("whole tiles", Hq=2, N=128, D=64),
        Case("ragged tail", B=2, Hq=2, N=129, D=64),
        Case("one token", N=1),
        Case("fewer tokens than a tile", N=7, D=16, dtype="float32"),
        long,
        Case("every batch and head its own", B=3, Hq=4, N=40, left_out=("is_causal",)),
        Case("heads interleaved", B=2, Hq=4, N=70, layout="interleaved"),
        Case("slice of a larger buffer", B=2, Hq=2, N=50, layout="slice"),
        Case("q, k and v each with another layout", B=2, Hq=4, N=50, dtype="float32", layout="mixed"),
        Case("head dim 128", N=100, D=128),
        Case("scores falling along the keys", N=150, values="falling"),
        Case("scores rising along the keys", N=150, values="rising"),
        Case("rows of very different size", N=70, values="uneven"),
        Case("large, and at right angles", N=70, values="orthogonal"),
        Case("values with a large offset", N=300, D=16, values="offset"),
        Case("bfloat16", Hq=2, N=130, D=64, dtype="bfloat16"),
        Case("bfloat16 with a large offset", N=300, D=16, dtype="bfloat16", values="offset"),
    )
    return tuple(fit(case, **fixed) for case in cases)


def gpu_cases(longest=4096, **fixed):
    """What a laptop is spared: D = 256, and sequences of hundreds and thousands of tokens."""
    cases = (
        Case("bfloat16, many tiles", B=2, Hq=2, N=257, D=64, dtype="bfloat16", gpu=True),
        Case("bfloat16 with a large offset, many tiles", N=700, D=128, dtype="bfloat16", values="offset", gpu=True),
        Case("float32, ragged", B=2, Hq=2, N=333, D=128, dtype="float32", gpu=True),
        Case("head dim 256", Hq=2, N=300, D=256, gpu=True),
        Case("head dim 256 in float32", Hq=2, N=130, D=256, dtype="float32", gpu=True),
        Case(f"{longest} tokens", Hq=4, N=longest, D=128, gpu=True),
        Case(f"{longest - 1} tokens in bfloat16", Hq=4, N=longest - 1, D=64, dtype="bfloat16", gpu=True),
    )
    return tuple(fit(case, **fixed) for case in cases)


LOW = Case("all scores below -10000", N=70, D=64, values="low")  # a finite mask must be far below any score
POISON = Case("poison past the end", Hq=2, N=50, layout="poisoned tail")


def fit(case, *, group=1, **fixed):
    """`case` with what its problem adds; `group` query heads share a kv head where there are that many."""
    case = replace(case, **fixed)
    if group > 1:
        heads = max(case.Hq, group)
        case = replace(case, Hq=heads, Hkv=heads // group)
    return case


def triton_cases(own=(), **fixed):
    """The cases of a Triton problem: the common ones, a long row among them, poison, its own, and those for a GPU."""
    cases = (*common_cases(LONG_ROW, **fixed), fit(POISON, **fixed), fit(LOW, **fixed), *own)
    return (*(replace(case, tiles=OTHER_TILES.get(case.name)) for case in cases), *gpu_cases(**fixed))


# Whoever takes BLOCK_K for BLOCK_Q, one axis for the other or a number for a name passes with some tiles, not with all.
OTHER_TILES = {
    "every batch and head its own": (128, 64), "q, k and v each with another layout": (128, 64),
    "bfloat16": (32, 64), "heads interleaved": (128, 16), "scores rising along the keys": (128, 64),
    "window not a multiple of a tile": (128, 16), "window equal to N": (16, 64),
    "sinks not a multiple of a tile": (128, 16), "no sinks": (16, 64),
}  # fmt: skip

TWO_LENGTHS = (
    Case("more keys than queries", Hq=2, N=33, Nk=100),
    Case("more queries than keys", Hq=2, N=100, Nk=33),
)
CAUSAL = (
    Case("causal", Hq=2, N=128, causal=True),
    Case("causal, ragged", Hq=2, N=129, D=16, dtype="float32", causal=True, values="rising"),
    replace(LOW, causal=True),
)
FULL = Case("full attention", Hq=2, N=100)
GROUPS = (
    Case("no sharing", B=2, Hq=3, Hkv=3, N=45, causal=True),
    Case("groups of four", B=2, Hq=8, Hkv=2, N=45, causal=True),
    Case("one kv head", B=2, Hq=3, Hkv=1, N=45, dtype="float32", causal=True),
)
WINDOWS = (
    Case("window of one", Hq=3, Hkv=1, N=70, causal=True, window=1),
    Case("window smaller than a tile", Hq=2, Hkv=1, N=90, D=16, causal=True, window=5),
    Case("window not a multiple of a tile", Hq=2, Hkv=1, N=300, D=16, dtype="float32", causal=True, window=77),
    Case("window one less than whole tiles", Hq=2, Hkv=1, N=300, D=16, dtype="float32", causal=True, window=191),
    Case("window of whole tiles", N=260, D=16, causal=True, window=128, left_out=("window_size",)),
    Case("window equal to N", Hq=2, Hkv=1, N=100, D=16, causal=True, window=100),
    Case("window wider than N", Hq=2, Hkv=1, N=100, D=16, causal=True, window=1000),
    Case("window of everything", Hq=4, Hkv=1, N=70, D=16, causal=True, window=EVERYTHING),
)
SINKS = (
    Case("no sinks", Hq=2, Hkv=1, N=200, D=16, causal=True, window=40, sinks=0),
    Case("one sink", Hq=2, Hkv=1, N=200, D=16, dtype="float32", causal=True, window=40, sinks=1),
    Case("sinks not a multiple of a tile", N=300, D=16, dtype="float32", causal=True, window=146, sinks=37),
    Case("sinks of whole tiles", N=300, D=16, dtype="float32", causal=True, window=191, sinks=64),
    Case("sinks larger than the window", Hq=2, Hkv=1, N=200, D=16, causal=True, window=9, sinks=50),
    Case("sinks larger than N", Hq=2, Hkv=1, N=90, D=16, causal=True, window=9, sinks=1000),
    Case("sinks overlapping the window", N=150, D=16, dtype="float32", causal=True, window=60, sinks=70),
    Case("window and sinks of one", Hq=3, Hkv=1, N=70, D=16, causal=True, window=1, sinks=1),
    Case("window of everything", Hq=4, Hkv=1, N=70, D=16, causal=True, window=EVERYTHING, sinks=4),
    Case(
        "window and sinks by default",
        N=200,
        D=16,
        causal=True,
        window=128,
        sinks=4,
        left_out=("window_size", "sink_size"),
    ),
)
WHOLE_MATRIX = (
    Case("never the whole score matrix", N=192, Nk=1024, D=16, dtype="float32"),
    Case("never the whole causal mask", N=1024, D=16, dtype="float32", causal=True),
)
SPEED_SHAPE = Case("speed", B=4, Hq=16, N=4096, D=128, gpu=True)


def with_windows(cases):
    """Give every case without a window one that cuts it: wide where only many keys can show the mistake.

    A bound that is one token off shows only where it crosses a tile's edge: windows of 98 and 146 are 2 more, and one
    of 191 is 1 less than whole tiles of 16 to 64.
    """
    windows = {"falling": 98, "rising": 100, "offset": 250}
    return tuple(
        case if case.window else replace(case, window=windows.get(case.values, 32 if case.N < 4000 else 1000))
        for case in cases
    )


PROBLEMS = (
    Problem(
        "p1", "naive attention", "p1_naive_attention.py", "naive_attention",
        "naive_attention(q, k, v, is_causal=False) -> (o, lse)",
        (*common_cases(), *TWO_LENGTHS, *CAUSAL, *gpu_cases()), uses_triton=False, tiled=False,
        returns_lse=True,
    ),
    Problem(
        "p2", "online softmax", "p2_online_softmax.py", "flash_attention_forward",
        "flash_attention_forward(q, k, v, is_causal=False) -> (o, lse)",
        (*common_cases(), *TWO_LENGTHS, *CAUSAL, *gpu_cases(longest=2048)), uses_triton=False, returns_lse=True,
        memory_cases=WHOLE_MATRIX,
    ),
    Problem(
        "p3", "FlashAttention", "p3_flash_attention.py", "flash_attention_forward",
        "flash_attention_forward(q, k, v, is_causal=False) -> o",
        triton_cases(), speed_case=SPEED_SHAPE,
    ),
    Problem(
        "p4", "causal", "p4_causal.py", "flash_attention_forward",
        "flash_attention_forward(q, k, v, is_causal=True) -> o",
        triton_cases((FULL,), causal=True), speed_case=fit(SPEED_SHAPE, causal=True), counts_work=True,
    ),
    Problem(
        "p5", "grouped-query attention", "p5_gqa.py", "flash_attention_forward",
        "flash_attention_forward(q, k, v, is_causal=True) -> o",
        triton_cases((*GROUPS, fit(FULL, Hq=6, group=3)), causal=True, group=2),
        speed_case=fit(SPEED_SHAPE, causal=True, group=4), counts_work=True,
    ),
    Problem(
        "p6", "sliding window", "p6_sliding_window.py", "flash_attention_forward",
        "flash_attention_forward(q, k, v, is_causal=True, window_size=128) -> o",
        with_windows(triton_cases(WINDOWS, causal=True, group=2)),
        speed_case=fit(SPEED_SHAPE, causal=True, group=4, window=1024), counts_work=True,
    ),
    Problem(
        "p7", "sinks and window", "p7_sinks_and_window.py", "flash_attention_forward",
        "flash_attention_forward(q, k, v, is_causal=True, window_size=128, sink_size=4) -> o",
        with_windows(triton_cases(SINKS, causal=True, group=2, sinks=4)),
        speed_case=fit(SPEED_SHAPE, causal=True, group=4, window=1024, sinks=4), counts_work=True,
    ),
)  # fmt: skip
