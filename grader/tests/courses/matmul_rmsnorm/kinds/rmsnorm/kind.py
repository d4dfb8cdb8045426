"""RMS norm of rows with a weight: the cases, the inputs, what is right."""

from dataclasses import dataclass, replace

from grader.course import tensors
from grader.course.problem import Problem
from grader.kinds import careful, values
from grader.kinds.kind import Kind, KnownMistake, Question, Right

EPS = 1e-6


@dataclass(frozen=True)
class Case(Question):
    """x (rows, columns) and a weight (columns,)."""

    rows: int = 3
    columns: int = 64
    dtype: str = "float32"
    layout: str = "contiguous"
    values: str = "normal"

    def describe(self, seed):
        return (
            f"rows={self.rows} columns={self.columns}, {self.dtype}, {self.layout}, {self.values} values, seed {seed}"
        )


CASES = (
    Case("a power of two"),
    Case("ragged tail", columns=100),
    Case("one number", rows=1, columns=1),
    Case("float16", rows=5, columns=130, dtype="float16", layout="odd rows"),
    Case("squares beyond float16", rows=2, columns=40, dtype="float16", values="offset"),
    Case("bfloat16, a slice of a larger buffer", columns=70, dtype="bfloat16", layout="slice"),
)


def norm(x, weight):
    return x * rstd_of(x)[:, None] * weight


def rstd_of(x):
    return (x.square().mean(1) + EPS).rsqrt()


MISTAKES = {
    "n1": (
        KnownMistake(
            "a layer norm, with the mean taken off", "is anything taken off x?",
            lambda case, x, weight: norm(x - x.mean(1, keepdim=True), weight),
        ),
        KnownMistake("an RMS norm without its weight", "what is each column multiplied by?",
                     lambda case, x, weight: norm(x, 1.0)),
        KnownMistake("an RMS norm over the width of the block in place of the row's",
                     "how many numbers does the mean divide by?",
                     lambda case, x, weight: norm(x, weight) * (block_of(case) / case.columns) ** 0.5),
        KnownMistake("the root itself, not one over it", "what is each number multiplied by?",
                     lambda case, x, weight: 1.0 / rstd_of(x), output="rstd"),
    )
}  # fmt: skip


class RmsNorm(Kind):
    problems = (
        Problem(
            "n1", "RMS norm", "n1_rmsnorm.py", "rmsnorm", "rmsnorm(x, weight) -> out, rstd", CASES,
            tensors=("x", "weight"), compile_case=Case("compiles", rows=64, columns=1000), multiplies=False,
        ),
    )  # fmt: skip
    mistakes = MISTAKES

    def inputs(self, case, seed):
        (x,) = values.make(case, seed, (case.rows, case.columns))
        (weight,) = values.make(replace(case, name="weight", values="normal"), seed, (case.columns,))
        return [x, tensors.place(weight.tensor)]

    def shapes(self, case):
        return [(case.rows, case.columns), (case.columns,)]

    def outputs(self, problem, case):
        return [("out", (case.rows, case.columns), case.dtype), ("rstd", (case.rows,), "float32")]

    def right(self, problem, case, placed, device):
        x, weight = (each.tensor.to(device) for each in placed)
        expected, rstd = norm(x.double(), weight.double()), rstd_of(x.double())
        wide, factor = x.float(), weight.float()
        forms = [
            norm(wide, factor),
            wide * ((wide * wide).cumsum(1)[:, -1:] / case.columns + EPS).rsqrt() * factor,
            norm(wide, 1.0).to(x.dtype).float() * factor,
        ]
        return [
            Right("out", case.dtype, expected, careful.allow(expected, forms, x.dtype)),
            Right("rstd", "float32", rstd, careful.allow(rstd, [rstd_of(wide)], wide.dtype)),
        ]


def block_of(case):
    """The columns of a block: the next power of two."""
    return 1 << (case.columns - 1).bit_length()


KIND = RmsNorm()
