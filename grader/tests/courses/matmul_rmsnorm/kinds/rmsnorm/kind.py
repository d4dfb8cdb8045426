"""RMS norm of rows with a weight: the cases, the inputs, what is right."""

from dataclasses import dataclass, replace

from grader.course import tensors
from grader.course.problem import Problem
from grader.engine import values
from grader.engine.kind import Kind
from grader.engine.mistakes import Mistake
from grader.engine.question import Question
from grader.engine.reference import Reference

EPS = 1e-6


@dataclass(frozen=True)
class Case(Question):
    """x (rows, columns) and a weight (columns,)."""

    rows: int = 3
    columns: int = 64
    dtype: str = "float32"
    layout: str = "contiguous"
    values: str = "normal"


CASES = (
    Case("a power of two"),
    Case("ragged tail", columns=100),
    Case("one number", rows=1, columns=1),
    Case("float16", rows=5, columns=130, dtype="float16", layout="odd rows"),
    Case("squares beyond float16", rows=2, columns=40, dtype="float16", values="offset"),
    Case("bfloat16, a slice of a larger buffer", columns=70, dtype="bfloat16", layout="slice"),
)


def prepare(case, tensors):
    x, weight = (each.double() for each in tensors)
    return {"x": x, "weight": weight, "width": case.columns}


RMS_NORM = Reference(
    prepare,
    steps={
        "square": lambda x: x.x.square().sum(1) / x.width,
        "rstd": lambda x: (x.square + EPS).rsqrt(),
        "normed": lambda x: x.x * x.rstd[:, None],
        "out": lambda x: x.normed * x.weight,
    },
    outputs=("out", "rstd"),
    careful=(
        {},
        {"square": lambda x: x.x.square().cumsum(1)[:, -1] / x.width},
        {"normed": lambda x: x.stored(x.x * x.rstd[:, None])},
    ),
)
MISTAKES = (
    Mistake("{of} of a layer norm, with the mean taken off", "is anything taken off x?", "",
            {"x": lambda x: x.x - x.x.mean(1, keepdim=True)}),
    Mistake("{of} of an RMS norm without its weight", "what is each column multiplied by?", "",
            {"out": lambda x: x.normed}, outputs=("out",)),
    Mistake("{of} of an RMS norm over the width of the block in place of the row's",
            "how many numbers does the mean divide by?", "",
            {"width": lambda x: 1 << (x.case.columns - 1).bit_length()}),
    Mistake("rstd as the root itself, not one over it", "what is each number multiplied by?", "",
            {"rstd": lambda x: (x.square + EPS).sqrt(), "normed": lambda x: x.x / x.rstd[:, None]}, outputs=("rstd",)),
)  # fmt: skip


class RmsNorm(Kind):
    problems = (
        Problem(
            "n1", "RMS norm", "n1_rmsnorm.py", "rmsnorm", "rmsnorm(x, weight) -> out, rstd", CASES,
            tensors=("x", "weight"), compile_case=Case("compiles", rows=64, columns=1000), multiplies=False,
        ),
    )  # fmt: skip
    references, mistakes = {"n1": RMS_NORM}, {"n1": MISTAKES}

    def inputs(self, case, seed):
        (x,) = values.make(case, seed, (case.rows, case.columns))
        (weight,) = values.make(replace(case, name="weight", values="normal"), seed, (case.columns,))
        return [x, tensors.place(weight.tensor)]

    def shapes(self, case):
        return [(case.rows, case.columns), (case.columns,)]

    def outputs(self, problem, case):
        return [("out", (case.rows, case.columns), case.dtype), ("rstd", (case.rows,), "float32")]


KIND = RmsNorm()
