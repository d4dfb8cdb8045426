"""In the runner, interpreted: the line of a kernel after which a number is NaN or infinite for the first time."""

import contextlib
import sys

import numpy as np
import triton.language as tl


class FirstBad:
    """While open, follows the lines of kernels in `file`. found: {"line", "names", "what"} or None.

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
            self.found = {"line": line, "names": new, "what": now[new[0]]}
        self.before[id(frame)] = frame.f_lineno, now
        return self.stepped


def bad(value):
    """ "NaN" or "infinite" for a block that holds such a number, else ""."""
    if not isinstance(value, tl.tensor) or not value.dtype.scalar.is_floating():
        return ""
    data = np.asarray(value.handle.data)
    if data.dtype.kind != "f":
        return ""  # bfloat16 travels as its bits
    return "NaN" if np.isnan(data).any() else "infinite" if np.isposinf(data).any() else ""
