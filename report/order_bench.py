"""The child that times one kernel in several orders of its programs: `python -m report.order_bench cuda` or `cpu`.

The kernel is the lab's, `solutions/x2_program_order.py`, each time loaded anew with another `place_in_kernel`.
"""

import importlib.util
import os
import sys
from dataclasses import replace
from functools import partial

import triton
import triton.language

from grader.kinds.program_order import orders
from report import bench, kernels
from report.kernels import Built, NotRun
from report.measuring import Bench
from report.order_rows import PLAIN, restored

orders.tl = triton.language  # the interpreter asks for it in the module of each function that it runs
MANY_DIES = 1 << 16  # more than there are heads
PLACES = {
    PLAIN: orders.identity,
    "reversed": orders.longest_first,
    "published": orders.published,
}
DIES = {"grouped heads": 1, "x2 for 8 dies": 8, "all heads": MANY_DIES}


def forward(order):
    """The lab's flash_attention_forward(q, k, v) in that order."""
    path = kernels.SOLUTIONS / "x2_program_order.py"
    spec = importlib.util.spec_from_file_location(f"x2_{len(order)}_{order.replace(' ', '_')}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if order in PLACES:
        module.place_in_kernel = triton.jit(PLACES[order])
    return partial(module.flash_attention_forward, num_dies=DIES.get(order, 8))


class OrderBench(Bench):
    """One shape: each order is found right, and all take turns."""

    bases, anchor = (PLAIN,), PLAIN

    def build(self, name):
        if self.device == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
            raise NotRun(kernels.INTERPRETER)
        return Built(forward(name))

    def compiles(self, name):
        return True

    def filled(self, row, name, arm, timings):
        summary, found = timings[name].summary(), self.ratios(name, timings)
        return replace(
            row,
            **{f"{what}_us": summary[f"{what}_ms"] * 1e3 for what in ("median", "p20", "p80")},
            samples=summary["samples"],
            tflops=self.flops(name) / summary["median_ms"] / 1e9,
            **{column.replace("speedup", "over_plain"): value for column, value in found.items() if "speed" in column},
        )


def make(point, device, say):
    return OrderBench(restored(point), device, say)


if __name__ == "__main__":
    bench.main(sys.argv[-1], make)
