"""Pictures of notebook 05: what was measured of block-sparse attention, as time against density."""

from matplotlib.ticker import FixedLocator

from notebooks.pictures.png import png
from report.pages import block_sparse_pictures
from report.pages.drawing import GRID, INK, OURS_DARK, OURS_LIGHT, SOFT, house_style, new_figure, panel, plain_ticks
from report.pages.measured import load_study
from report.studies import block_sparse as names

LOOKS = {
    "documents": ("o", OURS_DARK), "interleaved": ("s", "#c2571a"), "causal": ("^", "#6e665c"),
    "random FP": ("D", OURS_LIGHT), "random FCP": ("v", "#2f8f6f"), names.FULL_MAP: ("P", "#9a5b86"),
}  # fmt: skip
TICKS = (0.05, 0.1, 0.25, 0.5, 0.75, 1)


def measured():
    """(rows, facts of the machine) of the committed measurement."""
    return load_study(names.STUDY)


def at(rows, pattern, n, block, kernel):
    """The one row of that kernel at that point; raises ValueError where there is none."""
    (row,) = (row for row in rows if row.key == (pattern, n, block, kernel))
    return row


def against_dense(rows, n, block=64):
    """The fast form's time over that of a dense kernel, against density: a mark for each pattern; time = density."""
    with house_style():
        figure = new_figure(7.4, 4.3, f"Measured: the fast block-sparse kernel over a dense one, N = {n:,}")
        axes = panel(figure, (0.11, 0.125, 0.57, 0.74), "", "density: tiles visited, of all", "time over dense")
        axes.plot([0.25, 1.1], [0.25, 1.1], color=INK, linewidth=1, linestyle=(0, (1, 2)), label="time = density")
        axes.axhline(1, color=SOFT, linewidth=1, linestyle=(0, (4, 2)), label="as long as dense")
        for pattern, (marker, colour) in LOOKS.items():
            row = at(rows, pattern, n, block, "fast")
            axes.plot([row.density], [1 / row.over_dense], marker, color=colour, markersize=8, label=pattern)
        for axis in (axes.xaxis, axes.yaxis):
            plain_ticks(axis)
            axis.set_major_locator(FixedLocator((0.25, 0.5, 0.75, 1)))
        axes.set(xlim=(0.23, 1.15), ylim=(0.23, 1.25))
        axes.grid(True, color=GRID)
        figure.legend(loc="upper left", bbox_to_anchor=(0.7, 0.86), frameon=False, fontsize=9)
        return png(figure, "The time of the fast block-sparse kernel over a dense kernel's, against density")


def by_density(rows):
    """The report's own picture: time against density, from every tile down to one in twenty."""
    with house_style():
        return png(block_sparse_pictures.density(rows), "Time against density, beside the straight line")
