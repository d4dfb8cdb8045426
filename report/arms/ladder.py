"""The seven problems and the fast form under each mask, all on the same inputs."""

import os
from dataclasses import replace

from report.measuring.arms import INTERPRETER, Arms, Built, NotRun
from report.places import load
from report.studies.ladder import FAST, NAIVE, RUNGS

PYTORCH = (NAIVE, "P2")


class StudyArms(Arms):
    """Each rung under its own mask; one that shares K and V reads the first kv_heads of them where they lie."""

    def __init__(self, point, device):
        super().__init__(point, device)
        self.cases = {name: case_of(self.case, rung) for name, rung in RUNGS.items()}
        self.case = replace(self.case, Hkv=point.H)  # what is drawn: all heads

    def work(self, name):
        return self.cases[name]

    def compiles(self, name):
        return name not in PYTORCH

    def build(self, name):
        rung, case = RUNGS[name], self.cases[name]
        if rung.module == FAST and self.device == "cpu":
            raise NotRun("the fast form is written for Hopper GPUs and does not run in the interpreter")
        if self.device == "cpu" and name not in PYTORCH and os.environ.get("TRITON_INTERPRET") != "1":
            raise NotRun(INTERPRETER)
        forward = getattr(load(rung.module), rung.entry)

        def call(q, k, v):
            o = forward(q, k[:, : case.kv_heads], v[:, : case.kv_heads], **case.arguments)
            return o[0] if name in PYTORCH else o

        return Built(call)


def case_of(shape, rung):
    """What a rung computes, of a Case that has all that any rung has."""
    return replace(
        shape, Hkv=shape.Hkv if rung.shared else shape.Hq, causal=rung.causal,
        window=shape.window if rung.windowed else None, sinks=shape.sinks if rung.sinks else None,
    )  # fmt: skip
