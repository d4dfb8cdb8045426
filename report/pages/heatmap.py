"""How many times faster our fast kernel is than each other, shape by shape: a number in every cell."""

import math

from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Outline

from report.pages.drawing import INK, SOFT, new_figure
from report.pages.measured import length, mask, times_over
from report.pages.sweep_tables import at_dtype
from report.studies.sweep import BASELINES, PEERS

COLUMNS = (*reversed(PEERS), "P2", "P3", "P4", *reversed(BASELINES))
HEADS = {"SDPA flash": "SDPA\nflash", "SDPA efficient": "SDPA\neffic.", "SDPA cuDNN": "SDPA\ncuDNN",
         "FlexAttention": "Flex", "FlashAttention-4": "FA4", "naive per head": "naive\nhead",
         "vectorised": "vector-\nised", "vectorised compiled": "com-\npiled"}  # fmt: skip
NAMES = {"fast": "fast kernel"}
COLOURS = LinearSegmentedColormap.from_list("around 1", ["#b3541e", "#f2c9a5", "#ffffff", "#a9c8ef", "#0b3d91"])
MOST = 2.0  # a factor beyond which the colour does not change
STEPS = 20  # shades on either side of 1
ROW, CELL, LEFT = 0.225, 0.5, 0.62  # inches


def speedups(sweep, dtype, ours="fast"):
    """The heat map of one dtype: tiers and lengths downwards, kernels across, full beside causal.

    ours: the kernel that all others are compared with, P2 in a quick sweep on a CPU.
    """
    points = at_dtype(sweep, dtype)
    rows = [
        row
        for cells in points
        for row in cells.values()
        if mask(row) != "window" and row.kernel != ours and row.status != "not run"
    ]
    columns = [(kind, k) for kind in ("full", "causal") for k in COLUMNS
               if any(mask(row) == kind and row.kernel == k for row in rows)]  # fmt: skip
    tiers = list(dict.fromkeys(row.tier for row in rows))
    lines = sorted({(row.tier, row.q_len) for row in rows}, key=lambda line: (tiers.index(line[0]), line[1]))
    width = LEFT + CELL * len(columns) + 0.3
    height = 1.45 + ROW * (len(lines) + 1.3 * len(tiers))
    figure = new_figure(width, height, f"How many times faster our {NAMES.get(ours, ours)} is, {dtype}, {sweep.device}")
    figure.text(0.012, 1 - 0.36 / height, "The other kernel's time over ours. Above 1 ours is faster (blue); below 1 "
                "it is slower (orange, framed).", size=9, color=SOFT, va="top")  # fmt: skip
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
    axes.axis("off")
    heads(axes, columns)
    table = {(row.tier, row.q_len, mask(row), row.kernel): (row, cells.get(ours))
             for cells in points for row in cells.values()}  # fmt: skip
    y, before = 1.25, None
    colored, slower = {}, []
    for tier, n in lines:
        if tier != before:
            y += 0.3 * ROW
            axes.text(0.12, y + ROW / 2, tier, size=9, weight="bold", va="center")
            y, before = y + ROW, tier
        axes.text(LEFT - 0.08, y + ROW / 2, f"N={length(n)}", size=8.5, ha="right", va="center")
        for kind, kernel in columns:
            x = place(columns, kind, kernel)
            color, is_slower = cell(axes, x, y, *table.get((tier, n, kind, kernel), (None, None)))
            colored.setdefault(color, []).append((x, y))
            slower += [(x, y)] if is_slower else []
        y += ROW
    for color, corners in colored.items():
        if color is not None:
            fill(axes, corners, facecolor=color, edgecolor="white", linewidth=0.8)
    fill(axes, slower, inset=0.025, fill=False, edgecolor=INK, linewidth=1)
    return figure


def place(columns, kind, kernel):
    """The left edge of a column, in inches; a gap parts causal from full."""
    index = columns.index((kind, kernel))
    return LEFT + CELL * index + (0.15 if kind == "causal" and columns[0][0] == "full" else 0)


def heads(axes, columns):
    for kind in dict.fromkeys(kind for kind, _ in columns):
        first = next(k for found, k in columns if found == kind)
        axes.text(place(columns, kind, first), 0.78, kind, size=10, weight="bold", va="center")
    for kind, kernel in columns:
        middle = place(columns, kind, kernel) + CELL / 2
        axes.text(middle, 1.1, HEADS.get(kernel, kernel), size=8, ha="center", va="center", linespacing=1)


def cell(axes, x, y, row, ours):
    """One cell's text: the ratio, or why there is none. Returns its colour, or None, and whether ours is slower."""
    ratio = times_over(row, ours) if row else None
    if ratio is None:
        word = row.status if row and row.status in ("oom", "failed") else ""
        axes.text(x + CELL / 2, y + ROW / 2, word, size=7.5, style="italic", color=SOFT, ha="center", va="center")
        return None, False
    strength = max(-1.0, min(1.0, math.log(ratio.middle) / math.log(MOST)))
    color = COLOURS(0.5 + round(strength * STEPS) / STEPS / 2)
    text = f"{ratio.middle:.2f}" if ratio.middle < 9.995 else f"{ratio.middle:,.0f}"
    light = 0.299 * color[0] + 0.587 * color[1] + 0.114 * color[2]
    axes.text(
        x + CELL / 2, y + ROW / 2, text, size=8.5, color="white" if light < 0.5 else INK, ha="center", va="center"
    )
    return color, float(text.replace(",", "")) < 1


def fill(axes, corners, inset=0.0, **looks):
    """Rectangles of a cell's size as one path: hundreds of paths would make a large file."""
    paths = [Outline.unit_rectangle().vertices * (CELL - 2 * inset, ROW - 2 * inset) + (x + inset, y + inset)
             for x, y in corners]  # fmt: skip
    codes = Outline.unit_rectangle().codes
    if paths:
        whole = Outline([tuple(v) for path in paths for v in path], [code for _ in paths for code in codes])
        axes.add_patch(PathPatch(whole, **looks))
