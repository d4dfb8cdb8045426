"""Pictures of notebook 06: orders measured on a GPU with one L2, and what the model says of the same launches."""

from dataclasses import replace
from functools import cache

from matplotlib.lines import Line2D

from grader.gpu.gpus import GPUS
from notebooks.pictures.png import PAGE, png
from notebooks.pictures.program_order import FOUND, LOADED, MUTED, WARM, open_frame
from report.counting.cache_model import Machine, simulate
from report.counting.orders import head_first, identity, listed, longest_first, published
from report.pages import orders_model as orders
from report.pages.drawing import INK, OURS_DARK, OURS_LIGHT, house_style, new_figure, plain_ticks
from report.pages.measured import load_study
from report.studies.orders import PLAIN, PUBLISHED, STUDY

# An H200 in the model: the 132 multiprocessors of an H100, a program on each (its tiles fill the shared memory), one
# L2 of 50 MiB in tiles of 64 KiB of K and V.
H200 = Machine(dies=1, slots=GPUS["sm_90"].processors, capacity=800)
H200_FREE = replace(H200, miss=1.0)  # a load is over before the arithmetic under which it runs
MANY = 1 << 16  # dies, for the lab's order: more than there are heads, so that all run side by side
MEASURED = {
    "plain": (identity, 1), "reversed": (longest_first, 1), "grouped heads": (head_first, 1),
    "x2 for 8 dies": (head_first, 8), "all heads": (head_first, MANY), "published": (published, 8),
}  # fmt: skip


def measured():
    """(rows, facts of the machine) of the committed measurement at D = 128; ORDERS.md has the published shape, too."""
    rows, machine = load_study(STUDY)
    return [row for row in rows if row.shape != PUBLISHED.label], machine


def at(rows, shape, n):
    """{order: row} at one shape and length."""
    return {row.kernel: row for row in rows if (row.shape, row.n) == (shape, n)}


def hits_and_times(cells, title):
    """Of each order what was found in L2, and its median time with p20 to p80; warm, the one with the fewest hits."""
    fewest = min(cells.values(), key=lambda row: row.read_hits)
    with house_style():
        figure = new_figure(PAGE, 0.9 + 0.34 * len(cells), title)
        high = figure.get_size_inches()[1]
        hits, time = (figure.add_axes((left, 0.32 / high, 0.37, 1 - 0.95 / high)) for left in (0.155, 0.59))
        for place, row in enumerate(cells.values()):
            light, dark = (LOADED, WARM) if row is fewest else (FOUND, OURS_DARK)
            hits.barh([place], [row.read_hits], color=light, height=0.66)
            hits.text(row.read_hits + 1, place, f"{row.read_hits:.0f}", va="center")
            time.plot([row.p20_us, row.p80_us], [place, place], color=dark, linewidth=3, solid_capstyle="butt")
            time.plot([row.median_us], [place], "o", color=dark, markersize=7)
            time.annotate(f"{row.median_us:,.0f}", (row.p80_us, place), (9, 0), textcoords="offset points", va="center")
        hits.set(xlim=(0, 108), title="found in L2, % of sectors read")
        time.set_title("time, us (line: p20 to p80; not from 0)")
        time.margins(x=0.15)
        for axes in (hits, time):
            axes.set_yticks(range(len(cells)), list(cells) if axes is hits else [])
            axes.set_ylim(len(cells) - 0.5, -0.5)
            open_frame(axes, "x")
            axes.spines["left"].set_visible(False)
            axes.tick_params(length=0)
            axes.yaxis.set_tick_params(labelcolor=INK)
    words = "; ".join(f"{name}: {row.read_hits:.0f} % found, {row.median_us:,.0f} us" for name, row in cells.items())
    return png(figure, words)


def predictions(rows, machine):
    """[(row, speed over the plain order in the model)] of all other orders that were measured."""
    found = []
    for row in rows:
        if row.over_plain is None or row.kernel == PLAIN:
            continue
        heads, kv_heads = heads_of(row.shape)
        size = row.n // orders.BLOCK, heads, heads // kv_heads
        plain, other = (time_of(name, *size, machine) for name in (PLAIN, row.kernel))
        found.append((row, plain / other))
    return found


def heads_of(shape):
    """(query heads, kv heads) of a shape such as `B=1 H=32/4 D=128`."""
    words = dict(word.split("=") for word in shape.split())
    heads, _, kv_heads = words["H"].partition("/")
    return int(words["B"]) * int(heads), int(words["B"]) * int(kv_heads or heads)


@cache
def time_of(name, tiles, heads, heads_per_kv, machine):
    order, dies = MEASURED[name]
    return simulate(listed(order, tiles, heads, dies, heads_per_kv), heads_per_kv, machine).makespan


def model_against_gpu(panels, title):
    """Speeds over the plain order: the model's across, the GPU's upwards; panels: {words: predictions}."""
    looks = {"reversed": ("v", MUTED), "grouped heads": ("s", OURS_LIGHT), "x2 for 8 dies": ("o", OURS_DARK),
             "all heads": ("D", WARM), "published": ("X", "#9a5b86")}  # fmt: skip
    with house_style():
        figure = new_figure(PAGE, 4.9, title)
        for place, (words, found) in enumerate(panels.items()):
            axes = figure.add_axes((0.085 + 0.475 * place, 0.235, 0.425, 0.62))
            axes.plot([0.9, 1.2], [0.9, 1.2], color=INK, linewidth=1, linestyle=(0, (1, 2)))
            for name, (marker, colour) in looks.items():
                points = [(speed, row) for row, speed in found if row.kernel == name]
                axes.vlines([x for x, _ in points], [row.over_plain_low for _, row in points],
                            [row.over_plain_high for _, row in points], color=colour, linewidth=1.2)  # fmt: skip
                axes.plot([x for x, _ in points], [row.over_plain for _, row in points], marker, color=colour,
                          markersize=6.5, markeredgecolor="white", markeredgewidth=0.6, label=name)  # fmt: skip
            axes.set(xlim=(0.9, 1.17), ylim=(0.9, 1.17), title=words, xlabel="the model's")
            axes.set_xticks([0.9, 1, 1.1])
            axes.set_yticks([0.9, 1, 1.1])
            open_frame(axes, "both")
            plain_ticks(axes.xaxis)
            if place == 0:
                axes.set_ylabel("measured")
            else:
                axes.set_yticklabels([])
        handles, names = axes.get_legend_handles_labels()
        handles.append(Line2D([], [], color=INK, linewidth=1, linestyle=(0, (1, 2))))
        figure.legend(handles, [*names, "as the model says"], loc="lower left", bbox_to_anchor=(0.07, 0),
                      ncols=3, frameon=False, fontsize=9)  # fmt: skip
    return png(figure, "Measured speeds against the model's: on the line where a miss costs nothing")
