"""The warm-ups: a copy, the sums of rows, the softmax of rows; what is right, and what careful kernels do."""

import itertools
import math
from dataclasses import replace

import torch

from grader.engine import trying
from grader.engine.kind import Kind
from grader.engine.reference import Reference
from grader.kinds.warm_ups import mistakes
from grader.kinds.warm_ups.cases import PROBLEMS

# Other orders of the sum of each row: one by one, from both ends, and by tiles.
ORDERS = (
    lambda p: p.sum(1),
    lambda p: p.cumsum(1)[:, -1],
    lambda p: p.flip(1).cumsum(1)[:, -1],
    lambda p: torch.stack([tile.sum(1) for tile in p.split(16, 1)]).cumsum(0)[-1],
)
POWERS = (lambda x: x.less.exp(), lambda x: (x.less * math.log2(math.e)).exp2())
DIVIDED = (lambda x: x.p / x.row_sum[:, None], lambda x: x.p * (1.0 / x.row_sum[:, None]))


def summed(order, name):
    return lambda x: order(getattr(x, name))


def rows(case, tensors):
    return {"x": tensors[0].double()}


SOFTMAX = {
    "less": lambda x: x.x - x.x.amax(1, keepdim=True),
    "p": lambda x: x.less.exp(),
    "row_sum": lambda x: x.p.sum(1),
    "out": lambda x: x.p / x.row_sum[:, None],
}
REFERENCES = {
    "w1": Reference(rows, {"out": lambda x: x.x}, ("out",), careful=()),
    "w2": Reference(
        rows, {"out": lambda x: x.x.sum(1)}, ("out",), tuple({"out": summed(order, "x")} for order in ORDERS),
        size=lambda x: {"out": x.x.abs().sum(1)},
    ),
    "w3": Reference(rows, SOFTMAX, ("out",), tuple(
        {"p": power, "row_sum": summed(order, "p"), "out": out}
        for power, order, out in itertools.product(POWERS, ORDERS, DIVIDED)
    )),
}  # fmt: skip


class WarmUps(Kind):
    problems, mistakes = PROBLEMS, mistakes.EVERY
    references = REFERENCES

    def shapes(self, case):
        return [case.shape]

    def size(self, case):
        return math.prod(case.shape)

    def small_case(self, problem, sizes):
        small = {"N": 5} if problem.id == "w1" else {"rows": 3, "columns": 5}
        for name in sizes.keys() & {"N", "rows", "columns"} - small.keys():
            raise ValueError(f"make try P={problem.id} takes {' and '.join(map(str.upper, small))}, not {name.upper()}")
        return trying.resize(replace(problem.cases[0], **small), sizes)

    def outputs(self, problem, case):
        if problem.id == "w2":
            return [("out", (case.rows,), "float32")]
        return [("out", case.shape, case.dtype)]


KIND = WarmUps()
