"""Pictures of notebook 04, some of 05 too: masks cut into tiles, phases, the tiles a kernel visited, work against N."""

import os

from matplotlib.patches import Patch, Rectangle

from grader.kinds.block_sparse import tile_map
from grader.kinds.block_sparse.patterns import CAUSAL, EMPTY, FULL, LETTERS, PARTIAL
from grader.render.drawing import KINDS
from notebooks.pictures.png import PAGE, png
from report.pages import tile_figures
from report.pages.drawing import INK, SOFT, house_style, new_figure
from report.pages.tile_figures import BLANK, BLUE, ORANGE, PINK, key, put, square

COLUMNS, PANELS = 2, 5.6  # panels in a row, and inches: on a phone the letters of tiles stay legible

OF_KIND = {FULL: BLUE, CAUSAL: PINK, PARTIAL: ORANGE}
COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven")
LIVE = ("JPY_SESSION_NAME", "VSCODE_PID", "COLAB_RELEASE_TAG")  # set where a person sits before the notebook


# Tiles ---------------------------------------------------------------------------------------------------------------


def kind_tiles(case, block_q, block_k):
    """[(first query, [(first key, letter), ...]), ...]: the tiles of a mask that are not empty; F, C or P."""
    kinds = tile_map.cut(case.visibility, case.N, case.num_keys, block_q, block_k).kinds.tolist()
    return [
        (i * block_q, [(j * block_k, LETTERS[kind]) for j, kind in enumerate(row) if kind != EMPTY])
        for i, row in enumerate(kinds)
    ]


# Panels --------------------------------------------------------------------------------------------------------------


def masks(cases, block, title=None):
    """Each mask cut into tiles of block x block."""
    title = title or f"{cases[0].N} queries and keys, cut into tiles of {block} x {block}"
    with house_style():
        rows = -(-len(cases) // COLUMNS)
        figure = new_figure(PANELS, 3.9 + tile_figures.ROW * (rows - 1), title)
        colours = {LETTERS[kind]: colour for kind, colour in OF_KIND.items()}
        for place, case in enumerate(cases):
            axes = square(figure, place, COLUMNS, case, case.name)
            put(axes, case, kind_tiles(case, block, block), block, block, colours)
        words = ("F: every pair is visible", "C: the triangle of the diagonal", "P: any other part")
        key(figure, [*zip(OF_KIND.values(), words, strict=True), (BLANK, "empty: no pair is visible")])
        return png(figure, f"The tiles of {len(cases)} masks: {', '.join(case.name for case in cases)}")


def phase_maps(cases, blocks, title):
    """The phase that visits each tile; blocks: (block_q, block_k) of each case."""
    words = f"The phase that visits each tile: {', '.join(case.name for case in cases)}"
    return png(tile_figures.phase_maps(cases, blocks, title, COLUMNS), words)


def with_sliders(draw, **ranges):
    """Sliders over `draw` where a person runs the notebook and ipywidgets is there; else a sentence that says so.

    ranges: (least, most, step) of each argument, or a list of choices.
    """
    try:
        import ipywidgets
    except ModuleNotFoundError:
        return print("Sliders need ipywidgets: pip install ipywidgets")
    if not any(name in os.environ for name in LIVE):
        return print(f"Run this notebook in Jupyter: {COUNTS[len(ranges)]} sliders appear here.")
    ipywidgets.interact(draw, **ranges)


# What ran ------------------------------------------------------------------------------------------------------------


def visits(cases, results, titles):
    """The tiles that each kernel visited, from its trace, over the mask."""
    with house_style():
        rows = -(-len(cases) // COLUMNS)
        height = 3.55 + tile_figures.ROW * (rows - 1)
        figure = new_figure(PANELS, height, "Tiles that the kernels loaded, from their traces")
        drawn = set()
        for place, (case, result, title) in enumerate(zip(cases, results, titles, strict=True)):
            axes = square(figure, place, COLUMNS, case, title)
            for band in result.facts.picture["visits"]["bands"]:
                boxes = [("seen" if needed else "extra", first, last) for first, last, _, needed in band["tiles"]]
                for kind, first, last in boxes + [("missing", *tile) for tile in band["missing"]]:
                    drawn.add(kind)
                    axes.add_patch(box(kind, band["q"], first, last))
        handles = [(kind, KINDS[kind].words) for kind in ("seen", "extra", "missing") if kind in drawn]
        patches = [box(kind, (0, 0), 0, 0, words) for kind, words in handles]
        patches.append(Patch(facecolor="none", edgecolor=INK, label="outlined: the mask"))
        figure.legend(handles=patches, loc="lower left", bbox_to_anchor=(0.55 / PANELS, 0.02 / rows), ncols=3,
                      frameon=False, fontsize=8.5)  # fmt: skip
        return png(figure, f"Tiles visited over the mask: {', '.join(titles)}")


def box(kind, q, first, last, words=None):
    look = KINDS[kind]
    return Rectangle((first, q[0]), last - first + 1, q[1] - q[0] + 1, facecolor=look.light, label=words,
                     edgecolor=INK if look.hatch else "white", hatch=look.hatch * 3 or None, linewidth=0.8)  # fmt: skip


# Heads and work ------------------------------------------------------------------------------------------------------


def heads(query_heads, kv_heads):
    """Which key/value head each query head reads, for several numbers of kv heads."""
    with house_style():
        figure = new_figure(PAGE, 2.45, f"Which K and V each of {query_heads} query heads reads: head // group")
        names = {query_heads: "every head its own", 1: "one for all (multi-query)"}
        for place, count in enumerate(kv_heads):
            axes = figure.add_axes((0.085 + 0.31 * place, 0.05, 0.275, 0.55))
            axes.set(xlim=(-0.6, query_heads - 0.4), ylim=(-0.45, 1.45))
            axes.set_title(f"Hkv = {count}\n{names.get(count, 'in groups')}")
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
    axes.plot([x], [y], marker="o", markersize=14, color=colour, markeredgecolor="white", zorder=2)
    axes.text(x, y, text, ha="center", va="center", size=8, zorder=3)


def work(families, lengths, tiles, traced):
    """Tiles visited against N, for one head; families and traced as report.pages.tile_figures.work takes them."""
    words = "Tiles against N: squares of N without a window, straight lines with one"
    return png(tile_figures.work(families, lengths, tiles, traced), words)
