"""x3, the backward pass of attention, as plain data: what is asked, for no points."""

from dataclasses import dataclass, replace
from typing import ClassVar

from grader.course.problem import Problem
from grader.kinds.attention.cases import EVERYTHING, Case

TENSORS = ("do", "q", "k", "v", "o", "lse")
OUTPUTS = ("dq", "dk", "dv")


@dataclass(frozen=True)
class BackwardCase(Case):
    """One call of a backward pass; do is normal, o and lse are those of a right forward.

    gradient: how do lies in memory: as `layout` has it, or "expanded": one row for all queries of all heads, with
    strides of 0, as autograd hands over the gradient of a mean.
    """

    causal: bool = True
    gradient: str = ""

    products: ClassVar[int] = 5  # scores, dp, dq, dk and dv
    multiplied: ClassVar[int] = 7  # of two kernels, scores and dp of each

    @property
    def least_bytes(self):
        """Bytes of q, k, v and o, of their gradients, and of lse."""
        return 2 * super().least_bytes + 4 * self.B * self.Hq * self.N

    def describe(self, seed):
        said = super().describe(seed)
        return said.replace(", seed", ", expanded do, seed") if self.gradient else said


def causal(name, **sizes):
    return BackwardCase(name, **{"N": 100, "D": 16, "dtype": "float32"} | sizes)


CASES = (
    causal("one tile", N=32, Hq=2),
    causal("whole tiles", N=128, Hq=2),
    causal("no mask", causal=False, N=128, Hq=2),
    causal("no mask, ragged tail", causal=False, N=83, Hq=2, dtype="float16"),
    causal("ragged tail", N=129, Hq=2, dtype="float16"),
    causal("several batches", B=3, Hq=2, N=70),
    causal("groups of 2", B=2, Hq=4, Hkv=2, N=70),
    causal("groups of 3", Hq=6, Hkv=2, N=70, dtype="float16"),
    causal("one kv head for all", Hq=4, Hkv=1, N=50),
    causal("tiles of 16 x 64", N=150, tiles=(16, 64)),
    causal("tiles of 32 x 16", N=150, tiles=(32, 16), dtype="float16"),
    causal("no mask, tiles of 16 x 64", causal=False, N=100, tiles=(16, 64)),
    causal("window", N=150, Hq=2, window=40),
    causal("window whose last query begins a tile", N=150, window=34),
    causal("window of whole tiles", N=200, window=64, dtype="float16"),
    causal("window of 1", N=70, window=1),
    causal("window, tiles of 16 x 64", N=200, window=37, tiles=(16, 64)),
    causal("window as long as the row", N=70, window=70),
    causal("window of everything", N=70, window=EVERYTHING, dtype="float16"),
    causal("sinks and window", N=200, Hq=2, window=33, sinks=3),
    causal("sinks of more than a tile", N=200, window=21, sinks=45),
    causal("sinks, tiles of 16 x 64", N=200, window=21, sinks=70, tiles=(16, 64), dtype="float16"),
    causal("sinks, groups and batches", B=2, Hq=4, Hkv=2, N=120, window=20, sinks=5),
    causal("more sinks than tokens", N=60, window=5, sinks=100),
    causal("one token", N=1, Hq=2),
    causal("fewer tokens than a tile", N=7, Hq=2, dtype="float16"),
    causal("head dim 64", N=100, D=64, dtype="float16"),
    causal("head dim 128", N=70, D=128, dtype="bfloat16"),
    causal("bfloat16", N=100, Hq=2, D=32, dtype="bfloat16"),
    causal("heads interleaved", B=2, Hq=2, N=70, layout="interleaved"),
    causal("tokens first", B=2, Hq=4, Hkv=2, N=50, layout="tokens first", dtype="float16"),
    causal("slice of a larger buffer", B=2, Hq=2, N=50, layout="slice"),
    causal("each tensor with another layout", B=2, Hq=4, Hkv=2, N=70, layout="mixed"),
    causal("poison past the end", N=50, layout="poisoned tail"),
    causal("expanded gradient", B=2, Hq=2, N=70, gradient="expanded"),
    causal("expanded gradient, a long sum", causal=False, N=300, dtype="float16", gradient="expanded"),
    causal("scores falling along the keys", N=150, values="falling"),
    causal("scores rising along the keys", N=150, values="rising", window=100),
    causal("rows of very different size", N=70, values="uneven"),
    causal("all scores below -10000", N=70, D=64, values="low", window=30),
    causal("defaults", N=90, left_out=("is_causal", "window_size", "sink_size")),
    causal("2048 tokens", Hq=4, Hkv=2, N=2048, D=128, dtype="bfloat16", gpu=True),
    causal("2047 tokens, window and sinks", Hq=4, Hkv=2, N=2047, D=64, dtype="float16", window=300, sinks=4, gpu=True),
    causal("head dim 256", Hq=2, N=600, D=256, dtype="bfloat16", gpu=True),
    causal("float32, no mask", causal=False, Hq=2, N=777, D=128, gpu=True),
)  # fmt: skip
PAIRS = (
    causal("long row", Hq=4, Hkv=2, N=1030, D=64, window=130, sinks=9, tiles=(128, 64)),
    causal("no mask, all scores low, ragged", Hq=8, Hkv=1, N=83, D=256, layout="odd rows", values="lower",
        causal=False),
    causal("no mask, all scores near 100000", Hq=3, Hkv=1, N=70, D=128, layout="interleaved", values="high",
        causal=False),
    causal("rows of an odd stride", B=2, Hq=8, Hkv=1, N=5, D=64, dtype="bfloat16", layout="odd rows"),
    causal("rows beyond int32", B=2, Hq=8, Hkv=2, N=64, D=128, layout="far rows", dtype="float16"),
    causal("heads beyond int32", Hq=9, Hkv=3, N=5, layout="far heads", D=32),
    causal("batches beyond int32", B=5, Hq=4, Hkv=2, N=1, D=256, dtype="bfloat16", layout="far batches"),
    causal("pairs 1", B=2, Hq=9, Hkv=3, N=128, D=64, dtype="bfloat16", window=1, sinks=32, layout="mixed",
        values="offset", left_out=("is_causal",), tiles=(128, 64)),
    causal("pairs 2", B=5, Hq=6, Hkv=3, N=7, window=5, sinks=1, layout="poisoned tail", values="falling",
        left_out=("is_causal",), D=32, dtype="float16"),
    causal("pairs 3", B=2, Hq=4, Hkv=1, N=5, D=256, dtype="bfloat16", window=32, sinks=41, layout="tokens first",
        values="rising", left_out=("is_causal",)),
    causal("pairs 4", B=2, Hkv=1, N=275, window=16, sinks=1, layout="odd rows", values="high",
        left_out=("is_causal",), tiles=(128, 64), D=32),
    causal("pairs 5", B=5, Hkv=1, N=64, D=256, window=16, sinks=13, layout="mixed", values="offset",
        left_out=("is_causal",), dtype="float16"),
    causal("pairs 6", Hq=16, Hkv=2, N=1, D=128, window=16, sinks=1, layout="mixed", left_out=("is_causal",),
        dtype="float16"),
    causal("pairs 7", Hkv=1, N=1103, window=190, sinks=32, layout="interleaved", values="offset", tiles=(128, 128),
        D=32),
    causal("pairs 8", B=2, Hq=4, Hkv=1, N=257, D=64, dtype="bfloat16", window=13, sinks=24, layout="slice",
        values="offset", left_out=("is_causal",), tiles=(128, 128)),
    causal("pairs 9", B=5, Hq=2, Hkv=1, N=1, D=128, window=1, sinks=137, layout="odd rows", values="lower",
        left_out=("is_causal",)),
    causal("pairs 10", Hq=10, Hkv=5, N=64, D=64, dtype="bfloat16", window=32, sinks=25, layout="tokens first",
        values="rising"),
    causal("pairs 11", Hq=8, Hkv=1, N=64, dtype="bfloat16", window=29, sinks=1, layout="far rows", values="offset",
        left_out=("is_causal",)),
    causal("pairs 12", Hq=8, Hkv=1, N=275, window=1, sinks=9, layout="interleaved", values="rising", tiles=(128, 128),
        D=32, dtype="float16"),
    causal("pairs 13", B=2, Hq=6, Hkv=2, N=1, window=5, sinks=64, layout="slice", values="lower", D=32),
    causal("pairs 14", B=5, Hkv=1, N=11, D=64, window=33, sinks=2, layout="far batches", values="high"),
    causal("pairs 15", Hq=8, Hkv=1, N=64, D=256, window=9, sinks=32, layout="poisoned tail", values="high",
        left_out=("is_causal",)),
    causal("pairs 16", Hq=4, Hkv=2, N=64, window=73, sinks=32, layout="odd rows", values="offset",
        left_out=("is_causal",), dtype="float16"),
    causal("pairs 17", Hq=8, Hkv=2, N=64, window=32, sinks=47, layout="mixed", values="lower",
        left_out=("is_causal",), D=32),
    causal("pairs 18", Hq=9, Hkv=3, N=11, D=128, dtype="bfloat16", window=5, sinks=9, layout="odd rows",
        values="falling"),
    causal("pairs 19", Hq=16, Hkv=4, N=1, D=256, window=1, sinks=1, values="high"),
    causal("pairs 20", Hq=3, Hkv=1, N=257, D=128, window=32, sinks=64, layout="far rows", values="orthogonal",
        tiles=(128, 128), dtype="float16"),
    causal("pairs 21", Hq=9, Hkv=9, N=33, D=128, window=26, sinks=1000, layout="poisoned tail", values="offset",
        dtype="float16"),
    causal("pairs 22", B=2, Hq=2, Hkv=1, N=5, dtype="bfloat16", layout="mixed", values="offset", causal=False, D=32),
    causal("pairs 23", B=5, Hq=3, Hkv=1, N=5, window=2, sinks=1, layout="interleaved", values="lower"),
    causal("pairs 24", Hq=5, Hkv=5, N=5, window=1, sinks=9, layout="mixed", values="high"),
    causal("pairs 25", Hq=3, Hkv=1, N=257, D=256, window=19, sinks=37, layout="mixed", values="rising",
        tiles=(128, 128), dtype="float16"),
    causal("pairs 26", Hq=2, Hkv=1, N=1101, dtype="bfloat16", window=1, sinks=74, left_out=("is_causal",),
        tiles=(128, 128)),
    causal("pairs 27", B=5, Hkv=1, N=1, D=64, layout="far batches", values="lower", causal=False),
    causal("pairs 28", B=5, Hkv=1, N=33, window=2, sinks=32, layout="far rows", values="lower"),
    causal("pairs 29", Hq=12, Hkv=3, N=1, layout="tokens first", values="lower", causal=False),
    causal("pairs 30", B=5, Hkv=1, N=64, D=128, window=46, sinks=30, layout="odd rows", values="high"),
    causal("pairs 31", Hkv=1, N=290, window=1, sinks=4, layout="poisoned tail", values="lower",
        left_out=("is_causal",), tiles=(128, 128)),
    causal("pairs 32", Hq=6, Hkv=3, N=1, D=64, window=1, sinks=18, layout="far heads", values="high"),
    causal("pairs 33", Hq=8, Hkv=1, N=33, D=64, window=32, sinks=1, values="offset", dtype="float16"),
    causal("pairs 34", Hkv=1, N=1107, D=64, window=9, layout="tokens first", values="rising", tiles=(128, 128),
        dtype="float16"),
    causal("pairs 35", Hq=4, Hkv=1, N=64, dtype="bfloat16", window=39, sinks=16),
    causal("pairs 36", Hkv=1, N=64, window=32, sinks=299, layout="poisoned tail", left_out=("is_causal",)),
    causal("pairs 37", Hkv=1, N=5, layout="slice", values="rising", causal=False, dtype="float16"),
    causal("pairs 38", Hkv=1, N=269, dtype="bfloat16", window=278, sinks=1000, values="offset", tiles=(128, 128)),
    causal("pairs 39", Hq=4, Hkv=1, N=5, window=7, sinks=4, layout="odd rows", values="rising"),
    causal("pairs 40", Hq=8, Hkv=1, N=11, window=16, sinks=13, layout="slice", values="offset"),
    causal("pairs 42", Hkv=1, N=7, window=2, layout="mixed", dtype="float16"),
    causal("pairs 43", B=2, Hq=3, Hkv=1, N=1101, dtype="bfloat16", window=32, sinks=1, values="orthogonal",
        tiles=(128, 128)),
    causal("pairs 44", B=5, Hq=12, Hkv=3, N=257, window=1, layout="tokens first", tiles=(128, 128), dtype="float16"),
    causal("pairs 45", Hkv=1, N=1103, dtype="bfloat16", tiles=(128, 128), causal=False),
    causal("pairs 46", B=5, Hq=8, Hkv=1, N=64, dtype="bfloat16", window=73, sinks=57, layout="far rows"),
    causal("pairs 47", B=2, Hq=2, N=1107, dtype="bfloat16", window=1107, sinks=4, left_out=("is_causal",),
        tiles=(128, 128), D=32),
    causal("pairs 48", Hq=2, Hkv=2, N=1103, window=32, sinks=1107, values="uneven", tiles=(128, 128), dtype="float16"),
)  # fmt: skip
SPEED = causal("speed", B=4, Hq=16, N=4096, D=128, dtype="float16", gpu=True)
COMPILED = causal("compiles", B=2, Hq=8, Hkv=2, N=2048, D=128, dtype="float16", window=500, sinks=5)

PROBLEM = Problem(
    "x3", "the backward pass", "x3_backward.py", "attention_backward",
    "attention_backward(do, q, k, v, o, lse, is_causal=True, window_size=None, sink_size=0) -> (dq, dk, dv)",
    (*CASES, *PAIRS), speed_case=SPEED, takes=("is_causal", "window_size", "sink_size"), compile_case=COMPILED,
    tensors=TENSORS,
)  # fmt: skip


def compiled(name):
    return replace(COMPILED, name=name)
