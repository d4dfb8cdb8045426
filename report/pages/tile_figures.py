"""Tiles drawn: which phase of a kernel visits each, over the mask's outline, and how many there are against N."""

import math

from matplotlib.patches import Patch, Rectangle

from grader.kinds.attention import picture
from report.pages.drawing import (
    INK,
    OURS_DARK,
    OURS_LIGHT,
    SOFT,
    Look,
    finish,
    house_style,
    line,
    new_figure,
    panel,
)

BLUE, ORANGE, PINK, GREEN, BLANK = "#a9cfec", "#fbd08f", "#efc3dc", "#a5dfce", "#f6f8fa"
PHASES = {  # letters as in the problems' first lines
    "S": ("sinks, masked", GREEN), "E": ("the window's edge, masked", ORANGE),
    ">": ("inside, no mask", BLUE), "D": ("the diagonal, masked", PINK), "r": ("the ragged tail, masked", "#dcd3f0"),
}  # fmt: skip
PANEL, LETTER_ROOM = 2.1, 0.14  # inches: a panel's side; the least side of a tile with a letter in it
ROW = PANEL + 0.72  # inches: a panel with its title above and its numbers below


def phase_tiles(case, block_q, block_k):
    """[(first query, [(first key, letter of PHASES), ...]), ...]: what a kernel visits, from the mask of each tile."""
    bands = []
    for q in range(0, case.N, block_q):
        tiles = [(k, letter_of(case, range(q, q + block_q), k, block_k)) for k in range(0, case.num_keys, block_k)]
        bands.append((q, [(k, letter) for k, letter in tiles if letter]))
    return bands


def letter_of(case, queries, start, block_k):
    """The letter of PHASES of the tile of keys from `start` on, or an empty one where it is not visited."""
    if not case.causal:
        return ">" if start + block_k <= case.num_keys else "r"
    if start > min(queries[-1], case.N - 1):
        return ""
    if start + block_k > queries[0]:
        return "D"
    oldest = queries[0] - start, queries[-1] - start  # the age of the tile's first key, as its queries see it
    window = min(case.window, case.N) if case.window else math.inf  # as kernels have it
    shown = [age < window for age in (oldest[0] - block_k + 1, oldest[1])]
    return ">" if all(shown) else "E" if any(shown) else "S" if start < (case.sinks or 0) else ""


def tiles_of(case, block_q, block_k):
    """How many tiles a kernel visits, for one head."""
    return sum(len(tiles) for _, tiles in phase_tiles(case, block_q, block_k))


def square(figure, place, columns, case, title, top=0.62):
    """Axes over queries and keys, `columns` of them in a row, with the outline of the mask."""
    width, height = figure.get_size_inches()
    row, column = divmod(place, columns)
    left, top = 0.55 + column * (width - 0.45) / columns, top + row * ROW
    side = min(PANEL, (width - 0.45) / columns - 0.35)
    axes = figure.add_axes((left / width, (height - top - side) / height, side / width, side / height))
    axes.set(xlim=(0, case.num_keys), ylim=(case.N, 0), title=title, facecolor=BLANK, xlabel="key")
    axes.set_xticks([0, case.num_keys // 2, case.num_keys])
    axes.set_yticks([0, case.N // 2, case.N])
    axes.tick_params(length=2, labelsize=7.5)
    if column == 0:
        axes.set_ylabel("query", labelpad=1)
    for edge in picture.mask_outlines(case):
        axes.plot(*zip(*edge, strict=True), color=INK, linewidth=1.1, zorder=3)
    return axes


def put(axes, case, rows, block_q, block_k, colours):
    """Coloured tiles with their letters; rows as of phase_tiles."""
    inches = axes.get_position().width * axes.figure.get_size_inches()[0] / case.num_keys
    for q, tiles in rows:
        for k, letter in tiles:
            wide, high = min(block_k, case.num_keys - k), min(block_q, case.N - q)
            axes.add_patch(Rectangle((k, q), wide, high, facecolor=colours[letter], edgecolor="white", linewidth=0.8))
            if min(wide, high) * inches >= LETTER_ROOM:
                axes.text(k + wide / 2, q + high / 2, letter, ha="center", va="center", size=8, zorder=4,
                          bbox={"facecolor": colours[letter], "edgecolor": "none", "pad": 0.6})  # fmt: skip


def key(figure, entries, left=0.55, bottom=0, columns=None):
    """The legend, that many inches from the figure's lower left corner: (colour, words) each."""
    handles = [Patch(facecolor=colour, edgecolor=SOFT, linewidth=0.5, label=words) for colour, words in entries]
    handles.append(Patch(facecolor="none", edgecolor=INK, label="outlined: the mask"))
    width, height = figure.get_size_inches()
    columns = columns or (5 if width > 8 else 3 if width > 7 else 2)
    figure.legend(handles=handles, loc="lower left", bbox_to_anchor=(left / width, bottom / height), ncols=columns,
                  frameon=False, fontsize=8.5, handlelength=1.2, columnspacing=1.1)  # fmt: skip


def phase_maps(cases, blocks, title, columns=None):
    """A Figure of the phase that visits each tile; blocks: (block_q, block_k) of each; columns: panels in a row."""
    columns = columns or max(2, len(cases))
    with house_style():
        rows = -(-len(cases) // columns)
        free = rows * columns > len(cases)  # a place without a panel: the legend's
        height = 3.45 if free else 3.9 if columns == 2 else 3.7
        figure = new_figure(max(5.6, 0.5 + 2.44 * columns), height + ROW * (rows - 1), title)
        drawn = set("SED>")
        for place, (case, (block_q, block_k)) in enumerate(zip(cases, blocks, strict=True)):
            bands = phase_tiles(case, block_q, block_k)
            axes = square(figure, place, columns, case, case.name)
            put(axes, case, bands, block_q, block_k, {letter: colour for letter, (_, colour) in PHASES.items()})
            axes.set_xlabel(f"key; {sum(len(tiles) for _, tiles in bands)} tiles")
            drawn |= {letter for _, tiles in bands for _, letter in tiles}
        entries = [(colour, f"{letter}: {words}") for letter, (words, colour) in PHASES.items() if letter in drawn]
        if free:
            key(figure, entries, left=0.55 + (figure.get_size_inches()[0] - 0.45) / columns, bottom=1.1, columns=1)
        else:
            key(figure, entries)
        return figure


def work(families, lengths, tiles, traced):
    """A Figure of the tiles visited against N.

    families: {name: N -> Case}. tiles: queries and keys of one. traced: {name: [(N, tiles), ...]}, of kernels that ran.
    """
    styles = [
        ("#8b8378", (0, (4, 2)), 3),
        ("#a08a6c", "-", 3),
        (OURS_LIGHT, (0, (5, 1.5)), 5),
        (OURS_DARK, "-", 6),
    ]
    with house_style():
        figure = new_figure(7.6, 4.2, f"Tiles of {tiles[0]} queries x {tiles[1]} keys that one head visits")
        axes, ends = panel(figure, (0.12, 0.13, 0.6, 0.74), "", "N, tokens", "tiles"), []
        for (name, made), (colour, dashes, rank) in zip(families.items(), styles, strict=True):
            look = Look(name, colour, "", dashes, 1.8, rank)
            counts = [tiles_of(made(n), *tiles) for n in lengths]
            line(axes, name, lengths, counts, look=look)
            points = traced.get(name, [])
            axes.plot(*zip(*points, strict=True), linestyle="", marker="o", markersize=6.5, markerfacecolor="white",
                      markeredgecolor=colour, markeredgewidth=1.5, zorder=7) if points else None  # fmt: skip
            ends.append((lengths[-1], counts[-1], name, look))
        finish(axes, lengths, ends)
        axes.text(0.03, 0.95, "lines: counted from the phases\ncircles: loaded by a kernel that ran", va="top",
                  transform=axes.transAxes, size=8.5, color=SOFT)  # fmt: skip
        return figure
