"""The child that times the seven problems beside each other: `python -m report.ladder_bench cuda` or `cpu`."""

import os
import sys
from dataclasses import replace

import torch

from grader.gpu import peaks, timing
from grader.kinds.attention.cases import Case
from report import bench, kernels
from report.check import Check
from report.kernels import Built, NotRun
from report.ladder_rows import BEFORE, FAST, FULL, NAIVE, RUNGS, LadderPoint
from report.measuring import CHECK_SEED, Bench, measured

PYTORCH = (NAIVE, "P2")


class LadderBench(Bench):
    """One length: each rung is found right under its own mask, and all take turns on the same inputs."""

    bases, anchor = (NAIVE,), FULL

    def set_up(self):
        self.cases = {name: case_of(self.point, rung) for name, rung in RUNGS.items()}
        self.case = self.cases[FULL]
        self.checks = {}

    def draw(self, generator):
        """q, k, v with all heads; a rung that shares K and V reads the first of them where they lie."""
        point = self.point
        shape, dtype = (point.B, point.H, point.N, point.D), getattr(torch, point.dtype)
        return tuple(torch.randn(shape, dtype=dtype, device=self.device, generator=generator) for _ in range(3))

    def build(self, name):
        rung, case = RUNGS[name], self.cases[name]
        if rung.module == FAST and self.device == "cpu":
            raise NotRun("the fast form is written for Hopper GPUs and does not run in the interpreter")
        if self.device == "cpu" and name not in PYTORCH and os.environ.get("TRITON_INTERPRET") != "1":
            raise NotRun(kernels.INTERPRETER)
        forward = getattr(kernels.load(rung.module), rung.entry)

        def call(q, k, v):
            o = forward(q, k[:, : case.kv_heads], v[:, : case.kv_heads], **case.arguments)
            return o[0] if name in PYTORCH else o

        return Built(call)

    def compiles(self, name):
        return name not in PYTORCH

    def learn_what_is_right(self):
        self.checks.clear()  # each is made when the first rung with its mask needs it

    def fault(self, name, result):
        case = self.cases[name]
        key = case.visibility, case.kv_heads
        if key not in self.checks:
            q, k, v = self.inputs(CHECK_SEED)
            self.checks[key] = Check(q, k[:, : case.kv_heads], v[:, : case.kv_heads], case.visibility)
        return self.checks[key].fault(result)

    def flops(self, name):
        return peaks.visible_flops(self.cases[name])

    def least_ms(self, name):
        return peaks.least_ms(self.cases[name], self.gpu)

    def filled(self, row, name, arm, timings):
        summary = timings[name].summary()
        return replace(
            row,
            **{f"{what}_ms": summary[f"{what}_ms"] for what in ("median", "p20", "p80")},
            samples=summary["samples"],
            tflops=self.flops(name) / summary["median_ms"] / 1e9,
            peak_mib=None if arm.peak_bytes is None else arm.peak_bytes / 2**20,
            **self.ratios(name, timings),
        )

    def ratios(self, name, timings):
        """The columns over_*; blank where the two did not take turns with each other."""
        found = {}
        for column, other in (("naive", NAIVE), ("full", FULL), ("before", BEFORE.get(name))):
            if other == name:
                ends = 1.0, 1.0, 1.0
            elif measured(timings, other) and measured(timings, name):
                ratio = timing.ratio(timings, name, other)
                ends = (ratio.median, ratio.low, ratio.high) if ratio else (None,) * 3
            else:
                continue
            found |= zip((f"over_{column}", f"over_{column}_low", f"over_{column}_high"), ends, strict=True)
        return found


def case_of(point, rung):
    return Case(
        point.title, B=point.B, Hq=point.H, Hkv=point.kv_heads if rung.shared else point.H, N=point.N, D=point.D,
        dtype=point.dtype, causal=rung.causal, window=point.window if rung.windowed else None,
        sinks=point.sinks if rung.sinks else None,
    )  # fmt: skip


def make(point, device, say):
    return LadderBench(LadderPoint(**point), device, say)


if __name__ == "__main__":
    bench.main(sys.argv[-1], make)
