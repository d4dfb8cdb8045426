"""What an operation's name stands for while programs run: one tensor for all programs; frames hold them."""

from typing import Any

import torch

from grader.core.machine.text import NotIR


class Stopped(Exception):
    """A launch that does not go on. text: why, for the student; line: where in the submission, or None."""

    def __init__(self, text: str, where: str) -> None:
        super().__init__(text)
        self.where = where


class Value:
    """A number or a block of each program.

    data: (programs, *shape), or broadcastable to it: an axis along which nothing differs may have size 1, the axis of
    programs too. buffer: of a pointer that comes from one argument of the launch, where that is known without looking.
    """

    __slots__ = ("buffer", "data", "limits", "wrapped")

    def __init__(self, data: torch.Tensor, buffer: Any = None) -> None:
        self.data, self.buffer = data, buffer
        self.limits: tuple[int, int] | None = None
        self.wrapped: Any = None  # where an int32 in it overflowed (overflow.py)

    def whole(self, programs: int, shape: tuple[int, ...]) -> torch.Tensor:
        """(programs, *shape), as a view."""
        return self.data.expand(programs, *shape)

    def rows(self, index: torch.Tensor) -> "Value":
        """The value of these programs alone. index: (n,) places among the programs that it is of."""
        if self.data.shape[0] == 1:
            return self
        return self.like(self.data.index_select(0, index))

    def like(self, data: torch.Tensor) -> "Value":
        made = Value(data, self.buffer)
        made.wrapped, made.limits = self.wrapped, self.limits
        return made

    def bounds(self) -> tuple[int, int]:
        """The smallest and the largest integer in it, of all programs."""
        if self.limits is None:
            low, high = torch.aminmax(self.data)
            self.limits = int(low), int(high)
        return self.limits


def joined(parts: list[tuple[torch.Tensor, Value]], programs: int) -> Value:
    """One value of those of disjoint programs, which are all. parts: (places of the programs, their value)."""
    first = parts[0][1]
    if first.data.shape[0] == 1 and all(value is first for _, value in parts):
        return first
    inner = tuple(map(max, zip(*(value.data.shape[1:] for _, value in parts), strict=True)))
    made = torch.empty((programs, *inner), dtype=first.data.dtype)
    for places, value in parts:
        made[places] = value.data.expand(len(places), *inner)
    same = all(value.buffer is first.buffer for _, value in parts)
    whole = Value(made, first.buffer if same else None)
    whole.wrapped = next((value.wrapped for _, value in parts if value.wrapped), None)
    return whole


class Frame:
    """Names and their values, for some of the programs of a launch.

    count: of the programs; numbers: (count,) which programs of the launch these are. outer: the frame around it, whose
    values are narrowed when they are first read. places: (count,) the programs' places in `outer`, or None: the same.
    """

    __slots__ = ("count", "numbers", "outer", "places", "values")

    def __init__(self, numbers: torch.Tensor, outer: "Frame | None" = None, places: torch.Tensor | None = None) -> None:
        self.numbers, self.count, self.outer, self.places = numbers, len(numbers), outer, places
        self.values: dict[str, Value] = {}

    def __getitem__(self, name: str) -> Value:
        value = self.values.get(name)
        if value is not None:
            return value
        if self.outer is None:  # type_check.py has seen that it is there, but not by which jumps
            raise NotIR(f"a name that nothing has made: `{name}`")
        value = self.outer[name]
        if self.places is not None:
            value = self.values[name] = value.rows(self.places)
        return value

    def inner(self) -> "Frame":
        """A frame for the same programs."""
        return Frame(self.numbers, self)

    def some(self, places: torch.Tensor) -> "Frame":
        """A frame for the programs at these places."""
        return Frame(self.numbers[places], self, places)
