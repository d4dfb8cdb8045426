"""What all pictures share: a look for each kernel, axes in tokens, names at the ends of lines, stable bytes."""

import io
import re
from contextlib import contextmanager
from dataclasses import dataclass

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from report.pages.measured import length

INK, SOFT, GRID = "#1b1f24", "#57606a", "#e3e6ea"
OURS_DARK, OURS_LIGHT = "#0b3d91", "#3f7fd6"
LABEL = 8.5  # points; at 800 pixels wide about as many pixels
LINE = 11.0  # points between two names
# Text stays text: a quarter of the bytes of outlines. Matplotlib brings DejaVu Sans, and measures with it everywhere.
STYLE = {"font.family": ["DejaVu Sans"], "font.size": 9, "svg.hashsalt": "flash-attention", "svg.fonttype": "none",
         "axes.edgecolor": SOFT, "text.color": INK, "axes.labelcolor": INK, "xtick.color": SOFT, "ytick.color": SOFT,
         "axes.titlesize": 10, "axes.titleweight": "bold", "axes.titlelocation": "left"}  # fmt: skip


@dataclass(frozen=True)
class Look:
    """How one kernel is drawn; rank: what is drawn over what."""

    name: str
    color: str
    marker: str
    dashes: str | tuple = "-"
    width: float = 1.3
    rank: int = 2


# Ours dark and on top, peers muted, baselines pale: three steps of grey too; markers and dashes tell the rest apart.
LOOKS = {
    "fast": Look("fast (ours)", OURS_DARK, "o", "-", 2.6, 6),
    "P3": Look("P3 (ours)", OURS_LIGHT, "s", (0, (5, 1.5)), 1.8, 5),
    "P4": Look("P4 (ours)", OURS_LIGHT, "s", (0, (5, 1.5)), 1.8, 5),
    "P6": Look("P6 (ours)", OURS_LIGHT, "s", (0, (5, 1.5)), 1.8, 5),
    "P7": Look("P7 (ours)", OURS_LIGHT, "^", (0, (5, 1.5)), 1.8, 5),
    "P2": Look("P2 (ours)", "#7fa8dd", "^", (0, (1, 1.2)), 1.4, 4),
    "SDPA cuDNN": Look("SDPA cuDNN", "#6e665c", "D", "-", 1.3, 3),
    "FlashAttention-4": Look("FlashAttention-4", "#5f5a54", "X", (0, (1, 1)), 1.3, 3),
    "SDPA flash": Look("SDPA flash", "#8b8378", "v", (0, (4, 2)), 1.3, 3),
    "FlexAttention": Look("FlexAttention", "#a08a6c", "P", (0, (6, 2, 1, 2)), 1.3, 3),
    "SDPA efficient": Look("SDPA efficient", "#a9a196", "<", (0, (2, 2)), 1.3, 3),
    "vectorised compiled": Look("compiled", "#b4b4b4", "x", "-", 1.1, 2),
    "vectorised": Look("vectorised", "#bcbcbc", "+", (0, (4, 2)), 1.1, 2),
    "naive per head": Look("naive per head", "#c4c4c4", "1", (0, (1, 1.5)), 1.1, 2),
}


@contextmanager
def house_style():
    """Matplotlib's defaults and STYLE, whatever the reader's own settings are."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        yield


def new_figure(width, height, title):
    """A white Figure of that many inches with its title at the top left."""
    figure = Figure((width, height), facecolor="white")
    figure.text(0.012, 1 - 0.1 / height, title, size=11.5, weight="bold", va="top")
    return figure


def panel(figure, box, title, x_label, y_label, y_log=True):
    """Axes in `box` (left, bottom, width, height of the figure) with a log x axis."""
    axes = figure.add_axes(box)
    axes.set_title(title)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.set_xscale("log", base=2)
    if y_log:
        axes.set_yscale("log")
    on_grid(axes)
    axes.tick_params(length=3)
    return axes


def on_grid(axes, axis="both"):
    """Pale lines behind what is drawn, across that axis or both; no frame at the top and to the right."""
    axes.grid(True, axis=axis, color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def token_ticks(axes, counts, words=length):
    axes.xaxis.set_major_locator(FixedLocator(counts))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda n, _: words(round(n))))


def plain_ticks(axis):
    """0.01, 1, 1,000 in place of powers of ten."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_formatter(NullFormatter())
    axis.set_minor_locator(NullLocator())
    low, high = axis.get_view_interval()
    if axis.get_scale() == "log" and high < 100 * low:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))


def line(axes, kernel, xs, ys, band=None, look=None):
    """One kernel's line with its markers, and its band (lows, highs) from p20 to p80."""
    look = look or LOOKS[kernel]
    if band:
        axes.fill_between(xs, *band, color=look.color, alpha=0.25, linewidth=0, zorder=look.rank - 0.5)
    size = 5.5 if look.rank == 6 else 4.5
    axes.plot(xs, ys, color=look.color, linestyle=look.dashes, linewidth=look.width, marker=look.marker,
              markersize=size, markeredgewidth=1.1, zorder=look.rank)  # fmt: skip


def finish(axes, counts, ends, words=length):
    """Ticks at the counts of tokens, and the lines' names at their ends: when all lines are drawn."""
    token_ticks(axes, counts, words)
    plain_ticks(axes.yaxis)
    name_ends(axes, ends)


def name_ends(axes, ends):
    """Write names to the right of the axes, each level with the end of its line, moved apart where they would overlap.

    ends: [(x, y, text, Look)]. Call when all lines are drawn: the limits of the axes must be final.
    """
    if not ends:
        return
    axes.get_xlim(), axes.get_ylim()  # asked for, they are computed
    to_points = 72 / axes.figure.dpi
    right, (bottom, top) = axes.bbox.x1, (axes.bbox.y0 * to_points, axes.bbox.y1 * to_points)
    ends = sorted(ends, key=lambda end: axes.transData.transform(end[:2])[1])
    wanted = [axes.transData.transform(end[:2])[1] * to_points for end in ends]
    heights = [LINE * (end[2].count("\n") + 1) for end in ends]
    for (x, y, text, look), place in zip(ends, apart(wanted, heights, bottom, top), strict=True):
        fraction = (place - bottom) / (top - bottom)
        bold = "bold" if look.rank == 6 else "normal"
        color = OURS_LIGHT if look.rank == 4 else look.color if look.rank > 4 else INK if look.rank == 3 else SOFT
        at = axes.transData.transform((x, y))[0]
        axes.annotate(
            text, (x, y), (1 + 12 / (axes.bbox.width * to_points), fraction), textcoords="axes fraction", size=LABEL,
            color=color, weight=bold, va="center", linespacing=1.05, annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": look.color, "linewidth": 0.6, "shrinkA": 1, "shrinkB": 4,
                        "relpos": (0, 0.5), "linestyle": "-" if at > right - 0.2 * axes.bbox.width else ":"},
        )  # fmt: skip


def apart(wanted, heights, bottom, top):
    """Centres of labels of these heights near the wanted ones (ascending), none overlapping, within bottom and top."""
    groups = []  # [centre, height, members' number]: neighbours that touch move as one
    for want, height in zip(wanted, heights, strict=True):
        groups.append([[want], [height]])
        while len(groups) > 1 and edge(groups[-2], bottom, top)[1] > edge(groups[-1], bottom, top)[0]:
            wants, tall = groups.pop()
            groups[-1][0] += wants
            groups[-1][1] += tall
    places = []
    for group in groups:
        low = edge(group, bottom, top)[0]
        for height in group[1]:
            places.append(low + height / 2)
            low += height
    return places


def edge(group, bottom, top):
    """(lower, upper) edge of a group of labels about the mean of the places that they want."""
    wants, heights = group
    half = sum(heights) / 2
    middle = sum(wants) / len(wants)
    middle = max(bottom + half, min(top - half, middle))
    return middle - half, middle + half


def svg(figure):
    """The figure as SVG: no date, and ids from a fixed salt, so that the same figure is the same bytes."""
    drawn = io.StringIO()
    with house_style():
        FigureCanvasSVG(figure).print_svg(drawn, metadata={"Date": None})
    return small(drawn.getvalue())


def small(svg):
    """The same SVG in fewer bytes: no indents, comments, names of groups, rotations by nothing; short numbers."""
    svg = re.sub(r' transform="rotate\(-0 [^)]*\)"', "", svg)
    svg = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(?<=[ \"(])(-?\d+\.\d{2})\d+", r"\1", tag[0]), svg)  # not the text
    svg = re.sub(r"<!--.*?-->|(?<=<g) id=\"(text|patch|line2d)_\d+\"", "", svg, flags=re.DOTALL)
    return re.sub(r"\n\s+", "\n", svg).replace("'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif")
