"""Pictures of notebook 06: a cache of a few tiles, visit by visit."""

from collections import OrderedDict

from matplotlib.patches import Patch, Rectangle

from notebooks.pictures.png import PAGE, png
from notebooks.pictures.program_order import FOUND, LOADED
from report.counting.cache_model import visits
from report.pages.drawing import SOFT, house_style, new_figure

PALE, HELD = "#b9c7da", "#f1f3f6"


def steps(places, machine, title):
    """Every visit on one small die, a column each: who asks for which tile, hit or miss, and what is held after it."""
    cache, columns = OrderedDict(), []
    for slot, _, head, tile, start, cost, hit in visits(places, 1, machine, 0, cache):
        columns.append((slot, head, tile, start, cost, hit, list(cache)))
    rows = machine.slots + machine.capacity
    with house_style():
        figure = new_figure(PAGE, 1.2 + 0.3 * rows, title)
        height = figure.get_size_inches()[1]
        axes = figure.add_axes((0.125, 0.5 / height, 0.865, 0.3 * (rows + 0.7) / height))
        axes.set(xlim=(0, len(columns)), ylim=(rows + 0.5, -0.2))
        for x, (slot, head, tile, start, _, hit, held) in enumerate(columns):
            cell(axes, x, slot, f"{'AB'[head]}{tile}", FOUND if hit else LOADED, bold=True)
            for depth, (of, number) in enumerate(reversed(held)):
                fresh = (of, number) == (head, tile)
                cell(axes, x, machine.slots + 0.5 + depth, f"{'AB'[of]}{number}", PALE if fresh else HELD)
            axes.text(x + 0.5, rows + 0.62, f"{start:g}", ha="center", va="top", size=8, color=SOFT)
        names = [f"slot {slot}" for slot in range(machine.slots)] + [""] * machine.capacity
        names[machine.slots], names[-1] = "in the cache", "dropped next"
        for row, name in enumerate(names):
            y = row + 0.5 + (row >= machine.slots) * 0.5
            axes.text(-0.15, y, name, ha="right", va="center", size=8.5)
        axes.text(-0.15, rows + 0.62, "begins at", ha="right", va="top", size=8, color=SOFT)
        axes.axis("off")
        hits, end = sum(column[5] for column in columns), max(column[3] + column[4] for column in columns)
        legend(figure, [(FOUND, "found in the cache"), (LOADED, "loaded from memory"), (PALE, "asked for just now")])
        figure.text(0.99, 1 - 0.12 / height, f"{hits} of {len(columns)} found, done at {end:g}", ha="right", va="top")
    return png(figure, f"{len(columns)} visits of two heads A and B: {hits} found in the cache, done at {end:g}")


def cell(axes, x, y, words, colour, bold=False):
    axes.add_patch(Rectangle((x + 0.04, y + 0.06), 0.92, 0.88, facecolor=colour))
    axes.text(x + 0.5, y + 0.5, words, ha="center", va="center", size=8.5, weight="bold" if bold else "normal")


def legend(figure, entries):
    handles = [Patch(facecolor=colour, label=words) for colour, words in entries]
    figure.legend(handles=handles, loc="lower left", bbox_to_anchor=(0.11, 0), ncols=4, frameon=False,
                  fontsize=8.5, handlelength=1.2)  # fmt: skip
