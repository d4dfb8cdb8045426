"""What `make try` shows of a call: numbers beside the right ones, row by row, up to the first row that differs."""

import re
from dataclasses import dataclass, fields, replace
from typing import Any

import torch

from grader.engine.compare_values import off_by

ROWS, COLUMNS = 8, 10  # of a table, at most


@dataclass
class Table:
    """Numbers (..., rows, columns) of one kind in float64, the right ones and the function's; off: where they differ.

    row, column: what one is called, column empty where a row has a single number; axes: the same of the dims before.
    """

    name: str
    right: torch.Tensor
    got: torch.Tensor
    off: torch.Tensor
    row: str = "row"
    column: str = "column"
    axes: tuple[str, ...] = ()


def resize(case: Any, sizes: dict[str, str], may_be_0: tuple[str, ...] = ()) -> Any:
    """The case with other sizes; raises ValueError with a sentence for a person."""
    known = {field.name: getattr(case, field.name) for field in fields(case) if field.name not in ("name", "gpu")}
    for name, text in sizes.items():
        if name not in known:
            raise ValueError(f"there is no size {name!r}; the sizes are {', '.join(known)}")
        if isinstance(known[name], str):
            known[name] = text
        elif text in ("yes", "no"):
            known[name] = text == "yes"
        elif re.fullmatch(r"-?\d+", text):
            known[name], least = int(text), 0 if name in may_be_0 else 1
            if known[name] < least:
                raise ValueError(f"{name} must be {least} or more; got {text}")
        else:
            raise ValueError(f"{name} must be a number, yes or no; got {text}")
    return replace(case, name="try", **known)


def compare(name: str, right: torch.Tensor, allowed: torch.Tensor, got: torch.Tensor, **words: Any) -> Table:
    """The Table of one output."""
    got = got.detach().cpu().double().view(right.shape)
    off = ~(off_by(got, right) <= allowed)
    if right.dim() < 2:
        right, got, off = right[None], got[None], off[None]
    axes = tuple(f"dim {number}" for number in range(right.dim() - 2))
    return Table(name, right, got, off, **{"axes": axes} | words)


def place_in(table: Table, shown: list[Table]) -> tuple[int, ...]:
    """The first row in which the table is off, or another whose rows are the same ones; else its first last row."""
    same = [other.off.any(-1) for other in shown if other.off.shape[:-1] == table.off.shape[:-1]]
    off = torch.stack(same).any(0)
    return tuple(off.nonzero()[0].tolist()) if off.any() else (*[0] * (off.dim() - 1), off.shape[-1] - 1)


def first_difference(shown: list[Table]) -> tuple[Table, tuple[int, ...]] | None:
    """(the first table that is off, the place of its row) or None."""
    places = ((table, place_in(table, shown)) for table in shown)
    return next(((table, place) for table, place in places if table.off[place].any()), None)


def at(table: Table, place: tuple[int, ...]) -> str:
    """`, batch 0, head 1` of the dims before the rows."""
    return "".join(f", {axis} {index}" for axis, index in zip(table.axes, place, strict=False))


def in_words(table: Table, place: tuple[int, ...], more: str = "") -> str:
    """A sentence on the first number of the row `place` that is off."""
    column = int(table.off[place].nonzero()[0])
    which = f"{table.name.partition(' (')[0]} of {table.row} {place[-1]}"
    which += f", {table.column} {column}" if table.column else ""
    yours, right = number(table.got[place][column]), number(table.right[place][column])
    return (
        f"first difference: {at(table, place)[2:]}{', ' * bool(table.axes)}{which}: yours {yours}, right {right}{more}"
    )


def lines(table: Table, place: tuple[int, ...]) -> list[str]:
    """The rows of a table up to `place`; `!` stands behind what is off."""
    *before, last = place
    off = table.off[place].nonzero().flatten().tolist()
    width = table.right.shape[-1]
    start = max(0, min(off[0] - COLUMNS // 2, width - COLUMNS)) if off else 0
    columns = range(start, min(start + COLUMNS, width))
    shown = [f"{table.name}{at(table, place)}"]
    if table.column:
        shown.append(f"{table.column:>15}" + " ".join(f"{column:>9}" for column in columns))
    for row in range(max(0, last - ROWS + 1), last + 1):
        right, got, wrong = (each[(*before, row)].tolist() for each in (table.right, table.got, table.off))
        head = f"{table.row} {row:>{8 - len(table.row)}}"
        if not any(wrong):
            shown.append(f"{head}  both" + " ".join(f"{number(right[c]):>9}" for c in columns))
            continue
        shown.append(f"{head} right" + " ".join(f"{number(right[c]):>9}" for c in columns))
        shown.append(
            (f"{'yours':>15}" + "".join(f"{number(got[c]):>9}{'!' if wrong[c] else ' '}" for c in columns)).rstrip()
        )
    return shown


def number(value: float) -> str:
    return f"{value:.4f}".replace("-0.0000", "0.0000")
