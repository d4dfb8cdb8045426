"""One kernel, the lab's in `solutions/x2_program_order.py`, in several orders of its programs.

It is loaded anew for each order, with another `place_in_kernel`.
"""

import os
from functools import partial

import triton
import triton.language

from report.counting import orders
from report.measuring.arms import INTERPRETER, Arms, Built, NotRun
from report.places import load_anew
from report.studies.orders import PLAIN

orders.tl = triton.language  # Triton looks for it in the module of each function
MANY_DIES = 1 << 16  # more than there are heads
PLACES = {
    PLAIN: orders.identity,
    "reversed": orders.longest_first,
    "published": orders.published,
}
DIES = {"grouped heads": 1, "x2 for 8 dies": 8, "all heads": MANY_DIES}


def forward(order):
    """The lab's flash_attention_forward(q, k, v) in that order."""
    module = load_anew("x2_program_order.py", f"x2_{len(order)}_{order.replace(' ', '_')}")
    if order in PLACES:
        module.place_in_kernel = triton.jit(PLACES[order])
    return partial(module.flash_attention_forward, num_dies=DIES.get(order, 8))


class StudyArms(Arms):
    def build(self, name):
        if self.device == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
            raise NotRun(INTERPRETER)
        return Built(forward(name))
