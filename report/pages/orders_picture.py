"""The picture of ORDERS.md: tiles of keys by die, and when each die is done, in three orders of programs."""

from report.counting.orders import head_first
from report.pages.drawing import OURS_DARK, SOFT, house_style, new_figure, on_grid, plain_ticks
from report.pages.orders_model import BLOCK, HEADS, NAMES, PANELS, SEEDS, TILES, runs


def picture():
    """Tiles of keys by die, a panel for each order, hits dark and misses light; below, when each die is done."""
    with house_style():
        title = f"Tiles of keys by die, in a model of MI300X: causal, B=1 H={HEADS} N={TILES * BLOCK}"
        figure = new_figure(10.5, 5.2, title)
        # Of the seeds, the one in the middle.
        found = {order: sorted(runs(order), key=lambda run: run.makespan)[len(SEEDS) // 2] for order in PANELS}
        highest = max(max(run.visits) for run in found.values()), max(run.makespan for run in found.values())
        for column, (order, run) in enumerate(found.items()):
            dark, light = (OURS_DARK, "#a9c8ef") if order is head_first else ("#6e665c", "#d3cdc4")
            left = 0.085 + 0.312 * column
            above = bars(figure, (left, 0.5, 0.265, 0.315), highest[0], column == 0, "tiles of keys")
            above.set_title(NAMES[order].partition(":")[0].partition(",")[0] + f": {100 * run.hit_rate:.0f} % hits")
            above.bar(range(8), run.hits, 0.72, color=dark)
            misses = [visits - hits for visits, hits in zip(run.visits, run.hits, strict=True)]
            above.bar(range(8), misses, 0.72, run.hits, color=light)
            above.axhline(sum(run.visits) / 8, color=SOFT, linewidth=1, linestyle=(0, (4, 2)))
            below = bars(figure, (left, 0.105, 0.265, 0.27), highest[1], column == 0, "done at, steps")
            below.set_title(f"last program ends at {run.makespan:.0f}")
            below.set_xlabel("die")
            below.bar(range(8), run.end, 0.72, color=dark)
            below.axhline(run.makespan, color=SOFT, linewidth=1, linestyle=(0, (1, 1)))
        words = (
            "Above: dark found in the die's cache, light loaded from memory; dashed, a die's fair share. "
            "Below: dotted, the whole kernel's end."
        )
        figure.text(0.012, 1 - 0.36 / 5.2, words, size=9, color=SOFT, va="top")
    return figure


def bars(figure, box, highest, is_first, label):
    """Axes for one bar a die, with the same scale in each column."""
    axes = figure.add_axes(box)
    axes.set_ylim(0, 1.08 * highest)
    axes.set_xticks(range(8))
    on_grid(axes, "y")
    axes.tick_params(length=3)
    plain_ticks(axes.yaxis)
    if is_first:
        axes.set_ylabel(label)
    else:
        axes.set_yticklabels([])
    return axes
