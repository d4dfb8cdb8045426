"""What a kernel's variables hold in one program, tile by tile: the IR keeps the names that they have in the file."""

import ast
import re
from dataclasses import dataclass, field
from functools import lru_cache

from torch import Tensor

from grader.core.machine.batch import Frame, Value
from grader.core.machine.lines import read_tree
from grader.core.machine.observer import Launch, Observer
from grader.core.machine.text import Operation

COPY = re.compile(r"_\d+$")  # what the IR's printer adds to a name that it has used before


@dataclass
class Tile:
    """A round of a loop, or what runs before, between or after loops. counter, start: the loop's variable, if any.

    values: {variable: what it holds at the end}, each of the variable's own shape.
    """

    kernel: str
    loop: Operation | None = None
    counter: str | None = None
    start: int | None = None
    values: dict[str, Tensor] = field(default_factory=dict)


class Variables(Observer):
    """Follows one program of each launch, and leaves out its pointers. tiles: those of all launches, in order."""

    operations = ("*",)

    def __init__(self, program: int = 0) -> None:
        self.program, self.tiles, self.programs = program, list[Tile](), 0

    @property
    def names_seen(self) -> list[str]:
        return list(dict.fromkeys(name for tile in self.tiles for name in tile.values))

    def begin_launch(self, launch: Launch) -> None:
        self.launch, self.programs = launch, max(self.programs, launch.programs)
        self.names = find_names(self.lines.text)
        self.open: list[tuple[Operation, Tile, list[str | None]]] = []  # the loops that run, with what they carry
        self.tiles.append(Tile(launch.kernel))

    def begin_round(self, operation: Operation, frame: Frame, first: bool) -> None:
        if (place := self.place(frame)) is None:
            return
        index, carried = None, list(frame.values)
        if operation.name == "scf.for":
            index, *carried = carried
        named = [self.in_file(name) for name in carried]
        if not first:
            self.leave(operation, [frame[name] for name in carried], place)
        tile = Tile(self.launch.kernel, operation)
        if index:
            tile.counter, tile.start = self.in_file(index) or "at", int(number(frame[index], place))
            tile.values[tile.counter] = number(frame[index], place)
        self.open.append((operation, tile, named))
        self.tiles.append(tile)

    def leave(self, operation: Operation, values: list[Value], place: int) -> None:
        """A round of this loop is over; it leaves these values in what the loop carries."""
        while self.open:
            inner, tile, named = self.open.pop()
            if inner is operation:
                for name, value in zip(named, values, strict=True):
                    if name:
                        tile.values[name] = number(value, place)
                return

    def after(self, operation: Operation, frame: Frame) -> None:
        if (place := self.place(frame)) is None:
            return
        if any(loop is operation for loop, _, _ in self.open):
            self.leave(operation, [frame[name] for name in operation.results], place)
            self.tiles.append(Tile(self.launch.kernel))
            return
        name = None if operation.name.startswith("scf.") else self.lines.variable(operation.where)
        if name in self.names and operation.results:
            values = (self.open[-1][1] if self.open else self.tiles[-1]).values
            kind, value = operation.made[-1], frame[operation.results[-1]]
            values.pop(name, None)  # a pointer is made of numbers, which are parts of it
            if kind.kind == "number" and not kind.element.startswith("!"):
                values[name] = number(value, place).expand(kind.shape)

    def place(self, frame: Frame) -> int | None:
        """Where the program stands among the frame's, or None."""
        found = (frame.numbers == self.program).nonzero()
        return int(found[0]) if len(found) else None

    def in_file(self, name: str) -> str | None:
        """The variable of a value that a loop carries, by the value's own name in the text."""
        own = name.strip("%").partition(" ")[0]  # type_check.py makes each name one of a kind
        return next((each for each in (own, COPY.sub("", own)) if each in self.names), None)


def number(value: Value, place: int) -> Tensor:
    """The program's own value."""
    return value.data[place if len(value.data) > 1 else 0]


@lru_cache(maxsize=16)
def find_names(text: str) -> frozenset[str]:
    """The names that a file's code gives to values, without those of tuples."""
    nodes = [*ast.walk(read_tree(text))]
    tuples = [node for node in nodes if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple)]
    several = {target.id for node in tuples for target in node.targets if isinstance(target, ast.Name)}
    stored = (node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    return frozenset(stored) - several
