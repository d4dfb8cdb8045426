"""A picture's numbers -> shapes in pixels: the one drawing that the report shows as SVG and `make show` as PNG."""

import itertools
from collections import Counter
from dataclasses import dataclass, field

from grader.engine.error_map import LEVELS, MARKS
from grader.render.strips import title as strips_title

SIDE = 288  # pixels of the longer side of a plot
LARGEST_CELL = 16
LEAST_SIDE = 5  # of a tile: one of a single token is seen
LEAST_WIDTH = 130  # of the whole drawing: the axes' names need it
LEFT, TOP, RIGHT, BOTTOM = 44, 8, 26, 34  # around the plot: room for ticks and the names of the axes
LINE, LABELS = 14, 76  # of a program that reads a cache, and its name beside the plot


@dataclass(frozen=True)
class Surface:
    """What a surface means: its words, its colour on a light and on a dark page, and a hatch, so that none is told by
    colour alone. Colours: Okabe and Ito, "Color universal design", 2008; levels by lightness."""

    words: str
    light: str
    dark: str
    hatch: str = ""


def level_words():
    yield "within the allowed error"
    for low, high in itertools.pairwise(LEVELS):
        yield f"off by {low} to {high} times what is allowed"
    yield f"off by more than {LEVELS[-1]} times what is allowed"


LEVEL_COLOURS = (
    ("#eef1f4", "#2a313a"), ("#fde6b8", "#523c1c"), ("#fdc576", "#7a4a12"), ("#f79d45", "#a85b0e"),
    ("#e06f1f", "#d3741a"), ("#b8470f", "#f0964a"), ("#822b0a", "#fbc08a"), ("#4a1405", "#ffead3"),
)  # fmt: skip
KINDS = {
    "seen": Surface("needed and visited", "#5ba3d6", "#2f7fb8"),
    "extra": Surface("visited, not needed", "#f2b233", "#b97f0a", "/"),
    "missing": Surface("needed, NOT visited", "#ffffff", "#15181c", "x"),
    "masked": Surface("visited with a mask on the scores", "none", "none", "-"),
    "again": Surface("visited more than once", "none", "none", "."),
    **{
        f"level{i}": Surface(words, *colours)
        for i, (words, colours) in enumerate(zip(level_words(), LEVEL_COLOURS, strict=True))
    },
    "inf": Surface("infinite", "#7fd1b9", "#0b6b52", "-"),
    "nan": Surface("NaN", "#e3a5cb", "#8f3f70", "\\"),
    "unwritten": Surface("never written", "#ffffff", "#15181c", "+"),
}
KIND_OF_MARK = {mark: f"level{mark}" for mark in MARKS if mark.isdigit()} | {"i": "inf", "n": "nan", "u": "unwritten"}


@dataclass(frozen=True)
class Label:
    x: float
    y: float
    text: str
    anchor: str = "middle"  # start, middle or end
    upright: bool = False  # turned by a quarter, to be read from below
    strong: bool = False  # on a surface, not beside it


@dataclass
class Drawing:
    """Shapes in pixels, y downwards.

    plot: its (x, y, width, height). layers: {kind: boxes like plot}, drawn in that order. outlines: lines of
    (x, y). legend: [(kind, "mask" or "", words)]. description: the picture in words.
    """

    title: str
    description: str
    plot: tuple[float, float, float, float]
    layers: dict[str, list] = field(default_factory=dict)
    outlines: list = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)
    legend: list[tuple[str, str]] = field(default_factory=list)
    bordered: bool = False  # each box apart from its neighbours

    @property
    def width(self):
        return max(LEAST_WIDTH, round(self.plot[0] + self.plot[2] + RIGHT))

    @property
    def height(self):
        return round(self.plot[1] + self.plot[3] + BOTTOM)


def draw(picture):
    """The drawings that there is something to say in: errors, errors by head, visits, reads of a cache."""
    drawings = []
    if "errors" in picture and picture["errors"]["size"][1] > 1:
        drawings.append(draw_errors(picture["errors"]))
    if "heads" in picture and (len(picture["heads"]["cells"]) > 1 or len(picture["heads"]["cells"][0]) > 1):
        drawings.append(draw_heads(picture["heads"]))
    if picture.get("visits"):
        drawings.append(draw_visits(picture))
    if picture.get("strips"):
        drawings.append(draw_strips(picture["strips"]))
    return drawings


def draw_case(picture):
    """The drawings for a page about one case: the mask on the left, then the errors; [] where nothing came back."""
    return [draw_visits(picture), *draw({**picture, "visits": None})] if "mask" in picture else draw(picture)


# Errors --------------------------------------------------------------------------------------------------------------


def draw_errors(errors):
    """The error over (row, column) of one batch and head."""
    (rows, columns), (row_step, column_step) = errors["size"], errors["step"]
    name, (batch, head) = errors["output"], errors["place"]
    worst = f" (the worst of {errors['of']})" if errors["of"] > 1 else ""
    which = f", batch {batch}, head {head}" if errors["of"] > 1 else ""
    drawing = draw_cells(errors["cells"], f"Error of {name}{which}{worst}")
    if row_step > 1 or column_step > 1:
        drawing.legend.append(("", f"each cell shows the worst of {row_step} x {column_step} elements"))
    x, y, width, height = drawing.plot
    drawing.labels += ticks_down(x, y, height, rows, range(0, rows, tick_step(rows, height, 14)))
    drawing.labels += names_of_axes(drawing.plot, f"column of {name}" if columns > 1 else "", f"row of {name}")
    if columns > 1:
        drawing.labels += ticks_along(x, y, width, height, columns, range(0, columns, tick_step(columns, width, 28)))
    return drawing


def draw_heads(heads):
    """The worst error of each tile of rows, for every batch and head."""
    rows, tile = heads["size"][0], heads["step"][0]
    left_out = heads["of"] - len(heads["places"])
    more = f"; {left_out} with smaller errors are left out" if left_out else ""
    several = heads["of"] > 1  # of one matrix there is no batch and head to tell
    title = f"Error of {heads['output']}{' by batch and head' * several}, worst of each {tile} rows{more}"
    drawing = draw_cells(heads["cells"], title)
    x, y, width, height = drawing.plot
    cell, gap = height / len(heads["places"]), 0.0
    for i, (batch, head) in enumerate(heads["places"]):
        if i == 0 or (gap := gap + cell) >= 13:
            drawing.labels.append(Label(x - 5, y + (i + 0.5) * cell + 4, f"{batch}, {head}" * several, "end"))
            gap = 0.0
    in_cells = width * rows / (tile * len(heads["cells"][0]))
    drawing.labels += ticks_along(x, y, in_cells, height, rows, range(0, rows, tick_step(rows, in_cells, 34)))
    drawing.labels += names_of_axes(drawing.plot, f"row of {heads['output']}", "batch, head" * several)
    return drawing


def draw_cells(cells, title):
    """A grid of strings of MARKS as runs of boxes; the description counts what is in it."""
    wide, high = (max(2, min(LARGEST_CELL, SIDE // count)) for count in (len(cells[0]), len(cells)))
    drawing = Drawing(title, "", (LEFT, TOP, wide * len(cells[0]), high * len(cells)))
    layers = {kind: [] for kind in KIND_OF_MARK.values()}
    for row, text in enumerate(cells):
        start = 0
        for end in range(1, len(text) + 1):
            if end == len(text) or text[end] != text[start]:
                box = (LEFT + start * wide, TOP + row * high, (end - start) * wide, high)
                layers[KIND_OF_MARK[text[start]]].append(box)
                start = end
    drawing.layers = {kind: boxes for kind, boxes in layers.items() if boxes}
    count, total = Counter("".join(cells)), sum(map(len, cells))
    drawing.legend = [(kind, KINDS[kind].words) for kind in drawing.layers]
    found = [f"{count[mark]} {KINDS[kind].words}" for mark, kind in KIND_OF_MARK.items() if count[mark]]
    drawing.description = f"Of {total} cells: {', '.join(found)}."
    return drawing


# Visits --------------------------------------------------------------------------------------------------------------


def draw_visits(picture):
    """The mask and, where they are known, the tiles that the kernel visited."""
    rows, keys = picture["size"]
    scale = SIDE / max(rows, keys)
    visits = picture.get("visits")
    drawing = Drawing("What the mask shows", "", (LEFT, TOP, keys * scale, rows * scale), bordered=True)
    x, y, width, height = drawing.plot

    def box(q, tile):
        wide, high = (max(LEAST_SIDE, (last - first + 1) * scale) for first, last in (tile, q))
        return tuple(round(number, 1) for number in (x + tile[0] * scale, y + q[0] * scale, wide, high))

    drawing.outlines = [
        [(round(x + k * scale, 1), round(y + q * scale, 1)) for k, q in line] for line in picture["mask"]
    ]
    drawing.legend = [("mask", "outlined: the pairs of query and key that the mask shows")]
    drawing.description = f"The mask over {rows} queries and {keys} keys."
    steps = range(0, rows, tick_step(rows, height, 14))
    if visits:
        batch, head = visits["place"]
        did = visits.get("did", "visited")
        drawing.title = f"Tiles that {' and '.join(visits['kernels'])} {did} for batch {batch}, head {head}"
        layers = {"seen": [], "extra": [], "missing": [], "masked": [], "again": []}
        for band in visits["bands"]:
            for *tile, times, needed in band["tiles"]:
                layers["seen" if needed else "extra"].append(box(band["q"], tile))
                if times > 1:
                    layers["again"].append(box(band["q"], tile))
            layers["masked"] += [box(band["q"], keys) for keys in band.get("masked", ())]
            layers["missing"] += [box(band["q"], keys) for keys in band["missing"]]
        drawing.layers = {kind: boxes for kind, boxes in layers.items() if boxes}
        words = {kind: KINDS[kind].words for kind in layers}
        if did == "lists":  # a builder's: nothing was visited
            words = {kind: said.replace("visited", "listed") for kind, said in words.items()}
        found = [(kind, f"{words[kind]}: {len(boxes)}") for kind, boxes in drawing.layers.items()]
        drawing.legend += found
        drawing.description += f" Tiles: {'; '.join(words for _, words in found)}."
        steps = apart([band["q"][0] for band in visits["bands"]], scale, 14)
    if picture.get("letters"):
        drawing.labels += letters_of(picture["letters"], drawing.plot, scale)
        names = picture["letters"]["names"]
        drawing.legend.append(("", f"{', '.join(names)}: tiles of the mask that are {', '.join(names.values())}"))
    drawing.labels += ticks_down(x, y, height, rows, steps)
    drawing.labels += ticks_along(x, y, width, height, keys, range(0, keys, tick_step(keys, width, 34)))
    drawing.labels += names_of_axes(drawing.plot, "key", "query")
    return drawing


def letters_of(letters, plot, scale):
    """A label in the middle of each tile that is not empty, where there is room."""
    x, y, width, height = plot
    high, wide = (size * scale for size in letters["block"])
    found = []
    for i, row in enumerate(letters["rows"]):
        for j, letter in enumerate(row):
            top, bottom, left, right = i * high, min((i + 1) * high, height), j * wide, min((j + 1) * wide, width)
            if letter != " " and min(bottom - top, right - left) >= 12:
                at = round(x + (left + right) / 2, 1), round(y + (top + bottom) / 2 + 4, 1)
                found.append(Label(*at, letter, strong=True))
    return found


# Reads of a cache ----------------------------------------------------------------------------------------------------


def draw_strips(strips):
    """The Drawing of picture["strips"]."""
    size, rows, (first, last), what = strips["size"], strips["rows"], strips["needed"], strips["what"]
    scale, left = SIDE / size, LEFT + LABELS
    whole = (left, TOP, SIDE, LINE * len(rows))
    drawing = Drawing(strips_title(strips).capitalize(), "", whole, bordered=True)
    layers = {"seen": [], "extra": [], "missing": []}
    for number, (label, parts) in enumerate(rows):
        y = TOP + number * LINE
        drawing.labels.append(Label(left - 5, y + LINE - 3, label, "end"))
        for kind, begin, end in parts:
            layers[kind].append((round(left + begin * scale, 1), y, round((end - begin + 1) * scale, 1), LINE))
    drawing.layers = {kind: boxes for kind, boxes in layers.items() if boxes}
    x = [round(left + k * scale, 1) for k in (first, last + 1)]
    drawing.outlines = [[(each, TOP), (each, TOP + whole[3])] for each in x]
    drawing.legend = [("mask", f"between the lines: {what}s {first} to {last}, which are needed")]
    drawing.legend += [(kind, KINDS[kind].words.replace("visited", "read")) for kind in drawing.layers]
    drawing.description = f"What programs read of {what}s; {what}s {first} to {last} are needed."
    drawing.labels += ticks_along(*whole, size, range(0, size, tick_step(size, SIDE, 34)))
    return drawing


# Axes ----------------------------------------------------------------------------------------------------------------


def tick_step(size, pixels, room):
    """Elements between ticks that are `room` pixels apart or more: a power of two."""
    step = 1
    while step < size and step * pixels / size < room:
        step *= 2
    return step


def apart(positions, scale, room):
    """Those of the sorted positions that leave `room` pixels to the one before."""
    kept = positions[:1]
    for position in positions[1:]:
        if (position - kept[-1]) * scale >= room:
            kept.append(position)
    return kept


def ticks_down(x, y, height, size, positions):
    """Labels left of the plot, level with the top edge of each position."""
    return [Label(x - 5, round(y + p * height / size + 4, 1), str(p), "end") for p in positions]


def ticks_along(x, y, width, height, size, positions):
    """Labels below the plot, in the middle of the left edge of each position."""
    return [Label(round(x + p * width / size, 1), y + height + 12, str(p)) for p in positions]


def names_of_axes(plot, along, down):
    x, y, width, height = plot
    names = [Label(max(x + width / 2, x + 30), y + height + 27, along)] if along else []
    return [*names, Label(11, y + height / 2, down, upright=True)] if height >= 60 else [*names]
