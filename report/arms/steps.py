"""The steps from P4 to the fast form: kernels of solutions/, and the fast kernel in forms that it is told to take."""

import os
from dataclasses import replace

import torch

from report.arms.pytorch import sdpa
from report.measuring.arms import INTERPRETER, Arms, Built, NotRun
from report.places import load
from report.studies.steps import APART, CUDNN, DESCRIPTORS, FORMS, POINTERS, SINKS

MODULES = {POINTERS: "p4_causal.py", DESCRIPTORS: "p4_with_descriptors.py"}


class StudyArms(Arms):
    def work(self, name):
        return replace(self.case, sinks=SINKS.get(name, self.case.sinks))

    def compiles(self, name):
        return name != CUDNN

    def build(self, name):
        if name == CUDNN:
            return sdpa("CUDNN_ATTENTION", self.point, self.device)
        if name not in MODULES:
            return self.fast(name)
        if self.device == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
            raise NotRun(INTERPRETER)
        forward = load(MODULES[name]).flash_attention_forward
        return Built(lambda q, k, v: forward(q, k, v, is_causal=self.point.causal))

    def fast(self, name):
        """The fast kernel in the form of that name, or with the heads apart, or with sinks."""
        if self.device == "cpu":
            raise NotRun("the fast form is written for Hopper GPUs and does not run in the interpreter")
        module, point = load("fast_attention.py"), self.point
        form, sinks = FORMS[point.D].get(name), self.work(name).sinks or 0
        told = {"among": (form,) if form else None} | ({"most_packed": 1} if name == APART else {})
        launches = module.Launches(lambda *given: module.prepare(*given, **told))

        def call(q, k, v):
            o = torch.empty_like(q)
            launches.find((q, k, v), point.causal, point.window, sinks)(q, k, v, o, k, v)
            return o

        return Built(call)
