"""The steps from P4 to the fast form: kernels of solutions/ and kernels/, and the fast kernel in several forms."""

import os
from dataclasses import replace
from functools import partial

import torch

from report.arms.pytorch import sdpa
from report.measuring.arms import INTERPRETER, Arms, Built, NotRun
from report.places import load
from report.studies.steps import APART, CUDNN, DESCRIPTORS, FORMS, POINTERS, SINKS

MODULES = {POINTERS: "p4_causal.py", DESCRIPTORS: "p4_with_descriptors.py"}


def forward_of(name, D):
    """The fast kernel's forward(q, k, v, is_causal, window, sinks), in the form of that name where it is one's."""
    module, form = load("fast_attention.py"), FORMS[D].get(name)
    told = {"form": form} | ({"most_packed": 1} if name == APART else {})
    launches = module.Launches(partial(module.prepare, **told))

    def forward(q, k, v, *mask):
        o = torch.empty_like(q)
        launches.find((q, k, v), *mask)(q, k, v, o, k, v, o, o)  # neither lse nor learned sinks
        return o

    return forward


class StudyArms(Arms):
    def work(self, name):
        return replace(self.case, sinks=SINKS.get(name, self.case.sinks))

    def compiles(self, name):
        return name != CUDNN

    def build(self, name):
        point, interpreted = self.point, os.environ.get("TRITON_INTERPRET") == "1"
        if name == CUDNN:
            return sdpa("CUDNN_ATTENTION", point, self.device)
        if name in MODULES:
            if self.device == "cpu" and not interpreted:
                raise NotRun(INTERPRETER)
            forward = load(MODULES[name]).flash_attention_forward
            return Built(lambda q, k, v: forward(q, k, v, is_causal=point.causal))
        if self.device == "cpu":
            raise NotRun("the fast form is written for Hopper GPUs and does not run in the interpreter")
        forward, sinks = forward_of(name, point.D), self.work(name).sinks or 0
        return Built(lambda q, k, v: forward(q, k, v, point.causal, point.window, sinks))
