"""The product of two matrices of any sizes: the cases, the inputs, what is right."""

from dataclasses import dataclass

from grader.course.problem import Problem
from grader.engine.kind import Kind
from grader.engine.mistakes import Mistake
from grader.engine.question import Question
from grader.engine.reference import Reference

TILE = 32


@dataclass(frozen=True)
class Case(Question):
    """a (M, K) times b (K, N)."""

    M: int = 32
    N: int = 32
    K: int = 32
    dtype: str = "float16"
    layout: str = "contiguous"
    values: str = "normal"


CASES = (
    Case("whole tiles", M=64, N=32, K=64),
    Case("ragged in every dim", M=33, N=40, K=70),
    Case("one number", M=1, N=1, K=1),
    Case("one long row", M=1, N=3, K=500, dtype="float32"),
    Case("bfloat16, a slice of larger buffers", M=50, N=20, K=90, dtype="bfloat16", layout="slice"),
    Case(
        "sums beyond float16's exact integers", M=20, N=20, K=300, layout="odd rows", values="offset", dtype="float32"
    ),
)


def split(x):
    """A product by tiles of K."""
    return sum(a @ b for a, b in zip(x.a.split(16, 1), x.b.split(16), strict=True))


MATMUL = Reference(
    prepare=lambda case, tensors: dict(zip(("a", "b"), (each.double() for each in tensors), strict=True)),
    steps={"c": lambda x: x.rounded(x.a) @ x.rounded(x.b)},
    outputs=("c",),
    careful=({}, {"c": split}),
    size=lambda x: {"c": x.a.abs() @ x.b.abs()},
)
MISTAKES = (
    Mistake("the product of the first tile of K alone", "does the loop add each tile of K to what was there?", "",
            {"c": lambda x: x.a[:, :TILE] @ x.b[:TILE]}),
    Mistake("the product without K's last, ragged tile", "where does the loop over K end?", "",
            {"c": lambda x: x.a[:, : x.case.K // TILE * TILE] @ x.b[: x.case.K // TILE * TILE]}),
)  # fmt: skip


class Matmul(Kind):
    problems = (
        Problem(
            "m1", "tiled matmul", "m1_matmul.py", "matmul", "matmul(a, b) -> c (float32)", CASES, tensors=("a", "b"),
            compile_case=Case("compiles", M=512, N=512, K=512), refused=("mm", "addmm", "bmm", "mv", "dot"),
        ),
    )  # fmt: skip
    references, mistakes = {"m1": MATMUL}, {"m1": MISTAKES}

    def shapes(self, case):
        return [(case.M, case.K), (case.K, case.N)]

    def outputs(self, problem, case):
        return [("c", (case.M, case.N), "float32")]


KIND = Matmul()
