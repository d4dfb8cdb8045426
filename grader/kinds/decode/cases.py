"""x4, decode over a cache, as plain data: what is asked, for no points."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import torch

from grader.course.problem import Problem
from grader.engine.question import Question
from grader.kinds.attention import rows

TENSORS = ("q", "k_cache", "v_cache")
PIECE, BLOCK_K = 64, 32  # tokens of a piece and of a tile of keys without a GPU, where a case sets no others


@dataclass(frozen=True)
class DecodeCase(Question):
    """A call for sequences of these lengths. room: tokens that a dense cache holds, or the pages of a sequence in the
    table; by default the longest sequence and a few more.

    page: tokens of a page, None for a dense cache. sink: "" for no logits, else a name of inputs.SINKS. scale: None for
    the default. rest: what may not be read holds numbers of earlier sequences ("stale") or "NaN". like: how a second
    call asks for the same sequences, a name of same_bits.CALLS, or "". layout, values: names that inputs.py knows.
    tiles: PIECE and BLOCK_K that the module's TILES_INTERPRETER has for this case.
    """

    lengths: tuple[int, ...] = (100,)
    Hq: int = 4
    Hkv: int = 2
    Nq: int = 1
    D: int = 16
    dtype: str = "float32"
    room: int | None = None
    page: int | None = None
    window: int | None = None
    sink: str = ""
    scale: float | None = None
    layout: str = "contiguous"
    values: str = "normal"
    rest: str = "stale"
    like: str = ""
    tiles: tuple[int, int] | None = None

    attends: ClassVar[bool] = True

    @property
    def B(self):
        return len(self.lengths)

    @property
    def N(self):
        """By which the cross-case check orders cases: tokens of the longest sequence."""
        return max(self.lengths)

    @property
    def group(self):
        return self.Hq // self.Hkv

    @property
    def piece(self):
        return (self.tiles or (PIECE,))[0]

    @property
    def tokens(self):
        """Tokens that the cache of a sequence can hold."""
        if self.page is None:
            return self.room or self.N + 5
        return self.page * (self.room or math.ceil(self.N / self.page) + 1)

    def first_key(self, length):
        """The first key that a new token of a sequence sees."""
        return max(0, length - self.Nq + 1 - self.window) if self.window else 0

    @property
    def needed(self):
        """Entries of K that are seen, of all sequences and kv heads."""
        return self.Hkv * sum(length - self.first_key(length) for length in self.lengths)

    @property
    def score_scale(self):
        return 1.0 / math.sqrt(self.D) if self.scale is None else self.scale

    @property
    def fits_gpu(self):
        return not self.layout.startswith("far")

    @property
    def flops(self):
        return 4 * self.needed * self.group * self.Nq * self.D

    @property
    def least_bytes(self):
        """Bytes of the keys and values that are seen, and of q and o."""
        rows_of_q = self.B * self.Hq * self.Nq
        return (2 * self.needed + 2 * rows_of_q) * self.D * getattr(torch, self.dtype).itemsize

    @property
    def smaller(self):
        return replace(self, lengths=self.lengths[:1])

    @property
    def arguments(self):
        named = {"window_size": self.window, "softmax_scale": self.scale}
        return {name: value for name, value in named.items() if value is not None}

    def describe(self, seed):
        """`lengths=37 64 heads=4/2 Nq=1 D=16 page=16 window=40, float32, NaN, seed 3`; NaN: in what may not be read."""
        lengths = " ".join(map(str, self.lengths[:4])) + " ..." * (self.B > 4)
        lengths = f"{self.B} x {self.N}" if self.B > 1 and len(set(self.lengths)) == 1 else lengths
        sizes = {"lengths": lengths, "heads": f"{self.Hq}/{self.Hkv}", "Nq": self.Nq, "D": self.D}
        sizes |= {"page": self.page, "window": self.window, "sink": self.sink or None, "scale": self.scale}
        text = " ".join(f"{name}={value}" for name, value in sizes.items() if value is not None)
        extras = [self.dtype]
        extras += [self.layout] if self.layout != "contiguous" else []
        extras += [self.values] if self.values != "normal" else []
        extras += ["NaN"] if self.rest == "NaN" else []
        extras += [f"PIECE {self.piece}"] if self.tiles else []
        return f"{text}, {', '.join(extras)}, seed {seed}"


READERS = {
    "lengths": lambda text: tuple(map(int, text.split())),
    "sink": str, "rest": str, "like": str, "scale": float,
}  # fmt: skip
(CASES,) = rows.read_table(__file__, DecodeCase, READERS).values()
COMPILED = DecodeCase(
    "compiles", lengths=(4096,) * 4, Hq=32, Hkv=8, D=128, dtype="bfloat16", page=64, window=1000, sink="normal"
)
# 16k tokens of 8 sequences
SPEED = DecodeCase("speed", lengths=(16384,) * 8, room=16384, Hq=32, Hkv=8, D=128, dtype="bfloat16", gpu=True)
LONG = "long caches"

PROBLEM = Problem(
    "x4", "decode", "x4_decode.py", "decode_attention",
    "decode_attention(q, k_cache, v_cache, lengths, block_table=None, sink_logits=None, window_size=None, "
    "softmax_scale=None) -> o",
    CASES, speed_case=SPEED, takes=("lengths", "block_table", "sink_logits", "window_size", "softmax_scale"),
    compile_case=COMPILED, tensors=TENSORS, beside=Path(__file__).with_name("beside.py"),
)  # fmt: skip
