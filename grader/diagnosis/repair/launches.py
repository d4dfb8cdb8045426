"""Changes of a launch: arguments exchanged, strides and sizes of another tensor, axes of the grid.

A Change says what an argument is in words of the launch's own tensors, so that it can be asked of every case.
"""

import itertools
import math
from dataclasses import dataclass

from grader.diagnosis.repair.names import STRIDE

FLOATS = {
    "1 / sqrt(D)": lambda D: 1.0 / math.sqrt(D), "log2(e) / sqrt(D)": lambda D: math.log2(math.e) / math.sqrt(D),
    "log2(e)": lambda D: math.log2(math.e), "1": lambda D: 1.0,
}  # fmt: skip


@dataclass(frozen=True)
class Launch:
    """One launch of a program, as the runner told it."""

    number: int
    line: int
    grid: tuple
    args: dict
    expressions: dict

    @property
    def tensors(self):
        """{argument: its tensor, with "sizes" and "strides"}."""
        return {name: value for name, value in self.args.items() if kind_of(value) == "tensor"}

    @property
    def numbers(self):
        """{argument: int}, in order."""
        return {name: value for name, value in self.args.items() if type(value) is int}

    @property
    def floats(self):
        return [name for name, value in self.args.items() if kind_of(value) == "float"]


def kind_of(value):
    """What an argument of the runner's program is, like "tensor" or "float"; None for a plain number."""
    return value["is"] if isinstance(value, dict) else None


@dataclass(frozen=True)
class Change:
    """number: of the launch. values: ((argument, (how, *what)), ...).

    how: "argument", "stride", "size", "quotient" or "float". grid: for each axis, which one it was, or
    ("tiles", tensor, dimension, argument that has the size of a tile); None for the grid as it is.
    """

    family: str
    number: int
    quantity: str
    values: tuple = ()
    grid: tuple = None

    def applied(self, launch):
        """What the runner is asked, {"args", "grid"}; raises LookupError where this launch has not what it needs."""
        args = {name: valued(launch, how, what) for name, (how, *what) in self.values}
        axes = self.grid or range(3)
        grid = [launch.grid[axis] if type(axis) is int else valued(launch, axis[0], axis[1:]) for axis in axes]
        return {"args": args, "grid": grid}


def valued(launch, how, what):
    if how == "argument":
        return launch.args[what[0]]
    if how == "float":
        return {"is": "float", "hex": FLOATS[what[0]](size(launch, *what[1:])).hex()}
    if how == "quotient":
        return size(launch, *what[:2]) // max(1, size(launch, *what[2:]))
    if how == "tiles":
        return -(-size(launch, *what[:2]) // max(1, launch.args[what[2]]))
    return launch.tensors[what[0]]["strides" if how == "stride" else "sizes"][what[1]]


def size(launch, tensor, dimension):
    return launch.tensors[tensor]["sizes"][dimension]


def changes(launch):
    """All Changes of one launch."""
    yield from exchanged_tensors(launch)
    yield from strides(launch)
    yield from numbers(launch)
    yield from tiles(launch)
    for order in itertools.permutations(range(3)):
        if order != (0, 1, 2) and [launch.grid[axis] for axis in order] != list(launch.grid):
            yield Change("grid", launch.number, "the grid", grid=order)


def told(launch, name):
    """The expression of an argument as the file has it, where it is short and its place is known."""
    text = launch.expressions.get(name, name)
    starred = any(each.startswith("*") for each in launch.expressions.values())
    return name if starred or len(text) > 40 else text


def exchanged_tensors(launch):
    tensors = [name for name, tensor in launch.tensors.items() if len(tensor["sizes"]) == 4]
    for a, b in itertools.combinations(tensors, 2):
        values = (a, ("argument", b)), (b, ("argument", a))
        yield Change("tensor", launch.number, f"`{told(launch, a)}` and `{told(launch, b)}`", values)
        yield Change("tensor", launch.number, told(launch, b), ((b, ("argument", a)),))
        yield Change("tensor", launch.number, told(launch, a), ((a, ("argument", b)),))


def strides(launch):
    """All strides of one argument, those of another tensor: `*k.stride()[:3]` in V's place."""
    rows = {}
    for name in launch.numbers:
        if found := STRIDE.match(name):
            rows.setdefault(found[1].upper(), []).append(name)
    for row in rows.values():
        for tensor, described in launch.tensors.items():
            if len(row) <= len(described["sizes"]):
                values = tuple((name, ("stride", tensor, i)) for i, name in enumerate(row))
                yield Change("stride", launch.number, f"the strides {', '.join(row)}", values)


def tiles(launch):
    """Grids with an axis of whole tiles, of any size that is there."""
    tensors = [name for name, tensor in launch.tensors.items() if len(tensor["sizes"]) == 4]
    for axis, now in enumerate(launch.grid):
        tried = {now}
        for tensor, dimension, block in itertools.product(tensors, range(3), launch.numbers):
            count = valued(launch, "tiles", (tensor, dimension, block))
            if count not in tried and launch.args[block] > 1:
                tried.add(count)
                grid = tuple(("tiles", tensor, dimension, block) if at == axis else at for at in range(3))
                yield Change("grid", launch.number, "the grid", grid=grid)


def numbers(launch):
    """A single number: a stride, a size, a quotient of sizes, another argument; of a float a known scale."""
    tensors = [name for name, tensor in launch.tensors.items() if len(tensor["sizes"]) == 4]
    known = [(how, name, i) for name in tensors for how in ("stride", "size") for i in range(4)]
    heads = [("quotient", a, 1, b, 1) for a in tensors for b in tensors if a != b]
    for name, now in launch.numbers.items():
        tried = {now}
        for how, *what in (*known, *heads, *(("argument", other) for other in launch.numbers)):
            value = valued(launch, how, what)
            if value not in tried:
                tried.add(value)
                yield Change("number", launch.number, told(launch, name), ((name, (how, *what)),))
    for name in launch.floats:
        for key in FLOATS if tensors else ():
            yield Change("scale", launch.number, told(launch, name), ((name, ("float", key, tensors[0], 3)),))
