"""What notebook 03 draws before anything runs: bands of programs, addresses of layouts, grids."""

import numpy as np
from matplotlib.patches import Patch, Rectangle

from notebooks.pictures.png import PAGE, png
from report.pages.drawing import SOFT, house_style, new_figure

WRONG, BLANK, NOBODY = "#b3261e", "#f6f8fa", "#e3e6ea"
PALE = ("#a9cfec", "#fbd08f", "#a5dfce", "#efc3dc", "#d5cdec", "#e6c3b3")  # one for each program, and again
DARK = ("#1f6fb2", "#b9721c", "#23806a", "#a8447e", "#6650a4", "#8f5238")


def axes_at(figure, left, top, width, height):
    """Axes placed in inches from the figure's upper left corner, without frame and ticks."""
    wide, high = figure.get_size_inches()
    axes = figure.add_axes((left / wide, 1 - (top + height) / high, width / wide, height / high))
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    return axes


def cell(axes, x, y, colour, text="", wide=1, high=1, **more):
    axes.add_patch(
        Rectangle((x, y), wide, high, **({"facecolor": colour, "edgecolor": "white", "linewidth": 0.7} | more))
    )
    if text != "":
        axes.text(x + wide / 2, y + high / 2, text, ha="center", va="center", size=7.5)


def legend(figure, handles, left=0.035):
    figure.legend(handles=handles, loc="lower left", bbox_to_anchor=(left, 0), ncols=2, frameon=False, fontsize=8.5)


# Programs and tiles --------------------------------------------------------------------------------------------------


def walk(rows, columns, block_r, block_c):
    """[[(first row, end, first column, end), ...], ...]: each program's tiles, cut at the matrix' ends."""
    return [
        [(r, min(r + block_r, rows), c, min(c + block_c, columns)) for c in range(0, columns, block_c)]
        for r in range(0, rows, block_r)
    ]


def bands(rows, columns, block_r, block_c):
    """A matrix in bands, one a program; the weights above, the sums at the right, dead lanes hatched."""
    side, programs = 0.155, walk(rows, columns, block_r, block_c)
    wide, high = len(programs[0]) * block_c, len(programs) * block_r
    with house_style():
        figure = new_figure(PAGE, 4.6, f"{len(programs)} programs share a matrix of {rows} x {columns}")
        axes = axes_at(figure, 1.05, 0.42, (wide + 8) * side, (high + 4.5) * side)
        axes.set(xlim=(0, wide + 8), ylim=(high + 2, -2.5))
        axes.text(-0.4, -1.5, "w, the weights", ha="right", va="center", size=8.5, color=SOFT)
        for c in range(columns):
            cell(axes, c, -2, "#dfe3e8")
        dead = {"facecolor": "white", "edgecolor": "#b9c0c8", "linewidth": 0, "hatch": "////"}
        cell(axes, columns, 0, "", wide=wide - columns, high=high, **dead)
        cell(axes, 0, rows, "", wide=columns, high=high - rows, **dead)
        for program, tiles in enumerate(programs):
            draw_band(axes, program, tiles, block_r, block_c, wide)
        axes.text(columns / 2, high + 0.9, "x: the program walks from tile to tile", ha="center", va="center", size=8.5,
                  color=SOFT)  # fmt: skip
        axes.text(wide + 4, -1.5, "the sums", ha="center", va="center", size=8.5, color=SOFT)
        words = "lanes past the end: switched off by a mask"
        legend(figure, [Patch(hatch="////", label=words, facecolor="white", edgecolor="#b9c0c8")], 0.115)
    return png(figure, "A matrix cut into bands of rows, a program each; each band is cut into numbered tiles; "
               "the lanes past the ends of the matrix are hatched")  # fmt: skip


def draw_band(axes, program, tiles, block_r, block_c, wide):
    pale, dark = PALE[program % 6], DARK[program % 6]
    top = tiles[0][0]
    axes.text(
        -0.4, top + block_r / 2, f"program {program}", ha="right", va="center", size=8.5, color=dark, weight="bold"
    )
    for t, (r, r_end, c, c_end) in enumerate(tiles):
        for row in range(r, r_end):
            for column in range(c, c_end):
                cell(axes, column, row, pale)
        cell(axes, c, r, "none", wide=block_c, high=block_r, edgecolor=dark, linewidth=1.3)
        axes.text((c + c_end) / 2, (r + r_end) / 2, t + 1, ha="center", va="center", size=11, color=dark, weight="bold")
    axes.annotate("", (wide + 3.2, top + block_r / 2), (wide + 0.4, top + block_r / 2),
                  arrowprops={"arrowstyle": "-|>", "color": dark})  # fmt: skip
    for row in range(tiles[0][0], tiles[0][1]):
        cell(axes, wide + 3.5, row, pale)


# Addresses -----------------------------------------------------------------------------------------------------------


def addresses(start, strides, shape):
    """(rows, columns): the place in memory, counted in elements, of each element of a view."""
    r, c = np.indices(shape)
    return start + r * strides[0] + c * strides[1]


def layouts(views, names):
    """Each view with the address in each of its cells, and below it the memory, coloured by the view's rows."""
    side = 0.31
    with house_style():
        figure = new_figure(PAGE, 3.6, "Three views of the same 24 numbers")
        for place, (view, name) in enumerate(zip(views, names, strict=True)):
            left, memory = 0.3 + place * 2.4, view.untyped_storage().nbytes() // view.element_size()
            at = addresses(view.storage_offset(), view.stride(), view.shape)
            rows, columns = at.shape
            axes = axes_at(figure, left, 0.85, columns * side, rows * side)
            axes.set(xlim=(0, columns), ylim=(rows, 0))
            axes.text(0, -0.75, name, size=10, weight="bold", va="bottom", family="monospace")
            axes.text(
                0, -0.2, f"strides {view.stride()}, start {view.storage_offset()}", size=8.5, color=SOFT, va="bottom"
            )
            for (r, c), address in np.ndenumerate(at):
                cell(axes, c, r, PALE[r % 6], address)
            strip(figure, at, memory, left, 2.98, 2.05)
        words = "below: memory, address 0 to 23, in the colour of the row that each belongs to"
        figure.text(0.3 / PAGE, 0.12 / 3.6, words, size=8.5, color=SOFT)
    return png(figure, "Three matrices with the address of each element, and memory as a strip: rows lie together, "
               "interleaved, or with gaps")  # fmt: skip


def strip(figure, at, memory, left, top, width):
    """Memory as one line of cells."""
    axes = axes_at(figure, left, top, width, 0.22)
    axes.set(xlim=(0, memory), ylim=(1, 0))
    owner = {address: r for (r, _), address in np.ndenumerate(at)}
    for address in range(memory):
        row = owner.get(address)
        cell(axes, address, 0, NOBODY if row is None else PALE[row % 6])


# Grids and time ------------------------------------------------------------------------------------------------------


def grids(programs, tiles, heads, batches):
    """The line of programs of a row sum, and P3's block of (query tiles, heads, batches)."""
    with house_style():
        title = f"Two grids: ({programs},) for the row sum, ({tiles}, {heads}, {batches}) for attention"
        figure = new_figure(PAGE, 2.55, title)
        axes = axes_at(figure, 0.9, 0.8, 0.95, 0.25 * programs)
        axes.set(xlim=(0, 1), ylim=(programs, 0))
        axes.set_title("program_id(0)", size=8.5, family="monospace", weight="normal")
        for program in range(programs):
            cell(axes, 0, program, PALE[program % 6], f"program {program}")
        for batch in range(batches):
            left = 2.4 + batch * 2.5
            axes = axes_at(figure, left, 0.8, 0.56 * heads, 0.25 * tiles)
            axes.set(xlim=(0, heads), ylim=(tiles, 0))
            axes.set_title(f"program_id(2) = {batch}", size=8.5, family="monospace", weight="normal", loc="left")
            for tile in range(tiles):
                for head in range(heads):
                    cell(axes, head, tile, PALE[tile % 6], f"{tile}, {head}, {batch}")
            axes.set_xlabel("program_id(1): head", size=8, color=SOFT)
            if batch == 0:
                axes.set_ylabel("program_id(0):\ntile of queries", size=8, color=SOFT)
    return png(figure, "A column of programs, and two blocks of programs numbered by tile of queries, head and batch")
