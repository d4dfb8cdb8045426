"""What a study says of the arms at one point: their inputs, what each computes, and how it is made ready."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import torch

from grader.core.run.stopwatch import Stopwatch
from grader.kinds.attention.cases import Case
from report.measuring.check import Check
from report.places import Refused

INTERPRETER = "interpreter: without a GPU the grader's machine interprets kernels, and its seconds mean nothing"


class NotRun(Refused):
    """An arm that is not to be measured here; the text says why."""


@dataclass(frozen=True)
class Built:
    """An arm ready for one point. call(*inputs) -> its result; around() makes the context in which it is called."""

    call: Callable
    around: Callable = nullcontext


@dataclass(frozen=True)
class Counted(Case):
    """A case whose visible pairs were counted in its map."""

    visible: int = 0

    @property
    def visibility(self):
        return self

    def pairs(self, queries, keys):
        return self.visible


def case_of(point):
    """A Point's shape and mask as the grader has them."""
    return Case(
        point.title, B=point.B, Hq=point.H, Hkv=point.kv_heads, N=point.N, D=point.D, dtype=point.dtype,
        causal=point.causal, window=point.window, sinks=point.sinks,
    )  # fmt: skip


class Arms:
    """The arms of one point on a device. A study has a class of its own, with `build` and what differs from here."""

    rounds_scores = frozenset()  # arms that round scores to the dtype, as plain PyTorch does

    def __init__(self, point, device):
        self.point, self.device = point, device
        self.case, self.stopwatch, self.checks = case_of(point), Stopwatch(device), {}

    def build(self, name):
        """The Built arm; raises NotRun, or whatever its kernel raises."""
        raise NotImplementedError

    def compiles(self, name):
        """Whether the first call of an arm compiles it."""
        return True

    def work(self, name):
        """The Case that an arm computes, for its FLOPs and its mask; None where it computes no attention."""
        return self.case

    def facts(self, name):
        """{column: value} of what is known without measuring."""
        return {}

    def draw(self, generator):
        """Fresh inputs: q (B, H, N, D), k and v (B, kv_heads, N, D)."""
        case, dtype = self.case, getattr(torch, self.case.dtype)
        return tuple(
            torch.randn(case.B, heads, case.N, case.D, dtype=dtype, device=self.device, generator=generator)
            for heads in (case.Hq, case.kv_heads, case.kv_heads)
        )

    def check(self, name, q, k, v):
        """What says of a result of the arm on these inputs `wrong: ...`, or None where it is right."""
        case = self.work(name)
        key = case.visibility, case.kv_heads
        if key not in self.checks:
            self.checks[key] = Check(q, k[:, : case.kv_heads], v[:, : case.kv_heads], case.visibility)
        return partial(self.checks[key].fault, rounds_scores=name in self.rounds_scores)
