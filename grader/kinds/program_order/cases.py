"""x2, program order, as plain data: what is asked of its function and of its kernel, for no points."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from grader.course.problem import Problem
from grader.kinds.attention.cases import OBSERVER, Case


@dataclass(frozen=True)
class OrderCase(Case):
    """A question to x2's `program_order`. sizes: (num_tiles, num_heads, num_dies, heads_per_kv) of each call.

    drawn: as many more, drawn with the seed.
    """

    sizes: tuple[tuple[int, int, int, int], ...] = ()
    drawn: int = 0
    attends: ClassVar[bool] = False

    def describe(self, seed):
        if self.drawn:
            return f"{self.drawn} sizes, seed {seed}"
        named = "num_tiles={} num_heads={} num_dies={} heads_per_kv={}".format(*self.sizes[0])
        return named + (f" and {len(self.sizes) - 1} more sizes" if len(self.sizes) > 1 else "")


@dataclass(frozen=True)
class OrderedCase(Case):
    """A question to x2's kernel. like: what else it must agree with, "program_order" or "the plain order"."""

    num_dies: int = 8
    causal: bool = True
    like: str = ""

    @property
    def arguments(self):
        return super().arguments | {"num_dies": self.num_dies}

    def describe(self, seed):
        return super().describe(seed).replace(",", f" num_dies={self.num_dies},", 1)


SMALL = tuple(
    (tiles, kv_heads * sharing, dies, sharing)
    for tiles in range(1, 8) for kv_heads in range(1, 8) for dies in (1, 2, 3, 8) for sharing in (1, 2, 3)
)  # fmt: skip
ORDERS = (
    OrderCase("one head for each die", sizes=((16, 8, 8, 1), (64, 8, 8, 1), (1, 8, 8, 1), (5, 2, 2, 1))),
    OrderCase("several heads for each die", sizes=((16, 16, 8, 1), (64, 16, 8, 1), (64, 32, 8, 1))),
    OrderCase("a number of tiles that 8 does not divide", sizes=((12, 8, 8, 1), (13, 24, 8, 1), (100, 8, 8, 1))),
    OrderCase("more than 64 tiles", sizes=((72, 8, 8, 1), (128, 8, 8, 1), (128, 32, 8, 1), (256, 16, 8, 1))),
    OrderCase("heads left over", sizes=((16, 12, 8, 1), (64, 15, 8, 1), (16, 9, 8, 1), (33, 17, 8, 1))),
    OrderCase("fewer heads than dies", sizes=((64, 4, 8, 1), (16, 1, 8, 1), (7, 3, 8, 1), (64, 7, 8, 1))),
    OrderCase("heads that share K and V", sizes=((16, 16, 4, 2), (16, 32, 8, 4), (8, 16, 8, 2), (16, 64, 8, 8))),
    OrderCase("heads that share K and V, left over", sizes=((13, 10, 8, 2), (16, 8, 8, 2), (16, 24, 2, 8))),
    OrderCase("other numbers of dies", sizes=tuple((16, 12, dies, 1) for dies in (1, 2, 3, 4, 5, 6, 7, 12, 16, 32))),
    OrderCase("one tile", sizes=((1, 1, 1, 1), (1, 1, 8, 1), (1, 16, 8, 1), (1, 9, 8, 1))),
    OrderCase("every small size", sizes=SMALL),
    OrderCase("sizes drawn at random", drawn=40),
)
PLACES = "program_order"
PLAIN = "the plain order"
ORDERED = (
    OrderedCase("whole tiles", Hq=2, N=128, D=64),
    OrderedCase("ragged tail", B=2, Hq=4, Hkv=2, N=129, D=64),
    OrderedCase("one token", N=1),
    OrderedCase("fewer tokens than a tile", N=7, D=16, dtype="float32"),
    OrderedCase("many tiles", Hq=2, N=1030, D=16, dtype="float32"),
    OrderedCase("every batch and head its own", B=3, Hq=4, N=40),
    OrderedCase("groups of four", B=2, Hq=8, Hkv=2, N=45),
    OrderedCase("nine heads", Hq=9, N=70, D=16),
    OrderedCase("two dies", Hq=5, N=100, D=16, num_dies=2),
    OrderedCase("one die", Hq=3, Hkv=1, N=97, D=16, num_dies=1),
    OrderedCase("not causal", Hq=3, Hkv=1, N=97, D=16, causal=False),
    OrderedCase("heads interleaved", B=2, Hq=4, N=70, D=16, layout="interleaved"),
    OrderedCase("poison past the end", Hq=2, N=50, layout="poisoned tail"),
    OrderedCase("bfloat16", Hq=2, N=130, D=64, dtype="bfloat16"),
    OrderedCase("programs are placed as program_order says", Hq=8, N=200, D=16, like=PLACES),
    OrderedCase("placed so with shared heads and batches", B=2, Hq=6, Hkv=3, N=150, D=16, num_dies=4, like=PLACES),
    OrderedCase("the same bits in the plain order", B=2, Hq=6, Hkv=2, N=70, D=16, like=PLAIN),
    OrderedCase("the same bits, float32", Hq=9, N=100, D=16, dtype="float32", num_dies=4, like=PLAIN),
    OrderedCase("4096 tokens", Hq=8, Hkv=2, N=4096, D=128, gpu=True),
    OrderedCase("4095 tokens, the same bits", B=2, Hq=9, N=4095, D=64, dtype="bfloat16", like=PLAIN, gpu=True),
)  # fmt: skip

PROBLEM = Problem(
    "x2", "program order", "x2_program_order.py", "flash_attention_forward",
    "flash_attention_forward(q, k, v, is_causal=True, num_dies=8) -> o",
    (*ORDERS, *ORDERED), takes=("is_causal", "num_dies"),
    beside=Path(__file__).with_name("beside.py"), observer=OBSERVER,
    compile_case=OrderedCase("compiles", B=2, N=2048, Hq=16, Hkv=4, D=128),
)  # fmt: skip
