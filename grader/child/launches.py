"""Inside the child, on a GPU: launches seen, and left out where it is asked what a call is without them."""

import triton.runtime.jit as jit
from mending import Patches
from storages import place, raw, tensors_of


class Launches:
    """While open, tells `ledger` of each launch and of what it stored: the bytes that are others afterwards."""

    def __init__(self, ledger, suppressed=False):
        self.ledger, self.suppressed, self.launches, self.patches = ledger, suppressed, 0, Patches()

    def __enter__(self):
        self.patches.replace(jit.JITFunction, "run", self.around)
        return self

    def __exit__(self, *exc):
        self.patches.undo()

    def around(self, run):
        def seen(function, *args, warmup=False, **kwargs):
            if warmup:
                return run(function, *args, warmup=warmup, **kwargs)
            self.launches += 1
            if self.suppressed:
                return None
            return self.watched(run, function, args, kwargs)

        return seen

    def watched(self, run, function, args, kwargs):
        import torch

        bases = [getattr(value, "base", value) for value in (*args, *kwargs.values())]
        tensors = [t for t in tensors_of(bases) if t.is_cuda and place(t) not in self.ledger.inputs()]
        with torch.utils._python_dispatch._disable_current_modes():
            self.ledger.begin_launch({place(t): [(function.__name__, t)] for t in tensors})
            before = [(tensor, raw(tensor.untyped_storage()).clone()) for tensor in tensors]
        try:
            return run(function, *args, warmup=False, **kwargs)
        except BaseException as error:
            self.ledger.raised.append([function.__name__, type(error).__name__])
            raise
        finally:
            with torch.utils._python_dispatch._disable_current_modes():
                if before:
                    torch.cuda.synchronize()
                self.ledger.end_launch([stored(tensor, bytes_before) for tensor, bytes_before in before])


def stored(tensor, before):
    """(tensor, bytes of an element, booleans: which elements are others than before)."""
    size = tensor.element_size()
    now = raw(tensor.untyped_storage())
    whole = now.numel() // size * size
    return tensor, size, (now[:whole] != before[:whole]).view(-1, size).any(1)
