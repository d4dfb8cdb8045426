"""Elementwise kernels: the cases, the inputs, what is right."""

from dataclasses import dataclass

import torch

from grader.course import tensors
from grader.course.problem import Problem
from grader.kinds.kind import Kind, Question, Right


@dataclass(frozen=True)
class Case(Question):
    """x and y of n elements. alpha: None for the entry point's own default, 1."""

    n: int = 1000
    dtype: str = "float32"
    alpha: float | None = None

    @property
    def arguments(self):
        return {} if self.alpha is None else {"alpha": self.alpha}

    def describe(self, seed):
        return f"n={self.n} alpha={1.0 if self.alpha is None else self.alpha}, {self.dtype}, seed {seed}"


CASES = (
    Case("whole blocks", n=512),
    Case("ragged tail", n=1000, alpha=0.5),
    Case("one element", n=1, alpha=2.0),
    Case("half precision", n=300, alpha=0.25, dtype="float16"),
)


class Elementwise(Kind):
    problems = (
        Problem(
            "e1", "scaled add", "e1_scaled_add.py", "scaled_add", "scaled_add(x, y, alpha=1.0) -> out", CASES,
            tensors=("x", "y"), takes=("alpha",), compile_case=Case("compiles", n=4096),
        ),
    )  # fmt: skip

    def inputs(self, case, seed):
        generator = torch.Generator().manual_seed(seed + case.n)
        dtype = getattr(torch, case.dtype)
        return [tensors.place(torch.randn(case.n, generator=generator).to(dtype)) for _ in self.names]

    def shapes(self, case):
        return [(case.n,), (case.n,)]

    def compiled_case(self, problem, name):
        return problem.compile_case

    def outputs(self, problem, case):
        return [("out", (case.n,), case.dtype)]

    def right(self, problem, case, placed, device):
        x, y = (each.tensor.double() for each in placed)
        expected = x + (1.0 if case.alpha is None else case.alpha) * y
        step = torch.finfo(getattr(torch, case.dtype)).eps
        return [Right("out", case.dtype, expected, 2 * step * (x.abs() + y.abs()))]


KIND = Elementwise()
