"""What `make try SHOW=row_max,alpha` prints: a kernel's variables tile by tile, beside the reference's."""

import difflib
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import torch

from grader.commands.arguments import BadArguments
from grader.core.machine.variables import Tile, Variables
from grader.engine.trying import number

CLOSE = 1e-3  # of a value and of 1: rounding in another order makes a hundredth of it in float32
COLUMNS = 8  # of a line


@dataclass(frozen=True)
class Shown:
    """What a variable holds at the end of a tile, what the reference's does or None, and where the two differ.

    row: the row that is shown if the two do not differ.
    """

    name: str
    where: str
    value: torch.Tensor
    right: torch.Tensor | None
    row: int = 0

    @property
    def label(self) -> str:
        return self.where + (f", row {self.place[0]}" if self.value.dim() == 2 else "")

    @cached_property
    def off(self) -> torch.Tensor:
        """True where they are not the same but for rounding; NaN equals NaN."""
        if self.right is None:
            return torch.zeros(self.value.shape, dtype=torch.bool)
        a, b = self.value.double(), self.right.double()
        near = ((a - b).abs() <= CLOSE * (1 + b.abs())) & b.isfinite()
        return ~(near | (a == b) | (a.isnan() & b.isnan()))

    @cached_property
    def place(self) -> tuple[int, ...]:
        """The first element that differs, else the first of the row."""
        if self.off.any():
            return tuple(self.off.nonzero()[0].tolist())
        first = self.row if self.off.dim() and self.row < len(self.off) else 0
        return (first, *[0] * self.off.dim())[: self.off.dim()]


def compare(names: list[str], own: Variables, right: Variables | None, matched: set[str]) -> list[Shown]:
    """The variables of these names in the order in which the kernel sets them. Raises BadArguments.

    right: what the reference has, or None. matched: the names that mean the same in both.
    """
    for name in names:
        if name not in own.names_seen:
            close = difflib.get_close_matches(name, own.names_seen, n=1)
            hint, known = f"did you mean {close[0]}? " if close else "", ", ".join(own.names_seen)
            raise BadArguments(f"no variable of the kernel is called {name}; {hint}there are {known}")
    theirs = {key: tile.values for key, _, tile in labelled(right)} if right else {}
    shown = list[Shown]()
    for key, where, tile in labelled(own):
        row = 0
        for name in (name for name in tile.values if name in names):
            value, other = tile.values[name], theirs.get(key, {}).get(name) if name in matched else None
            each = Shown(name, where, value, other if other is not None and other.shape == value.shape else None, row)
            row = each.place[0] if each.place and each.off.any() else row
            shown.append(each)
    return shown


def lines(shown: list[Shown], own: Variables, right: Variables | None) -> list[tuple[str, bool]]:
    """[(line, whether it is the reference's)]: one variable after the other; at last what the comparison says."""
    found, width = list[tuple[str, bool]](), max(len(each.label) for each in shown)
    compared = {each.name for each in shown if each.right is not None}
    theirs = {key: tile.values for key, _, tile in labelled(right)} if right else {}
    for name in dict.fromkeys(each.name for each in shown):
        one = [each for each in shown if each.name == name]
        alone = " (not compared)" if right and name not in compared else ""
        found.append((f"{name} {tuple(one[0].value.shape) or ''}".rstrip() + alone, False))
        for each in one:
            found.append((f"  {each.label:<{width}}{in_numbers(each.value, each.place, each.off)}", False))
            if each.right is not None:
                found.append((f"  {'the reference':>{width}}{in_numbers(each.right, each.place)}", True))
        unset = (where for key, where, tile in labelled(own) if name in theirs.get(key, {}).keys() - tile.values.keys())
        found += [(f"  {where}: not set here, where the reference sets it", False) for where in unset if not alone]
    if not right:
        return found
    yours, its = ([str(tile.start) for tile in each.tiles if tile.counter] for each in (own, right))
    if yours != its:
        found.append((f"your tiles begin at {', '.join(yours)}; the reference's at {', '.join(its)}", False))
    if first := next((each for each in shown if each.off.any()), None):
        at = f" at {', '.join(map(str, first.place))}" if first.place else ""
        found.append((f"first difference from the reference: {first.name}{at}, {first.where}", False))
    elif compared:
        found.append((f"no difference from the reference in {', '.join(sorted(compared))}, where both set them", False))
    else:
        found.append(("the reference has nothing to compare these with", False))
    return found


def labelled(variables: Variables) -> list[tuple[tuple[object, ...], str, Tile]]:
    """[(what makes two tiles the same, what a tile is called, the tile)]: `tile 1, k_start 32`; `before the loops`."""
    kernels = {tile.kernel for tile in variables.tiles}
    found, rounds, same = list[tuple[tuple[object, ...], str, Tile]](), Counter[str](), Counter[object]()
    place: object
    for tile in variables.tiles:
        if tile.loop is None:
            what = place = "after the loops" if rounds[tile.kernel] else "before the loops"
        else:
            what, place = f"tile {rounds[tile.kernel]}", tile.start
            what += f", {tile.counter} {tile.start}" if tile.counter else ""
            rounds[tile.kernel] += 1
        same[tile.kernel, place] += 1
        before = f"{tile.kernel}: " if len(kernels) > 1 else ""
        found.append(((tile.kernel, place, same[tile.kernel, place]), before + what, tile))
    return found


def in_numbers(value: torch.Tensor, place: tuple[int, ...], off: torch.Tensor | None = None) -> str:
    """The numbers around a place, along the last axis; `!` stands behind what differs."""
    row = value[place[:-1]] if value.dim() else value[None]
    marks = torch.zeros(len(row)) if off is None else off[place[:-1]] if off.dim() else off[None]
    start = max(0, min(place[-1] - COLUMNS // 2, len(row) - COLUMNS)) if place else 0
    columns = range(start, min(start + COLUMNS, len(row)))
    from_there = f"[{start}:]" if start else ""
    exact = not value.is_floating_point()
    said = (f"{int(row[c]) if exact else number(float(row[c])):>9}{'!' if marks[c] else ' '}" for c in columns)
    return f"{from_there:>6}" + "".join(said).rstrip()
