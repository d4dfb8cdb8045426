"""In the runner, interpreted: the one way to change a part of Triton, and what is said where it has no such part."""

from collections.abc import Callable
from typing import Any

import triton

ADVICE = "The grader knows the interpreters of triton 3.6 to 3.9: install one of them."


class Incompatible(Exception):
    """This triton lacks a part that the grader replaces: a fault of the grader's, noticed at start-up."""


def replace(owner: Any, name: str, make: Callable[[Any], Any]) -> Any:
    """Put make(what was there) in the place of owner.name; returns what was there."""
    old = getattr(owner, name, None)
    if old is None:
        where = getattr(owner, "__name__", type(owner).__name__)
        raise Incompatible(f"triton {triton.__version__} has no {where}.{name}. {ADVICE}")
    setattr(owner, name, make(old))
    return old


def add(owner: Any, name: str, value: Any) -> None:
    """Give owner.name a value of ours, whether this triton has one or not. It stays."""
    setattr(owner, name, value)


class Patches:
    """Replacements that are taken back together, the last one first."""

    def __init__(self) -> None:
        self.saved: list[tuple[Any, str, Any]] = []

    def replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        self.saved.append((owner, name, replace(owner, name, make)))

    def undo(self) -> None:
        while self.saved:
            setattr(*self.saved.pop())
