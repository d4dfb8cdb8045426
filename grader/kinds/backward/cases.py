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
SPEED = causal("speed", B=4, Hq=16, N=4096, D=128, dtype="float16", gpu=True)
COMPILED = causal("compiles", B=2, Hq=8, Hkv=2, N=2048, D=128, dtype="float16", window=500, sinks=5)

PROBLEM = Problem(
    "x3", "the backward pass", "x3_backward.py", "attention_backward",
    "attention_backward(do, q, k, v, o, lse, is_causal=True, window_size=None, sink_size=0) -> (dq, dk, dv)",
    CASES, speed_case=SPEED, takes=("is_causal", "window_size", "sink_size"), compile_case=COMPILED, tensors=TENSORS,
)  # fmt: skip


def compiled(name):
    return replace(COMPILED, name=name)
