"""In the runner: the line after which a number is NaN or infinite for the first time, in a kernel or beside one."""

import contextlib
import sys

import numpy as np
import torch
import triton.language as tl
from replay import list_tensors

UNWRITTEN = ("empty", "new_empty")  # what they make is NaN until it is written


class FirstBad:
    """While open, follows the lines of kernels in `file`, and the operations of a replay that it observes.

    found: {"line", "what"} or None.

    A name counts that holds a NaN or +inf; -inf is what a hidden score is meant to be.
    """

    def __init__(self, file):
        self.file, self.found, self.before = file, None, {}

    @contextlib.contextmanager
    def open(self):
        kept = sys.gettrace()
        sys.settrace(self.called)
        try:
            yield self
        finally:
            sys.settrace(kept)

    def called(self, frame, event, argument):
        return self.stepped if frame.f_code.co_filename == self.file and not self.found else None

    def stepped(self, frame, event, argument):
        """The line before this one has run: what it left is compared with what was there."""
        if self.found or event not in ("line", "return"):
            return self.stepped
        now = {name: what for name, value in list(frame.f_locals.items()) if (what := bad(value))}
        line, before = self.before.get(id(frame), (None, now))
        new = [name for name in now if name not in before]
        if new and line:
            self.found = {"line": line, "what": now[new[0]]}
        self.before[id(frame)] = frame.f_lineno, now
        return self.stepped

    def operation(self, replay, op, args, named, made):
        """PyTorch has made something: is it the first bad number, of operands that are finite or hidden scores?"""
        if self.found or op.startswith(UNWRITTEN) or any(map(bad_tensor, list_tensors(args, named))):
            return
        if what := next(filter(None, map(bad_tensor, made)), ""):
            self.found = {"line": replay.line, "what": what}


def bad_tensor(tensor):
    """The same of a tensor of PyTorch's."""
    if not tensor.is_floating_point():
        return ""
    return "NaN" if bool(tensor.isnan().any()) else "infinite" if bool((tensor == torch.inf).any()) else ""


def bad(value):
    """Whether a block holds such a number: "NaN", "infinite" or ""."""
    if not isinstance(value, tl.tensor) or not value.dtype.scalar.is_floating():
        return ""
    data = np.asarray(value.handle.data)
    if data.dtype.kind != "f":
        return ""  # bfloat16 travels as its bits
    return "NaN" if np.isnan(data).any() else "infinite" if np.isposinf(data).any() else ""
