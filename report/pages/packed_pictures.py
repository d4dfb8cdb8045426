"""Pictures of packed attention: speed over cuDNN by tokens and pattern, and speed by the part of blocks hidden."""

from matplotlib.ticker import FixedLocator

from report.pages.drawing import INK, OURS_DARK, OURS_LIGHT, SOFT, Look, finish, house_style, line, new_figure, panel
from report.studies import packed as names

BLOCK = 128  # of the first picture
LOOKS = {
    "dense": Look("dense", "#8b8378", "x", (0, (4, 2)), 1.3, 3),
    "diagonal": Look("diagonal", OURS_DARK, "o", "-", 1.8, 5),
    "local": Look("local", OURS_LIGHT, "s", "-", 1.8, 5),
    "strided": Look("strided", "#a08a6c", "P", (0, (6, 2, 1, 2)), 1.3, 3),
    "global": Look("global", OURS_DARK, "v", (0, (2, 2)), 1.3, 5),
    "local with global": Look("local with global", OURS_LIGHT, "^", (0, (2, 2)), 1.3, 5),
    "random 0.75": Look("random 0.75", "#bcbcbc", "+", (0, (1, 1.2)), 1.2, 2),
    "random 0.5": Look("random 0.5", "#a9a196", "<", (0, (1, 1.2)), 1.2, 3),
    "random 0.25": Look("random 0.25", "#6e665c", "D", (0, (1, 1.2)), 1.2, 3),
}


def largest(rows):
    """The rows of the largest batch, by (heads, head dim)."""
    batch, found = max(row.batch for row in rows), {}
    for row in rows:
        if row.batch == batch and row.over_cudnn is not None:
            found.setdefault((row.heads, row.head_dim), []).append(row)
    return batch, found


@house_style()
def speed(rows):
    """A panel for each shape of heads: how many times as fast as cuDNN, against the tokens of an image."""
    batch, shapes = largest(rows)
    figure = new_figure(10.5, 4.4, f"Times as fast as cuDNN's dense attention: blocks of {BLOCK}, {batch} images")
    for i, ((heads, head_dim), some) in enumerate(shapes.items()):
        box = (0.06 + 0.5 * i, 0.13, 0.32, 0.7)
        axes = panel(
            figure, box, f"{heads} heads of {head_dim}", "tokens of an image", "times as fast" if i == 0 else ""
        )
        ends = []
        for pattern, look in LOOKS.items():
            points = sorted(
                (row for row in some if row.kernel == names.arm(pattern, BLOCK)), key=lambda row: row.tokens
            )
            if not points:
                continue
            ys = [row.over_cudnn for row in points]
            line(axes, pattern, [row.tokens for row in points], ys, look=look)
            ends.append((points[-1].tokens, ys[-1], pattern, look))
        axes.axhline(1, color=SOFT, linewidth=1, linestyle=(0, (4, 2)))
        finish(axes, sorted({row.tokens for row in some}), ends, words=str)
        axes.yaxis.set_major_locator(FixedLocator([0.5, 0.75, 1, 1.5, 2, 3, 4]))
    return figure


@house_style()
def hidden(rows):
    """A dot for each row of the largest batch: the speed over all blocks visible, by the part of them that is left."""
    batch, shapes = largest(rows)
    figure = new_figure(
        10.5, 4.4, f"Times as fast as with every block visible, by the part of blocks that is: {batch} images"
    )
    for i, ((heads, head_dim), some) in enumerate(shapes.items()):
        axes = panel(
            figure, (0.06 + 0.5 * i, 0.13, 0.4, 0.7), f"{heads} heads of {head_dim}",
            "part of all blocks that is visible", "times as fast" if i == 0 else "",
        )  # fmt: skip
        tokens = sorted({row.tokens for row in some})
        for n, color in zip(tokens, ("#c9c3ba", "#a9a196", "#7fa8dd", OURS_LIGHT, OURS_DARK), strict=False):
            points = [
                row for row in some if row.tokens == n and row.over_all_ones is not None and row.block_sparsity < 1
            ]
            xs, ys = [1 - row.block_sparsity for row in points], [row.over_all_ones for row in points]
            axes.plot(xs, ys, "o", color=color, markersize=4, label=f"{n} tokens")
        least = min(1 - row.block_sparsity for row in some if row.block_sparsity < 1)
        axes.plot([least, 1], [1 / least, 1], color=INK, linewidth=1, linestyle=(0, (1, 2)))
        axes.annotate("work alone", (least, 1 / least), (-10, 0), textcoords="offset points", size=8.5, ha="right")
        axes.invert_xaxis()
        finish(axes, [1, 0.5, 0.25, 0.125, 0.0625], [])
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:.3g}")
        axes.yaxis.set_major_locator(FixedLocator([1, 2, 4, 8, 16]))
        axes.legend(frameon=False, fontsize=8.5, loc="upper left")
    return figure
