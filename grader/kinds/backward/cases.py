"""x3, the backward pass of attention, as plain data: what is asked, for no points."""

from dataclasses import dataclass
from typing import ClassVar

from grader.course.problem import Problem
from grader.kinds.attention import rows
from grader.kinds.attention.case import Case
from grader.kinds.attention.cases import OBSERVER

TENSORS = ("do", "q", "k", "v", "o", "lse")


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


(CASES,) = rows.read_table(__file__, BackwardCase).values()
SPEED = BackwardCase("speed", B=4, Hq=16, N=4096, D=128, dtype="float16", gpu=True)
COMPILED = BackwardCase("compiles", B=2, Hq=8, Hkv=2, N=2048, D=128, dtype="float16", window=500, sinks=5)

PROBLEM = Problem(
    "x3", "the backward pass", "x3_backward.py", "attention_backward",
    "attention_backward(do, q, k, v, o, lse, is_causal=True, window_size=None, sink_size=0) -> (dq, dk, dv)",
    CASES, speed_case=SPEED, takes=("is_causal", "window_size", "sink_size"), compile_case=COMPILED,
    tensors=TENSORS, observer=OBSERVER, spilled=600,
)  # fmt: skip
