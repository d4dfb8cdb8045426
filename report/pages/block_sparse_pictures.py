"""Pictures of block-sparse attention: speed over FlexAttention by pattern and N, and time against density."""

from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator

from report.pages.drawing import INK, OURS_DARK, OURS_LIGHT, SOFT, Look, finish, house_style, line, new_figure, panel
from report.studies import block_sparse as names

LOOKS = {
    "simple": Look("simple", "#bcbcbc", "+", (0, (4, 2)), 1.1, 2),
    "prefetch": Look("prefetch", "#a08a6c", "v", (0, (2, 2)), 1.3, 3),
    "row_pairs": Look("row_pairs", "#7fa8dd", "^", (0, (1, 1.2)), 1.4, 4),
    "longest_first": Look("longest_first", OURS_LIGHT, "s", (0, (5, 1.5)), 1.8, 5),
    "fast": Look("fast", OURS_DARK, "o", "-", 2.6, 6),
}
GOAL = 1.5  # times as fast as FlexAttention


@house_style()
def speedups(rows, block):
    """A panel for each pattern: how many times as fast as FlexAttention each of ours is, against N."""
    rows = [row for row in rows if row.block == block and row.over_flex is not None and row.kernel in LOOKS]
    title = f"Times as fast as FlexAttention compiled (dashed: as fast; dotted: {GOAL} times): tiles of {block}"
    figure = new_figure(10.5, 6.4, title)
    highest, lowest = max(row.over_flex for row in rows), min(row.over_flex for row in rows)
    lengths = sorted({row.n for row in rows})
    for i, pattern in enumerate(names.PATTERNS):
        box = (0.065 + 0.325 * (i % 3), 0.555 - 0.46 * (i // 3), 0.265, 0.33)
        axes = panel(figure, box, pattern, "N, tokens" if i > 1 else "", "times as fast" if i % 3 == 0 else "")
        for kernel in LOOKS:
            points = sorted((row for row in rows if (row.pattern, row.kernel) == (pattern, kernel)), key=lambda r: r.n)
            if points:
                band = [row.over_flex_low for row in points], [row.over_flex_high for row in points]
                line(axes, kernel, [row.n for row in points], [row.over_flex for row in points], band, LOOKS[kernel])
        axes.axhline(1, color=SOFT, linewidth=1, linestyle=(0, (4, 2)))
        axes.axhline(GOAL, color=INK, linewidth=1, linestyle=(0, (1, 1.5)))
        axes.set_ylim(min(0.9, lowest) / 1.1, max(GOAL, highest) * 1.1)
        finish(axes, lengths, [])
        axes.yaxis.set_major_locator(FixedLocator([0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8, 12]))
    handles = [
        Line2D([], [], color=look.color, linestyle=look.dashes, linewidth=look.width, marker=look.marker, label=name)
        for name, look in reversed(LOOKS.items())
    ]
    figure.legend(handles=handles, loc="lower left", bbox_to_anchor=(0.735, 0.2), frameon=False, fontsize=9.5)
    return figure


@house_style()
def density(rows):
    """Time over the time at density 1, against density, beside the straight line."""
    rows = [row for row in rows if row.pattern == names.BY_DENSITY and row.over_dense is not None]
    figure = new_figure(7.4, 4.6, "Time against density, 16k tokens: over the same kernel's time at density 1")
    axes = panel(figure, (0.1, 0.125, 0.64, 0.74), "", "tiles that are visited, of all", "time, of that at density 1")
    ends = []
    for kernel in names.SCALED:
        for block in sorted({row.block for row in rows}):
            of = [row for row in rows if row.kernel.startswith(f"{kernel} at ") and row.block == block]
            points = sorted(of, key=lambda row: row.density)
            if not points:
                continue
            look = LOOKS[kernel] if block != 64 else Look(kernel, LOOKS[kernel].color, "^", (0, (1, 1.2)), 1.4, 4)
            line(axes, kernel, [row.density for row in points], [1 / row.over_dense for row in points], look=look)
            ends.append((points[0].density, 1 / points[0].over_dense, f"{kernel}, tiles of {block}", look))
    least = min(row.density for row in rows)
    axes.plot([least, 1], [least, 1], color=INK, linewidth=1, linestyle=(0, (1, 2)))
    axes.annotate("linear", (least, least), (4, -3), textcoords="offset points", va="top", size=8.5)
    axes.invert_xaxis()
    finish(axes, sorted({round(row.density, 2) for row in rows}), ends)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.2g}")
    return figure
