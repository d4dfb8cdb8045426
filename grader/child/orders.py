"""Inside the child, for the lab on program order: the order as a function, and what a kernel made of it."""

import sys
from pathlib import Path

import torch


def module_of(request):
    return sys.modules[Path(request["module"]).stem]


def order(function, request, device):
    """program_order of each of the request's sizes, until the first that is no list of pairs of integers."""
    program_order, found = module_of(request).program_order, []
    for sizes in request["sizes"]:
        places = program_order(*sizes)
        found.append(plain(places))
        if found[-1] is None:
            return {"orders": found, "came": f"{type(places).__name__} {places!r}"[:80]}
    return {"orders": found}


def plain(places):
    """[[head, tile], ...], or None."""
    try:
        pairs = [list(map(int, place)) for place in places]
    except (TypeError, ValueError):
        return None
    return pairs if all(len(pair) == 2 for pair in pairs) else None


class Like:
    """A call of the kernel compared with the submission's program_order, or with a call on a single die."""

    def __init__(self, request, tensors):
        self.request, self.tensors, self.arguments, self.watchers = request, tensors, {}, {}

    def report(self, out, trace):
        if self.request["like"] == "program_order":
            return {"order": self.order(trace)} if trace else {}
        function = getattr(module_of(self.request), self.request["entry_point"])
        again = function(*self.tensors, **(self.request["arguments"] | {"num_dies": 1}))
        if not all(isinstance(t, torch.Tensor) and t.shape == self.tensors[0].shape for t in (out, again)):
            return {}  # its form is judged elsewhere
        bits = (t.contiguous().view({2: torch.int16, 4: torch.int32}[t.element_size()]) for t in (out, again))
        other = torch.ne(*bits)
        return {"other_bits": [int(other.sum()), *(other.nonzero()[0].tolist() if other.any() else ())]}

    def order(self, trace):
        """program_order for the size that the trace saw: {"sizes", "places"}; None where no program met a query."""
        rows = max((visit["q"][1] - visit["q"][0] + 1 for visit in trace["visits"]), default=0)
        if not rows:
            return None
        (batches, heads, tokens, _), kv_heads = self.tensors[0].shape, self.tensors[1].shape[1]
        dies = self.request["arguments"]["num_dies"]
        sizes = [-(-tokens // rows), batches * heads, dies, heads // kv_heads]
        return {"sizes": sizes, "rows": rows, "places": plain(module_of(self.request).program_order(*sizes))}
