"""The product of two matrices of any sizes: the cases, the inputs, what is right."""

from dataclasses import dataclass

from grader.course.problem import Problem
from grader.kinds import careful
from grader.kinds.kind import Kind, KnownMistake, Question, Right

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

    def describe(self, seed):
        return f"M={self.M} N={self.N} K={self.K}, {self.dtype}, {self.layout}, {self.values} values, seed {seed}"


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


MISTAKES = {
    "m1": (
        KnownMistake(
            "the product of the first tile of K alone", "does the loop add each tile of K to what was there?",
            lambda case, a, b: a[:, :TILE] @ b[:TILE],
        ),
        KnownMistake(
            "the product without K's last, ragged tile", "where does the loop over K end?",
            lambda case, a, b: a[:, : case.K // TILE * TILE] @ b[: case.K // TILE * TILE],
        ),
    )
}  # fmt: skip


class Matmul(Kind):
    problems = (
        Problem(
            "m1", "tiled matmul", "m1_matmul.py", "matmul", "matmul(a, b) -> c (float32)", CASES, tensors=("a", "b"),
            compile_case=Case("compiles", M=512, N=512, K=512), refused=("mm", "addmm", "bmm", "mv", "dot"),
        ),
    )  # fmt: skip
    mistakes = MISTAKES

    def shapes(self, case):
        return [(case.M, case.K), (case.K, case.N)]

    def outputs(self, problem, case):
        return [("c", (case.M, case.N), "float32")]

    def right(self, problem, case, placed, device):
        a, b = (each.tensor.to(device) for each in placed)
        expected, size = a.double() @ b.double(), a.double().abs() @ b.double().abs()
        a, b = a.float(), b.float()
        forms = [a @ b, sum(x @ y for x, y in zip(a.split(16, 1), b.split(16), strict=True))]
        if device == "cuda" and case.dtype == "float32":  # Triton's dots take tf32 there
            forms.append(careful.drop_to_tf32(a) @ careful.drop_to_tf32(b))
        return [Right("c", "float32", expected, careful.allow(expected, forms, a.dtype, size))]


KIND = Matmul()
