"""What notebook 08 draws: rows and columns of p and ds, products, phases by columns of tiles, errors against a step."""

import inspect

import torch
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Rectangle

from notebooks.pictures import key_phases
from notebooks.pictures.png import PAGE, png
from report.pages import tile_figures
from report.pages import training as committed
from report.pages.drawing import GRID, INK, OURS_DARK, OURS_LIGHT, SOFT, house_style, new_figure
from report.pages.tile_figures import BLUE, GREEN, ORANGE, PINK, key, square
from report.pages.training_picture import picture
from report.places import PUBLISHED

OF_QUERY, OF_KEY = OURS_DARK, "#c2571a"  # a query's row, a key's column
HIDDEN, EDGE = "#eceff2", "#d9dee4"
SHADES = LinearSegmentedColormap.from_list("signed", ["#f3b27a", "#ffffff", "#9cc8ec"])
PHASES = {
    "D": ("the diagonal, masked", PINK), "F": ("seen by all, no mask", BLUE),
    "E": ("the window's edge, masked", ORANGE),
    "S": ("only sinks are seen, masked", GREEN), "r": ("the ragged tail, masked", "#dcd3f0"),
}  # fmt: skip
COLUMNS, PANELS = 2, 5.6  # panels in a row, and inches: on a phone the letters of tiles stay legible


# Small matrices ------------------------------------------------------------------------------------------------------


def grid(axes, matrix, visible=None, numbers=False):
    """A matrix as coloured squares, scaled by its largest number; pairs that a mask hides are grey."""
    matrix = matrix.detach()
    most = matrix.abs().max().item()
    rows, columns = matrix.shape
    for i in range(rows):
        for j in range(columns):
            value = matrix[i, j].item()
            shown = visible is None or visible[i, j]
            colour = SHADES(0.5 + value / most / 2) if shown else HIDDEN
            axes.add_patch(Rectangle((j, i), 1, 1, facecolor=colour, edgecolor=EDGE, linewidth=0.8))
            if numbers and shown:
                axes.text(j + 0.5, i + 0.5, signed(value), ha="center", va="center", size=8)
    axes.set(xlim=(-0.06, columns + 0.06), ylim=(rows + 0.06, -0.06))
    axes.axis("off")
    return axes


def signed(value):
    """Two digits, and a minus sign as wide as a digit; never one before 0."""
    return f"{round(value, 2) + 0.0:.2f}".replace("-", "−")


def frame(axes, shape, row=None, column=None):
    """A row or a column framed, or where both are given the cell in which they meet."""
    box = {
        (True, False): (0, row, shape[1], 1, OF_QUERY),
        (False, True): (column, 0, 1, shape[0], OF_KEY),
        (True, True): (column, row, 1, 1, INK),
    }
    x, y, wide, high, colour = box[row is not None, column is not None]
    axes.add_patch(
        Rectangle((x, y), wide, high, facecolor="none", edgecolor=colour, linewidth=2.2, zorder=4, clip_on=False)
    )


def marked(p, ds, query, key):
    """p and ds in numbers, with the row of one query and the column of one key, and what is made of each."""
    n, cell = len(p), 0.385
    with house_style():
        figure = new_figure(PAGE, 3.6, f"{n} queries, {n} keys, a causal mask: what is made of a row, and of a column")
        height = figure.get_size_inches()[1]
        texts = [
            ("p, the probabilities", f"with v:\no[{query}]", f"with do: dv[{key}]"),
            ("ds, the gradient of the scores", f"with k:\ndq[{query}]", f"with q: dk[{key}]"),
        ]
        for place, (matrix, (title, row, column)) in enumerate(zip((p, ds), texts, strict=True)):
            left = 0.62 + place * 3.62
            side = n * cell
            axes = figure.add_axes((left / PAGE, 0.5 / height, side / PAGE, side / height))
            grid(axes, matrix, p > 0, numbers=True)
            axes.set_title(title, pad=17)
            frame(axes, matrix.shape, column=key)
            frame(axes, matrix.shape, row=query)
            for i in range(n):
                axes.text(i + 0.5, -0.14, f"{i}", ha="center", va="bottom", size=8, color=SOFT)
                axes.text(-0.14, i + 0.5, f"{i}", ha="right", va="center", size=8, color=SOFT)
            axes.text(n + 0.2, query + 0.5, row, ha="left", va="center", color=OF_QUERY, weight="bold")
            axes.text(key + 0.5, n + 0.22, column, ha="center", va="top", color=OF_KEY, weight="bold")
            if place == 0:
                axes.text(-0.62, n / 2, "query", ha="right", va="center", rotation=90, size=8.5, color=SOFT)
            axes.text(-0.14, -0.14, "key", ha="right", va="bottom", size=8.5, color=SOFT)
    return png(figure, f"p and ds as tables. Row {query} of p makes o[{query}], of ds dq[{query}]; "
               f"column {key} of p makes dv[{key}], of ds dk[{key}]")  # fmt: skip


def products(them, visible, title):
    """Products of small matrices, two in a row: [(words, left, right, result), ...]; grey where a pair is hidden.

    left, right and result: (name, matrix, what is framed as put_frame's kind or None, (query, key)).
    """
    cell, gap, high = 0.165, 0.3, 1.58
    with house_style():
        rows = -(-len(them) // 2)
        figure = new_figure(PAGE, 0.42 + high * rows, title)
        height = figure.get_size_inches()[1]
        for place, (words, *parts) in enumerate(them):
            left = 0.12 + place % 2 * (PAGE / 2 + 0.08)
            top = height - 0.5 - place // 2 * high
            figure.text(left / PAGE, top / height, words, weight="bold", va="center", size=10)
            middle = top - 0.18 - 3 * cell
            for sign, (name, matrix, kind, at) in zip(("", "·", "="), parts, strict=True):
                if sign:
                    figure.text((left + gap / 2) / PAGE, middle / height, sign, ha="center", va="center", size=12)
                    left += gap
                wide, tall = matrix.shape[1] * cell, matrix.shape[0] * cell
                axes = figure.add_axes((left / PAGE, (middle - tall / 2) / height, wide / PAGE, tall / height))
                seen = (visible.T if name[-1] == "ᵀ" else visible) if matrix.shape == visible.shape else None
                grid(axes, matrix, seen)
                if kind:
                    put_frame(axes, matrix.shape, kind, at)
                axes.text(matrix.shape[1] / 2, matrix.shape[0] + 0.15, name, ha="center", va="top", size=9)
                left += wide
    return png(figure, "; ".join(words for words, *_ in them))


def put_frame(axes, shape, kind, at):
    """kind: "query" for a query's row, "key" for a key's row, "key's column", or "cell"; at: (query, key)."""
    row, column = at
    if kind == "cell":
        return frame(axes, shape, row, column)
    if kind == "key's column":
        return frame(axes, shape, column=column)
    line, colour = (row, OF_QUERY) if kind == "query" else (column, OF_KEY)
    axes.add_patch(Rectangle((0, line), shape[1], 1, facecolor="none", edgecolor=colour, linewidth=2.2, zorder=4))


def one_row(p, dp, delta, ds, query):
    """A query's p, dp with delta as a line, and ds, as bars over its keys."""
    keys = range(query + 1)
    p, dp, ds = (x[query, : query + 1].detach() for x in (p, dp, ds))
    with house_style():
        mean = f"dp; dashed: delta, {signed(delta.item())}"
        figure = new_figure(PAGE, 2.6, f"Query {query}: from dp to ds")
        panels = figure.subplots(1, 3)
        figure.subplots_adjust(left=0.055, right=0.985, top=0.74, bottom=0.15, wspace=0.24)
        for axes, title in zip(panels, ("p: adds up to 1", mean, "ds = p (dp − delta)"), strict=True):
            axes.set_title(title)
            axes.set_xticks(keys, [f"key {i}" for i in keys], size=8)
            axes.spines[["top", "right"]].set_visible(False)
            axes.tick_params(length=2, labelsize=8)
            axes.grid(True, axis="y", color=GRID, linewidth=0.7)
            axes.set_axisbelow(True)
            axes.axhline(0, color=SOFT, linewidth=0.8)
        panels[0].bar(keys, p, color=OURS_LIGHT, width=0.65)
        panels[1].bar(keys, dp, color=OURS_LIGHT, width=0.65)
        panels[1].axhline(delta, color=OF_KEY, linewidth=1.6, linestyle=(0, (4, 2)))
        panels[2].bar(keys, ds, color=[OURS_LIGHT if dp[i] > delta else "#e39a5f" for i in keys], width=0.65)
    return png(figure, "Bars of p, of dp with delta as a line, and of ds: above zero where dp is above delta")


# Tiles by columns ----------------------------------------------------------------------------------------------------


def key_maps(cases, blocks, title):
    """The phase of keys_kernel that visits each tile, a column for each program; blocks: (block_q, block_k) of each."""
    with house_style():
        rows = -(-len(cases) // COLUMNS)
        free = rows * COLUMNS > len(cases)
        figure = new_figure(PANELS, (3.45 if free else 3.85) + tile_figures.ROW * (rows - 1), title)
        drawn = set("DFE")
        for place, (case, (block_q, block_k)) in enumerate(zip(cases, blocks, strict=True)):
            axes = square(figure, place, COLUMNS, case, case.name)
            of_columns = key_phases.columns(case, block_q, block_k)
            colours = {letter: colour for letter, (_, colour) in PHASES.items()}
            bands = [(q, [(k, letter)]) for k, tiles in of_columns for q, letter in tiles]
            tile_figures.put(axes, case, bands, block_q, block_k, colours)
            axes.vlines(range(block_k, case.N, block_k), 0, case.N, color="white", linewidth=2.4, zorder=2.5)
            drawn |= {letter for _, tiles in of_columns for _, letter in tiles}
            axes.text(0.97, 0.96, f"{len(bands)} tiles", transform=axes.transAxes, ha="right", va="top", size=8.5,
                      color=SOFT, zorder=5)  # fmt: skip
        entries = [(colour, f"{letter}: {words}") for letter, (words, colour) in PHASES.items() if letter in drawn]
        if free:
            key(figure, entries, left=0.55 + (PANELS - 0.45) / COLUMNS, bottom=1.1, columns=1)
        else:
            key(figure, entries)
    return png(figure, f"The phase of each tile, by columns: {', '.join(case.name for case in cases)}")


def lengths_of(case, block):
    """(tiles of each program that owns queries, tiles of each that owns keys), for square tiles."""
    rows = [len(tiles) for _, tiles in tile_figures.phase_tiles(case, block, block)]
    return rows, [len(tiles) for _, tiles in key_phases.columns(case, block, block)]


def program_lengths(cases, block):
    """Tiles of each program: those that own queries and those that own keys, side by side, for each case."""
    with house_style():
        figure = new_figure(PAGE, 2.7, f"How many tiles each program visits (tiles of {block} x {block})")
        panels = figure.subplots(1, len(cases), sharey=True)
        figure.subplots_adjust(left=0.065, right=0.985, top=0.76, bottom=0.25, wspace=0.08)
        for axes, case in zip(panels, cases, strict=True):
            looks = ((OURS_DARK, "owns queries (dq)"), (OF_KEY, "owns keys (dk, dv)"))
            for side, (counts, (colour, words)) in enumerate(zip(lengths_of(case, block), looks, strict=True)):
                places = [i - 0.2 + 0.4 * side for i in range(len(counts))]
                axes.bar(places, counts, width=0.38, color=colour, label=words)
            axes.set_title(case.name)
            axes.set_xticks(range(len(counts)))
            axes.set_xlabel("program")
            axes.spines[["top", "right"]].set_visible(False)
            axes.tick_params(length=2, labelsize=8)
            axes.grid(True, axis="y", color=GRID, linewidth=0.7)
            axes.set_axisbelow(True)
        panels[0].set_ylabel("tiles")
        handles, names = panels[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="lower left", bbox_to_anchor=(0.05, -0.02), ncols=2, frameon=False)
    return png(figure, "Tiles of each program: falling for keys where they rise for queries; sinks make long columns")


# The check, and the cost ---------------------------------------------------------------------------------------------


def errors(steps, them, title):
    """The error of a difference quotient against its step: them, {name: errors}."""
    with house_style():
        figure = new_figure(PAGE, 3.3, title)
        axes = figure.add_axes((0.095, 0.16, 0.885, 0.68))
        for (name, found), (colour, marker) in zip(them.items(), ((OURS_DARK, "o"), (OF_KEY, "s")), strict=False):
            axes.plot(steps, found, color=colour, marker=marker, markersize=4.5, linewidth=1.7)
            axes.annotate(name, (steps[7], found[7]), (6, 6), textcoords="offset points", color=colour, weight="bold")
        for x, where, words in ((0.02, "left", "rounding wins"), (0.98, "right", "curvature wins")):
            axes.text(x, 0.05, words, ha=where, transform=axes.transAxes, color=SOFT)
        axes.set(xscale="log", yscale="log", xlabel="step", ylabel="error, relative")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(True, color=GRID, linewidth=0.7)
        axes.set_axisbelow(True)
        axes.tick_params(length=3, which="both")
    return png(figure, "Errors fall with the step squared, and rise again where rounding divided by the step wins")


def dots(*functions):
    """How many products of tiles Triton functions have, counted in their text."""
    return sum(inspect.getsource(function.fn).count("tl.dot(") for function in functions)


def counted(rows, kernels, title):
    """Products of tiles as boxes in a line: [(words, [name, ...]), ...]; a name with a star is computed again.

    kernels: [(first box, last box, words), ...] below the last line.
    """
    with house_style():
        figure = new_figure(PAGE, 0.75 + 0.42 * len(rows), title)
        axes = figure.add_axes((0.27, 0.03, 0.71, 1 - 0.45 / figure.get_size_inches()[1] - 0.03))
        for y, (words, names) in enumerate(rows):
            axes.text(-0.12, y, words, ha="right", va="center", size=9)
            for x, name in enumerate(names):
                again = name.endswith("*")
                axes.add_patch(Rectangle((x + 0.03, y - 0.36), 0.94, 0.72, facecolor=ORANGE if again else BLUE,
                                         edgecolor="none"))  # fmt: skip
                axes.text(x + 0.5, y, name.rstrip("*"), ha="center", va="center", size=9)
        for first, last, words in kernels:
            y = len(rows) - 0.46
            axes.plot([first + 0.03, last - 0.03], [y, y], color=SOFT, linewidth=1.2)
            axes.text((first + last) / 2, y + 0.1, words, ha="center", va="top", size=9, color=SOFT)
        axes.set(xlim=(0, max(len(names) for _, names in rows)), ylim=(len(rows) + 0.1, -0.5))
        axes.axis("off")
    return png(figure, "; ".join(f"{words}: {', '.join(names)}" for words, names in rows))


def largest(found, right):
    """The largest difference over the largest number: an error that needs no unit."""
    return ((found.double() - right).abs().max() / right.abs().max()).item()


def directions(count, *shapes):
    """That many directions in the space of several tensors together, of random numbers about as large as 1."""
    return [[torch.randn(shape, dtype=torch.float64) for shape in shapes] for _ in range(count)]


def slopes(gradients, ways):
    """How fast the loss changes along each direction, if these are its gradients."""
    return [sum((g * e).sum().item() for g, e in zip(gradients, way, strict=True)) for way in ways]


def furthest(found, right):
    """The largest difference of two lists of numbers, over the largest number of the second."""
    return max(abs(a - b) for a, b in zip(found, right, strict=True)) / max(map(abs, right))


def training():
    """The committed training of a tiny transformer: losses of three attentions, and how far apart they are."""
    losses, _ = committed.load(PUBLISHED)
    with house_style():
        figure = picture(losses, committed.apart(losses), PAGE)
    return png(figure, "The losses of three trainings lie on one line; their differences are small beside them")
