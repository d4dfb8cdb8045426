"""In the runner, interpreted: what an observer of kernels hears.

Several observers follow one run side by side (trace.py calls them). A course may bring one of its own. Method: the
clients of Triton-Viz, which hear of operations as typed objects.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from grader.core.run.regions import Region

Patch = tuple[object, str, Callable]  # an owner, a name, and what makes the replacement of what the owner has there


@dataclass(frozen=True)
class Access:
    """Live lanes of a load, a store or an atomic operation that are legal. offsets: in bytes, into the region.

    shape: of the block of pointers, lanes that are masked included.
    """

    kind: str
    region: Region
    offsets: np.ndarray
    itemsize: int
    shape: tuple[int, ...]


class Observer:
    """Follows the kernels of one run; a subclass overrides what it needs.

    watch: the Trace, which knows the running `kernel` by name, the number of the running `program` and its `line()`.
    operations: methods of the interpreter's builder; `after` hears of each call.
    """

    operations: ClassVar[tuple[str, ...]] = ()

    def __init__(self, watch: Any):
        self.watch = watch

    def begin_launch(self) -> None:
        """A launch begins; programs of other launches have ended."""

    def begin_program(self, place: tuple[int, int, int]) -> None:
        """A program of the launch begins, at this place of the grid."""

    def end_launch(self, regions: Iterable[Region]) -> None:
        """All programs of the launch have ended. regions: what they touched."""

    def addressed(self, kind: str, region: Region, pointers: np.ndarray) -> None:
        """A block of pointers is about to be used, lanes that are masked or illegal included."""

    def accessed(self, access: Access) -> None:
        """Legal lanes are read or written."""

    def loaded(self, block: Any) -> None:
        """The last load has made this block."""

    def after(self, operation: str, operands: tuple, made: Any) -> None:
        """An operation of `operations` has made a block, or several."""

    def patches(self) -> Iterable[Patch]:
        """What the observer replaces beside that."""
        return ()

    def report(self) -> Any:
        """What it found, as data that msgspec encodes."""
        return None
