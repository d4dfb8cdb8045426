"""What an observer of a launch hears: operations on all programs at once, and the accesses to memory among them."""

import functools
import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from grader.core.machine.batch import Frame, Value
from grader.core.machine.buffers import Buffer
from grader.core.machine.lines import Lines
from grader.core.machine.text import Block, Module, Operation


@dataclass(eq=False)
class Launch:
    """A launch that begins. programs: of the grid. arguments: by their names in the module's text."""

    kernel: str
    grid: tuple[int, int, int]
    buffers: dict[int, Buffer]
    module: Module
    arguments: dict[str, Value]

    @property
    def programs(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    def place(self, program: int) -> tuple[int, int, int]:
        """Where in the grid a program is."""
        x, y, _ = self.grid
        return program % x, program // x % y, program // (x * y)


@dataclass(eq=False)
class Access:
    """Lanes of one load, store or atomic operation in one buffer, of all programs of `frame`.

    offsets: in bytes from the storage's first, broadcastable to (programs, *shape). live: which lanes a mask lets
    through and are legal, broadcastable likewise, or None: all. itemsize: bytes of a lane. outside: which live lanes
    were not legal, or None.
    """

    kind: str  # "load", "store", "atomic"
    operation: Operation
    frame: Frame
    buffer: Buffer
    offsets: torch.Tensor
    live: torch.Tensor | None
    itemsize: int
    shape: tuple[int, ...]
    outside: torch.Tensor | None = None

    @property
    def whole(self) -> tuple[int, ...]:
        return self.frame.count, *self.shape

    def lanes(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(numbers of programs, byte offsets), both (lanes,), of the lanes that are live."""
        offsets = self.offsets.expand(self.whole)
        numbers = self.frame.numbers.view(-1, *(1,) * len(self.shape)).expand(self.whole)
        if self.live is None:
            return numbers.reshape(-1), offsets.reshape(-1)
        live = self.live.expand(self.whole)
        return numbers[live], offsets[live]

    def elements(self, offsets: torch.Tensor) -> torch.Tensor:
        """(`wide` x lanes,) the elements of the buffer's tables that these lanes cover."""
        first = offsets.div(self.buffer.itemsize, rounding_mode="floor")
        return first if self.wide == 1 else (first[:, None] + torch.arange(self.wide)).reshape(-1)

    @property
    def wide(self) -> int:
        """How many elements of the buffer a lane covers: a pointer may have been cast to a wider type."""
        return max(1, self.itemsize // self.buffer.itemsize)

    @functools.cached_property
    def counts(self) -> torch.Tensor:
        """(programs,): lanes that are live."""
        whole, live = math.prod(self.shape), self.live
        if live is None:
            return torch.full((self.frame.count,), whole)
        lanes = live.reshape(live.shape[0], -1)
        return (lanes.sum(1) * (whole // max(1, lanes.shape[1]))).expand(self.frame.count)


class Observer:
    """Follows the launches of one run; a subclass overrides what it needs.

    operations: names of the operations whose end it hears of; ("*",) for all. lines: where the operations of the kernel
    that runs stand in the student's file.
    """

    operations: ClassVar[tuple[str, ...]] = ()
    lines: Lines

    def begin_launch(self, launch: Launch) -> None:
        """A launch begins; programs of other launches have ended."""

    def end_launch(self, launch: Launch) -> None:
        """All programs of the launch have ended."""

    def accessed(self, access: Access) -> None:
        """Lanes are about to be read or written."""

    def lost(self, kind: str, operation: Operation, frame: Frame, lanes: int) -> None:
        """So many live lanes have addresses that lie in no buffer at all."""

    def undefined(self, operation: Operation, buffer: Buffer | None, lanes: int) -> None:
        """A load left lanes undefined: its mask hides them, and it has no `other`."""

    def noted(self, kind: str, operation: Operation, name: str, lanes: int) -> None:
        """A fault that is no access: an int32 that wrapped is used, which `operation` made, or a hint to the compiler,
        of this name, does not hold for these lanes."""

    def barrier(self, frame: Frame) -> None:
        """What these programs stored so far, all their lanes may load."""

    def ran(self, block: Block, programs: int) -> None:
        """So many programs have come to the end of a block."""

    def begin_round(self, operation: Operation, frame: Frame, first: bool) -> None:
        """A round of a loop begins for these programs; what it carries is in `frame`."""

    def after(self, operation: Operation, frame: Frame) -> None:
        """An operation of `operations` has put its results into `frame`."""
