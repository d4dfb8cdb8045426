"""Where the values of a function come from: each name's operation, or the names that it may be another one for.

Regions beside each other have values of one name in the text. Here each value has a name of its own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from grader.core.machine.text import Function, Operation, Type

Names = tuple[str, ...]


@dataclass(frozen=True)
class Chosen:
    """A value that is one of two. by: the loop, which has `first` in its first round, or where it has none, and
    `later` from then on; or the condition, which has `first` where it holds."""

    by: Operation
    first: str
    later: str


@dataclass(eq=False)
class Definitions:
    """Of one function, as type_check.py finds them. types: of all names.

    made: {name: what makes it}, but for loops, conditions and calls. chosen: {name: Chosen} of what a loop carries, and
    of results of loops and conditions. same: {name: names} of what else a block is given: it is one of these.
    """

    types: dict[str, Type] = field(default_factory=dict)
    made: dict[str, Operation] = field(default_factory=dict)
    chosen: dict[str, Chosen] = field(default_factory=dict)
    same: dict[str, list[str]] = field(default_factory=dict)

    def name(self, names: Names, types: Sequence[Type]) -> Names:
        """Names of their own for values that are made here."""
        found = tuple(f"{name} {len(self.types)}" if name in self.types else name for name in names)
        self.types.update(zip(found, types, strict=True))
        return found

    def choose(self, by: Operation, names: Names, first: Names, later: Names) -> None:
        """Note that each of these names is the one of `first`, or of `later`."""
        self.chosen |= {name: Chosen(by, *pair) for name, *pair in zip(names, first, later, strict=True)}

    def origins(self, name: str) -> Names:
        """The names that this value may be another one for."""
        if name in self.chosen:
            return self.chosen[name].first, self.chosen[name].later
        return tuple(self.same.get(name, ()))

    def back(self, names: Sequence[str]) -> Iterator[str]:
        """These names and all that they are made of, each once."""
        seen, left = set[str](), list(names)
        while left:
            name = left.pop()
            if name not in seen:
                seen.add(name)
                yield name
                left += self.made[name].operands if name in self.made else self.origins(name)


def define(function: Function) -> Definitions:
    """The Definitions of a function that type_check.py has checked."""
    assert isinstance(function.definitions, Definitions)
    return function.definitions
