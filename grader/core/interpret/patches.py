"""In the runner, interpreted: how a part of Triton is replaced, and what is said where there is no such part."""

import triton

ADVICE = "The grader knows the interpreters of triton 3.6 to 3.9: install one of them."


class Incompatible(Exception):
    """This triton lacks a part that the grader replaces: a fault of the grader's, noticed at start-up."""


def replace(owner, name, make):
    """Put make(what was there) in the place of owner.name; returns what was there."""
    old = getattr(owner, name, None)
    if old is None:
        where = getattr(owner, "__name__", type(owner).__name__)
        raise Incompatible(f"triton {triton.__version__} has no {where}.{name}. {ADVICE}")
    setattr(owner, name, make(old))
    return old


class Patches:
    """Replacements that are taken back together, the last one first."""

    def __init__(self):
        self.saved = []

    def replace(self, owner, name, make):
        self.saved.append((owner, name, replace(owner, name, make)))

    def undo(self):
        while self.saved:
            setattr(*self.saved.pop())
