"""The warm-ups: a copy, the sums of rows, the softmax of rows; what is right, how near, and what is often wrong."""

import math
from dataclasses import replace

import torch

from grader.kinds import careful, trying
from grader.kinds.kind import Kind, Right
from grader.kinds.warm_ups import mistakes
from grader.kinds.warm_ups.cases import PROBLEMS
from grader.result import Cause

IN_FEW_BITS = Cause(
    "the right one computed in the input's dtype, where float32 is asked for",
    "in which dtype is the tile when it is added up: is it cast to float32 where it is loaded?",
    mistakes.LOOP,
    general=True,  # one case cannot tell: all are asked
)
NARROW = 64  # roundings to the input's dtype: more than a kernel makes that works in it
SUMS, SOFTMAX = "w2", "w3"


class WarmUps(Kind):
    problems, mistakes = PROBLEMS, mistakes.EVERY

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
        if problem.id == SUMS:
            return [("out", (case.rows,), "float32")]
        return [("out", case.shape, case.dtype)]

    def right(self, problem, case, placed, device):
        x = placed[0].tensor.to(device)
        ((_, _, dtype),) = self.outputs(problem, case)
        if problem.id == SUMS:
            expected, size = x.double().sum(1), x.double().abs().sum(1)
            allowed = careful.allow(expected, careful_sums(x.float()), torch.float32, size)
        elif problem.id == SOFTMAX:
            expected = x.double().softmax(1)
            allowed = careful.allow(expected, careful_softmaxes(x.float()), x.dtype)
        else:
            expected = x.double()
            allowed = torch.zeros_like(expected)
        return [Right("out", dtype, expected, allowed)]

    def diagnose(self, problem, case, placed, reply, got, right, found):
        told = super().diagnose(problem, case, placed, reply, got, right, found)
        step = torch.finfo(placed[0].base.dtype).eps
        size = placed[0].tensor.double().abs().sum(1) if problem.id == SUMS else right.expected
        near = bool(((got.double() - right.expected).abs() <= NARROW * step * size + step).all())
        if problem.id != "w1" and near and not told.causes and case.dtype != "float32":
            told.causes.append(IN_FEW_BITS)
        elif got.isfinite().all():  # what overflows in few bits is not near
            told.evidence["refuted"].add(IN_FEW_BITS.kind)
        return told


# What careful kernels do; x: float32 ----------------------------------------------------------------------------------


def careful_sums(x):
    """The sum of each row at once, from both ends one by one, and by tiles."""
    yield x.sum(1)
    yield x.cumsum(1)[:, -1]
    yield x.flip(1).cumsum(1)[:, -1]
    yield torch.stack([tile.sum(1) for tile in x.split(16, 1)]).cumsum(0)[-1]


def careful_softmaxes(x):
    """With exp or exp2, a quotient or a product, each on every order of the sum."""
    less = x - x.amax(1, keepdim=True)
    for p in (less.exp(), (less * math.log2(math.e)).exp2()):
        for row_sum in careful_sums(p):
            yield p / row_sum[:, None]
            yield p * (1.0 / row_sum[:, None])


KIND = WarmUps()
