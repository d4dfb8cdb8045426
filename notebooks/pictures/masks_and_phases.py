"""Pictures of notebook 04, some of 05 too: masks cut into tiles, phases, the tiles a kernel visited, work against N."""

import os

import torch
from matplotlib.patches import Patch, Rectangle

from grader import picture, tile_map
from grader.patterns import CAUSAL, EMPTY, FULL, LETTERS, PARTIAL
from grader.render.drawing import KINDS
from grader.suspect_phases import phases
from notebooks.pictures.png import png
from report.drawing import (
    INK,
    OURS_DARK,
    OURS_LIGHT,
    SOFT,
    Look,
    house_style,
    line,
    name_ends,
    new_figure,
    panel,
    plain_ticks,
    token_ticks,
)

BLUE, ORANGE, PINK, GREEN, BLANK = "#a9cfec", "#fbd08f", "#efc3dc", "#a5dfce", "#f6f8fa"
OF_KIND = {FULL: BLUE, CAUSAL: PINK, PARTIAL: ORANGE}
PHASES = {  # letters as in the problems' first lines
    "S": ("sinks, masked", GREEN), "E": ("the window's edge, masked", ORANGE),
    ">": ("inside, no mask", BLUE), "D": ("the diagonal, masked", PINK),
}  # fmt: skip
PANEL, LETTER_ROOM = 2.1, 0.14  # inches: a panel's side; the least side of a tile with a letter in it
LIVE = ("JPY_SESSION_NAME", "VSCODE_PID", "COLAB_RELEASE_TAG")  # set where a person sits before the notebook


# Tiles ---------------------------------------------------------------------------------------------------------------


def phase_tiles(case, block_q, block_k):
    """[(first query, [(first key, letter of PHASES), ...]), ...]: what a causal kernel visits, in order."""
    starts = torch.arange(0, case.N, block_q)
    found = phases(case, starts, torch.zeros(1, dtype=torch.long), block_q, block_k)
    columns = (found.sinks, found.first, found.inside, found.diagonal, found.end.clamp(max=case.N))
    rows = []
    for start, *ends in zip(starts.tolist(), *(column.flatten().tolist() for column in columns), strict=True):
        sinks, first, inside, diagonal, end = ends
        stretches = (("S", 0, sinks), ("E", first, inside), (">", inside, diagonal), ("D", diagonal, end))
        rows.append((start, [(k, letter) for letter, a, b in stretches for k in range(a, b, block_k)]))
    return rows


def kind_tiles(case, block_q, block_k):
    """The same of the mask itself: the tiles that are not empty, with their letters F, C, P."""
    kinds = tile_map.cut(case.visibility, case.N, case.num_keys, block_q, block_k).kinds.tolist()
    return [
        (i * block_q, [(j * block_k, LETTERS[kind]) for j, kind in enumerate(row) if kind != EMPTY])
        for i, row in enumerate(kinds)
    ]


def tiles_of(case, block_q, block_k):
    """How many tiles a kernel visits, for one head."""
    if not case.causal:
        return -(-case.N // block_q) * -(-case.N // block_k)
    return sum(len(tiles) for _, tiles in phase_tiles(case, block_q, block_k))


# Panels --------------------------------------------------------------------------------------------------------------


def square(figure, place, of, case, title, top=0.62):
    """Axes over queries and keys, one of `of` in a row, with the outline of the mask."""
    width, height = figure.get_size_inches()
    left = 0.55 + place * (width - 0.45) / of
    side = min(PANEL, (width - 0.45) / of - 0.35)
    axes = figure.add_axes((left / width, (height - top - side) / height, side / width, side / height))
    axes.set(xlim=(0, case.num_keys), ylim=(case.N, 0), title=title, facecolor=BLANK, xlabel="key")
    axes.set_xticks([0, case.num_keys // 2, case.num_keys])
    axes.set_yticks([0, case.N // 2, case.N])
    axes.tick_params(length=2, labelsize=7.5)
    if place == 0:
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
                axes.text(k + wide / 2, q + high / 2, letter, ha="center", va="center", size=8, zorder=4)


def key(figure, entries, left=0.55):
    """The legend at the bottom: (colour, words) each."""
    handles = [Patch(facecolor=colour, edgecolor=SOFT, linewidth=0.5, label=words) for colour, words in entries]
    handles.append(Patch(facecolor="none", edgecolor=INK, label="outlined: the mask"))
    width = figure.get_size_inches()[0]
    columns = 5 if width > 8 else 3 if width > 7 else 2
    figure.legend(handles=handles, loc="lower left", bbox_to_anchor=(left / width, 0), ncols=columns,
                  frameon=False, fontsize=8.5, handlelength=1.2, columnspacing=1.1)  # fmt: skip


def masks(cases, block, title=None):
    """Each mask cut into tiles of block x block."""
    title = title or f"{cases[0].N} queries and keys, cut into tiles of {block} x {block}"
    with house_style():
        figure = new_figure(10.2, 3.55, title)
        colours = {LETTERS[kind]: colour for kind, colour in OF_KIND.items()}
        for place, case in enumerate(cases):
            axes = square(figure, place, len(cases), case, case.name)
            put(axes, case, kind_tiles(case, block, block), block, block, colours)
        words = ("F: every pair is visible", "C: the triangle of the diagonal", "P: any other part")
        key(figure, [*zip(OF_KIND.values(), words, strict=True), (BLANK, "empty: no pair is visible")])
        return png(figure, f"The tiles of {len(cases)} masks: {', '.join(case.name for case in cases)}")


def phase_maps(cases, blocks, title):
    """The phase that visits each tile; blocks: (block_q, block_k) of each case."""
    with house_style():
        figure = new_figure(max(5.6, 0.5 + 2.44 * len(cases)), 3.7 if len(cases) > 1 else 3.9, title)
        for place, (case, (block_q, block_k)) in enumerate(zip(cases, blocks, strict=True)):
            rows = phase_tiles(case, block_q, block_k)
            axes = square(figure, place, max(2, len(cases)), case, case.name)
            put(axes, case, rows, block_q, block_k, {letter: colour for letter, (_, colour) in PHASES.items()})
            axes.text(0.97, 0.96, f"{sum(len(tiles) for _, tiles in rows)} tiles", transform=axes.transAxes,
                      ha="right", va="top", size=8.5, color=SOFT)  # fmt: skip
        key(figure, [(colour, f"{letter}: {words}") for letter, (words, colour) in PHASES.items()])
        return png(figure, f"The phase that visits each tile: {', '.join(case.name for case in cases)}")


def with_sliders(draw, **ranges):
    """Sliders over `draw` where a person runs the notebook and ipywidgets is there; else a sentence that says so.

    ranges: (least, most, step) of each argument, or a list of choices.
    """
    try:
        import ipywidgets
    except ModuleNotFoundError:
        return print("Sliders need ipywidgets: pip install ipywidgets")
    if not any(name in os.environ for name in LIVE):
        return print("Run this notebook in Jupyter: five sliders appear here.")
    ipywidgets.interact(draw, **ranges)


# What ran ------------------------------------------------------------------------------------------------------------


def visits(cases, results, titles):
    """The tiles that each kernel visited, from its trace, over the mask."""
    with house_style():
        figure = new_figure(max(5.6, 0.5 + 2.44 * len(cases)), 3.55, "Tiles that the kernels loaded, from their traces")
        drawn = set()
        for place, (case, result, title) in enumerate(zip(cases, results, titles, strict=True)):
            axes = square(figure, place, max(2, len(cases)), case, title)
            for band in result.facts["picture"]["visits"]["bands"]:
                boxes = [("seen" if needed else "extra", first, last) for first, last, _, needed in band["tiles"]]
                for kind, first, last in boxes + [("missing", *tile) for tile in band["missing"]]:
                    drawn.add(kind)
                    axes.add_patch(box(kind, band["q"], first, last))
        handles = [(kind, KINDS[kind].words) for kind in ("seen", "extra", "missing") if kind in drawn]
        patches = [box(kind, (0, 0), 0, 0, words) for kind, words in handles]
        width = figure.get_size_inches()[0]
        patches.append(Patch(facecolor="none", edgecolor=INK, label="outlined: the mask"))
        figure.legend(handles=patches, loc="lower left", bbox_to_anchor=(0.55 / width, 0.02), ncols=3, frameon=False,
                      fontsize=8.5)  # fmt: skip
        return png(figure, f"Tiles visited over the mask: {', '.join(titles)}")


def box(kind, q, first, last, words=None):
    look = KINDS[kind]
    return Rectangle((first, q[0]), last - first + 1, q[1] - q[0] + 1, facecolor=look.light, label=words,
                     edgecolor=INK if look.hatch else "white", hatch=look.hatch * 3 or None, linewidth=0.8)  # fmt: skip


# Heads and work ------------------------------------------------------------------------------------------------------


def heads(query_heads, kv_heads):
    """Which key/value head each query head reads, for several numbers of kv heads."""
    with house_style():
        figure = new_figure(9.6, 2.25, f"Which K and V each of {query_heads} query heads reads: head // group")
        names = {query_heads: "every head its own", 1: "one for all (multi-query)"}
        for place, count in enumerate(kv_heads):
            axes = figure.add_axes((0.075 + 0.315 * place, 0.06, 0.275, 0.6))
            axes.set(xlim=(-0.6, query_heads - 0.4), ylim=(-0.45, 1.45))
            axes.set_title(f"Hkv = {count}: {names.get(count, 'grouped')}")
            axes.axis("off")
            group = query_heads // count
            for head in range(query_heads):
                middle = head // group * group + (group - 1) / 2
                axes.plot([head, middle], [1, 0], color=SOFT, linewidth=1, zorder=1)
                dot(axes, head, 1, str(head), BLUE)
                if head % group == 0:
                    dot(axes, middle, 0, str(head // group), ORANGE)
            if place == 0:
                for y, words in ((1, "query\nhead"), (0, "kv\nhead")):
                    axes.text(-0.85, y, words, ha="right", va="center", size=8.5, color=SOFT)
        return png(figure, "Query heads joined to the key/value head that they read")


def dot(axes, x, y, text, colour):
    axes.plot([x], [y], marker="o", markersize=15, color=colour, markeredgecolor="white", zorder=2)
    axes.text(x, y, text, ha="center", va="center", size=8, zorder=3)


def work(families, lengths, block, traced):
    """Tiles visited against N. families: {name: N -> Case}. traced: {name: [(N, tiles), ...]} of real runs."""
    styles = [
        ("#8b8378", "v", (0, (4, 2))),
        ("#a08a6c", "P", "-"),
        (OURS_LIGHT, "s", (0, (5, 1.5))),
        (OURS_DARK, "o", "-"),
    ]
    with house_style():
        figure = new_figure(7.6, 4.2, f"Tiles of {block} x {block} that one head visits")
        axes, ends = panel(figure, (0.12, 0.13, 0.6, 0.74), "", "N, tokens", "tiles"), []
        for (name, made), (colour, _, dashes), rank in zip(families.items(), styles, (3, 3, 5, 6), strict=True):
            look = Look(name, colour, "", dashes, 1.8, rank)
            counts = [tiles_of(made(n), block, block) for n in lengths]
            line(axes, name, lengths, counts, look=look)
            points = traced.get(name, [])
            axes.plot(*zip(*points, strict=True), linestyle="", marker="o", markersize=6.5, markerfacecolor="white",
                      markeredgecolor=colour, markeredgewidth=1.5, zorder=7) if points else None  # fmt: skip
            ends.append((lengths[-1], counts[-1], name, look))
        token_ticks(axes, lengths)
        plain_ticks(axes.yaxis)
        name_ends(axes, ends)
        axes.text(0.03, 0.95, "lines: counted from the phases\ncircles: loaded by a kernel that ran", va="top",
                  transform=axes.transAxes, size=8.5, color=SOFT)  # fmt: skip
        return png(figure, "Tiles against N: squares of N without a window, straight lines with one")
