"""What notebook 02 draws: the running values tile by tile, pivots, orders, forgotten rescales, halves."""

import torch
from matplotlib.ticker import FixedLocator

from notebooks.pictures.png import PAGE, png
from report.pages.drawing import GRID, INK, OURS_DARK, OURS_LIGHT, SOFT, house_style, new_figure

WRONG, PALE = "#b3261e", "#c9d8ee"
SHOWN = 4  # numbers of the output that are drawn


def bare(axes, title="", grid=""):
    """Axes without a frame; grid: the direction of its lines."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(length=3)
    axes.set_axisbelow(True)
    if title:
        axes.set_title(title)
    if grid:
        axes.grid(True, axis=grid, color=GRID, linewidth=0.7)
    return axes


def steps(scores, values):
    """The running maximum, sum and output after each tile, by their definitions: no recurrence is used here.

    scores: (tiles, keys of a tile). values: (tiles * keys, D).
    """
    tiles, block = scores.shape
    answer = torch.softmax(scores.flatten(), 0) @ values
    with house_style():
        figure = new_figure(PAGE, 5.2, "One query meets 16 keys, four at a time")
        grid = figure.subplots(3, tiles, sharey="row")
        figure.subplots_adjust(left=0.115, right=0.985, top=0.865, bottom=0.055, hspace=0.32, wspace=0.1)
        for t in range(tiles):
            met = scores[: t + 1].flatten()
            old_max = scores[:t].max() if t else met.max()
            weights = torch.exp(met - met.max())
            draw_scores(bare(grid[0, t]), scores, t)
            draw_weights(bare(grid[1, t]), weights, torch.exp(met[: t * block] - old_max), tiles * block, block)
            draw_output(bare(grid[2, t]), weights @ values[: len(met)] / weights.sum(), answer)
            grid[0, t].set_title(f"after tile {t + 1}", pad=8)
        for row, name in enumerate(("scores, and the\nrunning maximum", "weights\nexp(score − max)", "output so far")):
            grid[row, 0].set_ylabel(name)
    return png(figure, "Four columns, one a tile: scores with the running maximum, weights that shrink when it rises, "
               "and an output that ends at the right answer")  # fmt: skip


def draw_scores(axes, scores, t):
    tiles, block = scores.shape
    keys = range(tiles * block)
    colors = [OURS_DARK if key // block == t else OURS_LIGHT if key // block < t else "#e3e6ea" for key in keys]
    axes.vlines(keys, 0, scores.flatten(), colors=colors, linewidth=1.2)
    axes.scatter(keys, scores.flatten(), c=colors, s=15, zorder=3)
    top = scores[: t + 1].max().item()
    axes.axhline(top, color=WRONG, linewidth=1.2, linestyle=(0, (4, 2)))
    axes.text(-0.5, top + 0.15, f"max {top:.2f}", color=WRONG, size=8, va="bottom")
    axes.set_ylim(scores.min() - 0.4, scores.max() + 1.1)
    axes.set_xticks([])


def draw_weights(axes, weights, before, keys, block):
    """Bars of all keys met, and outlines of how high the earlier ones stood a tile ago."""
    place = torch.arange(len(weights))
    axes.bar(place, weights, width=0.75, color=[OURS_DARK if i >= len(before) else OURS_LIGHT for i in place])
    if len(before) and before.max() > weights[: len(before)].max() + 1e-6:
        axes.bar(place[: len(before)], before, width=0.75, fill=False, edgecolor=WRONG, linewidth=0.8, linestyle=":")
        factor = (weights[0] / before[0]).item()
        axes.text(0, 1.14, f"earlier ones × {factor:.2f}", color=WRONG, size=8, ha="left")
    elif len(before):
        axes.text(0, 1.14, "earlier ones × 1", color=SOFT, size=8, ha="left")
    axes.text(keys - 0.5, 1.36, f"sum {weights.sum():.2f}", color=INK, size=8.5, ha="right", weight="bold")
    axes.set_xlim(-0.9, keys)
    axes.set_ylim(0, 1.55)
    axes.set_yticks([0, 0.5, 1])
    axes.set_xticks([(i + 0.5) * block - 0.5 for i in range(keys // block)],
                    [f"tile {i + 1}" for i in range(keys // block)], size=7.5)  # fmt: skip
    axes.tick_params(axis="x", length=0)


def draw_output(axes, output, answer):
    place = range(SHOWN)
    axes.axhline(0, color=SOFT, linewidth=0.7)
    axes.bar(place, output[:SHOWN], width=0.6, color=OURS_DARK)
    axes.bar(place, answer[:SHOWN], width=0.84, fill=False, edgecolor=WRONG, linewidth=1.0)
    axes.set_ylim(-1.4, 1.4)
    axes.set_xticks(place, [f"o[{i}]" for i in place], size=7.5)


def pivots(scores, pivots):
    """The error of a float32 softmax against what was subtracted, (P,), from all scores before exp."""
    right = torch.softmax(scores.double(), 0)
    p = torch.exp(scores[None] - pivots[:, None].float())
    error = ((p / p.sum(1, keepdim=True)).double() - right).abs().amax(1)
    broken = ~error.isfinite()
    with house_style():
        figure = new_figure(PAGE, 2.9, "Subtract any number: the same softmax, as long as float32 holds it")
        axes = bare(figure.add_axes((0.09, 0.19, 0.89, 0.64)), grid="y")
        axes.set_yscale("log")
        axes.set_ylim(1e-9, 3)
        axes.plot(pivots[~broken], error[~broken].clamp(min=1e-9), color=OURS_DARK, linewidth=1.8)
        for part, words in (
            (pivots < scores.max(), "exp overflows:\ninf / inf"),
            (pivots > scores.max(), "all exp are 0:\n0 / 0"),
        ):
            gone = pivots[broken & part]
            axes.axvspan(gone.min(), gone.max(), color=WRONG, alpha=0.12, linewidth=0)
            axes.text((gone.min() + gone.max()) / 2, 1e-4, words, color=WRONG, ha="center", va="center", size=9)
        axes.axvline(scores.max(), color=INK, linewidth=1.1, linestyle=(0, (4, 2)))
        axes.text(scores.max() + 2, 0.2, "the maximum", color=INK, size=9)
        axes.set_xlim(pivots.min(), pivots.max())
        axes.set_xlabel("number subtracted from every score")
        axes.set_ylabel("largest error")
    return png(figure, "The error is tiny over a wide range of pivots; far below the maximum exp overflows, far above "
               "it every exp is zero")  # fmt: skip


def orders(paths, answer):
    """Paths (orders, tiles) of one number of the output, after each tile, towards the answer."""
    with house_style():
        figure = new_figure(PAGE, 3.0, f"{len(paths)} orders of the tiles, one answer")
        axes = bare(figure.add_axes((0.09, 0.16, 0.75, 0.68)), grid="y")
        axes.plot(
            range(1, paths.shape[1] + 1), paths.T, color=OURS_LIGHT, alpha=0.45, linewidth=1.1, marker="o", markersize=3
        )
        axes.plot(range(1, paths.shape[1] + 1), paths[0], color=OURS_DARK, linewidth=2.2, marker="o", markersize=4.5)
        axes.axhline(answer, color=WRONG, linewidth=1.0, linestyle=(0, (4, 2)))
        axes.annotate(
            "the answer", (1.01, answer.item()), xycoords=("axes fraction", "data"), color=WRONG, va="center", size=9
        )
        axes.xaxis.set_major_locator(FixedLocator(range(1, paths.shape[1] + 1)))
        axes.set_xlabel("tiles met so far")
        axes.set_ylabel("o[0] so far")
    return png(figure, "Lines of the output so far, one for each order of the tiles; all end at the same point")


def forgotten(right, wrong, tile_of_max):
    """Errors of rows against the tile in which the row's maximum stood.

    right: (rows, D). wrong: {name: (rows, D)}. tile_of_max: (rows,).
    """
    tiles = int(tile_of_max.max()) + 1
    spread = torch.linspace(-0.3, 0.3, len(right))
    with house_style():
        figure = new_figure(PAGE, 3.2, "A forgotten rescale: each row's error, by the tile of its maximum")
        panels = figure.subplots(1, len(wrong), sharey=True)
        figure.subplots_adjust(left=0.085, right=0.985, top=0.79, bottom=0.09, wspace=0.08)
        for axes, (name, o) in zip(panels, wrong.items(), strict=True):
            error = (o - right).abs().amax(1)
            bare(axes, name, "y")
            good = tile_of_max == 0
            for rows, color in ((good, OURS_DARK), (~good, WRONG)):
                axes.scatter(
                    tile_of_max[rows] + 1 + spread[rows], error[rows], s=11, color=color, alpha=0.75, linewidth=0
                )
            axes.set_xticks(range(1, tiles + 1), [f"tile {t}" for t in range(1, tiles + 1)])
            axes.set_yscale("symlog", linthresh=0.01)
            axes.set_ylim(-0.003, error_top(right, wrong))
        panels[0].set_ylabel("largest error of the row")
        panels[0].set_yticks([0, 0.01, 0.1, 1, 10], ["0", "0.01", "0.1", "1", "10"])
    return png(figure, "Three panels: rows whose maximum is in the first tile have no error, all others do")


def error_top(right, wrong):
    return 1.6 * max((o - right).abs().max().item() for o in wrong.values())


def halves(share, half):
    """How much of each query's softmax each half of the keys holds: share (rows,) of the first half."""
    with house_style():
        figure = new_figure(PAGE, 2.5, "What each half is worth: exp(lse of the half − lse of both)")
        axes = bare(figure.add_axes((0.07, 0.2, 0.78, 0.6)))
        rows = range(len(share))
        axes.bar(rows, share, width=0.85, color=OURS_DARK)
        axes.bar(rows, 1 - share, bottom=share, width=0.85, color=PALE)
        for at, words, color in (
            (0.25, f"keys 0 to {half - 1}", OURS_DARK),
            (0.75, f"keys {half} to {2 * half - 1}", OURS_LIGHT),
        ):
            axes.text(1.01, at, words, transform=axes.transAxes, color=color, size=9, va="center")
        axes.set_xlim(-0.7, len(share) - 0.3)
        axes.set_ylim(0, 1)
        axes.set_xlabel("query")
        axes.set_ylabel("share of its softmax")
    return png(figure, "A bar for each query, split into the shares of the first and the second half of the keys")
