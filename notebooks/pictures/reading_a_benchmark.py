"""Pictures of notebook 07: one time against many, means and medians, turns, all ratios, and what a launch costs."""

from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator

from notebooks.pictures.memory_wall import PALE, WARM, sideways
from notebooks.pictures.png import PAGE
from report.pages.drawing import (
    INK,
    LOOKS,
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
from report.pages.measured import geometric_mean
from report.studies.sweep import BASELINES, OURS

MUTED = "#8b8378"
WORDS = {"naive per head": "PyTorch code, head by head", "vectorised": "PyTorch code",
         "vectorised compiled": "PyTorch code, compiled", "P4": "P4 of this course"}  # fmt: skip


def plain_x(axes):
    """A linear x axis on a panel, whose x axis counts tokens otherwise."""
    axes.set_xscale("linear")


def headlines(ratios, title):
    """Lying bars of {kernel: how many times as fast}, the greatest first, with a line where nothing is won."""
    ratios = dict(sorted(ratios.items(), key=lambda item: -item[1]))
    with house_style():
        figure = new_figure(PAGE, 0.95 + 0.36 * len(ratios), title)
        axes = sideways(figure, 0.27, "times as fast")
        places = range(len(ratios))
        colors = [PALE if name in BASELINES else OURS_LIGHT if name in OURS else OURS_DARK for name in ratios]
        axes.barh(places, ratios.values(), color=colors, height=0.62)
        axes.set_yticks(places, [WORDS.get(name, name) for name in ratios], color=INK)
        axes.invert_yaxis()
        for place, value in enumerate(ratios.values()):
            axes.annotate(f"{value:.3g}", (value, place), (5, 0), textcoords="offset points", va="center")
        axes.axvline(1, color=INK, linewidth=1, linestyle=(0, (1, 1.5)))
        axes.set_xlim(0, 1.1 * max(ratios.values()))
        words = {PALE: "than PyTorch code", OURS_DARK: "than somebody's kernel", OURS_LIGHT: "than another of ours"}
        axes.legend(handles=[Patch(color=color, label=word) for color, word in words.items()], loc="lower right",
                    frameon=False)  # fmt: skip
    return figure


def summaries(rows, title):
    """For each row, over its median: the least time, p20 to p80 as a bar, the mean as a diamond."""
    with house_style():
        figure = new_figure(PAGE, 1.0 + 0.4 * len(rows), title)
        axes = sideways(figure, 0.37, "times the row's median")
        for place, row in enumerate(rows):
            least, low, high, mean = (ms / row.median_ms for ms in (row.min_ms, row.p20_ms, row.p80_ms, row.avg_ms))
            axes.plot([least, mean], [place, place], color=SOFT, linewidth=1)
            axes.plot([low, high], [place, place], color=PALE, linewidth=10, solid_capstyle="butt")
            axes.plot([1], [place], "o", color=OURS_DARK, markersize=7)
            axes.plot([mean], [place], "D", color=WARM, markersize=6)
        names = [f"{row.kernel}, {1e3 * row.median_ms:.0f} us, {row.samples} calls" for row in rows]
        axes.set_yticks(range(len(rows)), names, color=INK)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        keys = [("o", OURS_DARK, 7, "median"), ("s", PALE, 9, "p20 to p80"), ("D", WARM, 6, "mean")]
        handles = [Line2D([], [], marker=marker, color=color, markersize=size, linestyle="none", label=word)
                   for marker, color, size, word in keys]  # fmt: skip
        axes.legend(handles=handles, loc="upper right", frameon=False)
    return figure


def calls(runs, title):
    """Panels of {how they were made: {arm: [(number of the call, ms)]}}: each call of two arms, in order."""
    highest = max(ms for arms in runs.values() for points in arms.values() for _, ms in points)
    with house_style():
        figure = new_figure(PAGE, 3.1, title)
        for i, (how, arms) in enumerate(runs.items()):
            axes = panel(figure, (0.075 + 0.47 * i, 0.17, 0.4, 0.6), how, "call", "ms" if i == 0 else "", y_log=False)
            plain_x(axes)
            for (name, points), color, marker in zip(arms.items(), (OURS_DARK, WARM), ("o", "s"), strict=True):
                axes.plot(*zip(*points, strict=True), marker, color=color, markersize=3, linestyle="none", label=name)
            axes.set_ylim(0.95, 1.02 * highest)
        axes.legend(loc="upper right", bbox_to_anchor=(1.02, 1.22), ncols=2, frameon=False, handletextpad=0.1)
    return figure


def all_ratios(ratios, title):
    """Every Ratio, sorted, with its interval; dark where the interval leaves 1 out."""
    ratios = sorted(ratios, key=lambda ratio: ratio.middle)
    with house_style():
        figure = new_figure(PAGE, 3.9, title)
        axes = panel(figure, (0.085, 0.12, 0.89, 0.76), "", "points of the sweep, sorted", "times as fast")
        plain_x(axes)
        for place, ratio in enumerate(ratios):
            color = MUTED if ratio.low <= 1 <= ratio.high else OURS_DARK if ratio.middle > 1 else WARM
            axes.plot([place, place], [ratio.low, ratio.high], color=color, linewidth=1.4)
            axes.plot([place], [ratio.middle], "o", color=color, markersize=3.5)
        axes.axhline(1, color=INK, linewidth=1, linestyle=(0, (1, 1.5)))
        mean = geometric_mean([ratio.middle for ratio in ratios])
        axes.annotate(f"geometric mean {mean:.3f}", (len(ratios), 1), (0, -12), textcoords="offset points", ha="right")
        words = {OURS_DARK: "ours is faster", MUTED: "the interval holds 1", WARM: "the other is faster"}
        for i, (color, word) in enumerate(words.items()):
            axes.annotate(word, (0.015, 0.9 - 0.07 * i), xycoords="axes fraction", color=color)
        axes.set_xticks([])
        plain_ticks(axes.yaxis)
        axes.yaxis.set_major_locator(FixedLocator([0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.4]))
    return figure


def launches(points, kernels, title):
    """Time on the GPU (lines) and time on the CPU to launch it (dashed) against N; points: {N: {kernel: Row}}."""
    with house_style():
        figure = new_figure(PAGE, 4.2, title)
        axes = panel(figure, (0.1, 0.125, 0.66, 0.76), "", "N, tokens", "ms of one call")
        ends = []
        for kernel, color in zip(kernels, (OURS_DARK, WARM), strict=True):
            for what, dashes in (("median_ms", "-"), ("host_ms", (0, (4, 2)))):
                name = LOOKS[kernel].name + (", on the GPU" if what == "median_ms" else ", to launch it")
                look = Look(name, color, "o" if what == "median_ms" else "", dashes, 1.8, 3)
                ys = [getattr(cells[kernel], what) for cells in points.values()]
                line(axes, kernel, list(points), ys, look=look)
                ends.append((list(points)[-1], ys[-1], name, look))
        token_ticks(axes, list(points))
        plain_ticks(axes.yaxis)
        name_ends(axes, ends)
    return figure
