"""Where an output is off, as small plain data: marks in cells; the renderers draw it and decide nothing."""

import torch

from grader import failures
from grader.engine.compare_values import never_written, off_by

MOST_CELLS = 64  # of an error map, along each side
LEVELS = (1, 3, 10, 30, 100, 300, 1000)  # error / allowed: above the first an element is wrong
MARKS = "01234567inu"  # a level, infinite, NaN, never written: of several elements in a cell the last of these is shown
TILE = 16  # rows of a tile in the map of heads, where the kernel's own tiles are not known


def draw(name, got, expected, allowed):
    """The picture of an output by itself; {"fault": where it stands} where we failed, which costs only the picture."""
    with failures.harmless("a picture"):
        return {"size": list(got.shape[2:]), **error_maps(name, got, expected, allowed, TILE)}
    return {"fault": f"see {failures.LOG}"}


def error_maps(name, got, expected, allowed, tile):
    """{"errors": cells over (row, column) of the worst batch and head, "heads": cells over (batch and head, tile)}.

    Cells are strings of MARKS, a string for each row of the map; `step`: rows and columns, or rows, of a cell.
    """
    mark = marks(got, expected, allowed)
    mark = mark[..., None] if mark.dim() == 3 else mark
    batches, heads, rows, columns = mark.shape
    badness = mark.flatten(2).double().sum(-1).flatten()
    place = divmod(int(badness.argmax()), heads)
    shown = badness.argsort(descending=True, stable=True)[:MOST_CELLS].sort().values
    steps = step_for(rows), step_for(columns)
    tile = max(tile, step_for(rows))
    by_tile = pool(mark.amax(-1).flatten(0, 1)[shown][None], (1, tile))[0]
    return {
        "errors": {
            "output": name, "place": list(place), "size": [rows, columns], "step": list(steps),
            "cells": as_text(pool(mark[place][None], steps)[0]), "of": batches * heads,
        },
        "heads": {
            "output": name, "places": [list(divmod(i, heads)) for i in shown.tolist()], "size": [rows],
            "step": [tile], "cells": as_text(by_tile), "of": batches * heads,
        },
    }  # fmt: skip


def marks(got, expected, allowed):
    """For each element its place in MARKS."""
    unwritten = never_written(got)
    error = off_by(got, expected)
    ratio = torch.where(error <= allowed, 0.0, error / allowed)
    mark = torch.bucketize(ratio, torch.tensor(LEVELS, dtype=ratio.dtype))
    for found, symbol in ((got.isinf(), "i"), (got.isnan(), "n"), (unwritten, "u")):
        mark[found] = MARKS.index(symbol)
    return mark


def pool(mark, steps):
    """The largest mark of each cell; (1, rows, columns) -> (1, cells, cells)."""
    return torch.nn.functional.max_pool2d(mark.double(), steps, ceil_mode=True).long()


def as_text(mark):
    return ["".join(MARKS[i] for i in row) for row in mark.tolist()]


def step_for(size, most=MOST_CELLS):
    """Elements of a cell: the least power of two with at most so many cells."""
    step = 1
    while size > step * most:
        step *= 2
    return step
