"""Orders of programs in the model of a GPU with eight dies: `report/ORDERS.md` and `figures/orders.svg`.

    python -m report.orders            write both
    python -m report.orders --check    exit 1 where they are not what the model gives

No GPU is asked: the model is `grader/kinds/program_order/cache_model.py`, a few seconds, the same everywhere. The last
section is made of what `python -m report.orders_gpu` measured, and is not there without it.
"""

import sys
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

from grader.kinds.program_order.cache_model import MI300X, simulate
from grader.kinds.program_order.orders import head_first, identity, listed, longest_first, published
from report import orders_measured

HERE = Path(__file__).parent
PAGE, PICTURE = HERE / "ORDERS.md", HERE / "figures" / "orders.svg"
NAMES = {
    identity: "plain",
    longest_first: "reversed, longest rows first",
    published: "published: a block of tiles a die",
    head_first: "head first, longest rows first (x2)",
}
BLOCK = 128  # tokens of a tile
TILES, HEADS = 64, 32  # 8k tokens: the most that the published order is a bijection for
SEEDS = range(5)
PANELS = (identity, published, head_first)

TEXT = """# The order in which tiles run

Which tile a program works on decides which cache it finds its keys in, and when the last program ends. Made by
`python -m report.orders`; edit nothing here. **What is said of the GPU with eight dies is no measurement**: its
figures are those of a model, `grader/kinds/program_order/cache_model.py`, whose first lines say what it leaves out, of
a GPU like AMD's MI300X: {dies} dies, {slots} workgroups on each, an L2 cache of {capacity} tiles of K and V
({BLOCK} keys, D = 128, float16: 4 MB), a step with a tile from memory {miss} times as long as one with a tile from the
cache, programs late by
up to {jitter} step. Program p runs on die p % {dies}. Medians of {seeds} seeds; in the first table the makespans of
the seeds differ by less than {spread:.1f} %.

## More hits, and still slower

Causal, B=1 H={HEADS} N={N}, {TILES} tiles a head. Speed is the plain order's time over this order's.

{main}

![Tiles of keys by die, and when each die is done](figures/orders.svg)

The published order, `die = (m // 8) % 8; m' = (m % 8) * (blocks // 8) + die`, gives each die a block of
neighbouring tiles. They share most of their keys and are of like length, so hits go up, from {plain_hits:.0f} % to
{piled_hits:.0f} %. But a causal row is the longer the later it is: die 7 gets the tiles 56 to 63 of every head,
{share:.2f} times its share of the work, and the other dies wait for it. The order runs at {piled_speed:.2f} of the
plain one's speed.

Head first gives each die whole heads: K and V of a head are read into one cache, every die has the same work, and
what a die starts last is short. It hits {ours_hits:.0f} % and runs at {ours_speed:.2f} times the plain order's speed.

The plain order is not balanced either: 8 divides the {TILES} tiles, so die 7 gets the tiles 7, 15, 23, ... of every
head, and never the shorter ones. Reversing each head's tiles gives that surplus to die 0.

An earlier project reports 50 % and 78 % of hits and 0.628 of the speed for the plain and the published order; its
sizes and constants are not known, and nothing here was tuned to meet them. The story is the same. The model's hits
are higher, most of all in the plain order; likely because in the model programs that start together stay together,
and a tile on its way counts as there. What moves the figures:

{sensitivity}

The published order stays slower in every line, also where a miss costs no more than a hit: the loss is one of
balance, and more hits alone do not mend it. The dearer a miss, the more of that loss its hits win back. With a
quarter of the cache the hits come nearest to the earlier project's.

## Other sizes

{sizes}

At 128 tiles (16k tokens) the published order computes 64 tiles of each head twice and leaves 64 out: it has no figures
there. 12 heads do not divide among 8 dies: 8 stay whole, and 4 are spread over all dies, two dies for each head.
"""


@cache
def runs(order, tiles=TILES, heads=HEADS, heads_per_kv=1, machine=MI300X):
    """The Run of an order for each seed."""
    places = listed(order, tiles, heads, machine.dies, heads_per_kv)
    return [simulate(places, heads_per_kv, machine, seed) for seed in SEEDS]


def median(values):
    return sorted(values)[len(values) // 2]


def figures(order, *sizes):
    """(hits in %, makespan, speed relative to the plain order, idle in %, work of the fullest die over the mean)."""
    of = runs(order, *sizes)
    makespan = median([run.makespan for run in of])
    speed = median([run.makespan for run in runs(identity, *sizes)]) / makespan
    visits = of[0].visits
    return (
        100 * median([run.hit_rate for run in of]),
        makespan,
        speed,
        100 * median([run.idle for run in of]),
        max(visits) * len(visits) / sum(visits),
    )


def main_table():
    lines = ["| order | hits, % | makespan, steps | speed | idle, % | fullest die |", "| --- " + "| ---: " * 5 + "|"]
    for order, name in NAMES.items():
        hits, makespan, speed, idle, fullest = figures(order)
        lines.append(f"| {name} | {hits:.1f} | {makespan:.0f} | {speed:.2f} | {idle:.0f} | {fullest:.2f} |")
    legend = "Idle: slots without work before the last program ends. Fullest die: its tiles of keys over the mean."
    return "\n".join([*lines, "", legend])


def sensitivity_table():
    machines = {
        "as above": MI300X,
        "a miss costs as much as a hit": replace(MI300X, miss=1.0),
        "a miss costs 3 hits": replace(MI300X, miss=3.0),
        "a cache of 32 tiles": replace(MI300X, capacity=32),
        "a cache of 16 tiles": replace(MI300X, capacity=16),
        "no jitter": replace(MI300X, jitter=0.0),
        "late by up to 16 steps": replace(MI300X, jitter=16.0),
    }
    return comparison("the model", {words: (TILES, HEADS, 1, machine) for words, machine in machines.items()})


def sizes_table():
    sizes = [(64, 8, 1), (64, 12, 1), (64, 64, 1), (64, 64, 8), (128, 16, 1), (128, 32, 1)]
    named = {
        f"H={heads}{f'/{heads // sharing}' if sharing > 1 else ''} N={tiles * BLOCK}": (tiles, heads, sharing)
        for tiles, heads, sharing in sizes
    }
    return comparison("B=1", named)


def comparison(first, cases):
    """A table of hits and speeds of three orders, a line for each case."""
    lines = [
        f"| {first} | hits, %: plain | published | head first | speed: published | head first |",
        "| --- " + "| ---: " * 5 + "|",
    ]
    for words, sizes in cases.items():
        plain, ours = figures(identity, *sizes), figures(head_first, *sizes)
        # Blank where it leaves tiles out.
        piled = figures(published, *sizes) if complete(published, *sizes[:2]) else None
        hits, speed = (f"{piled[0]:.1f}", f"{piled[2]:.2f}") if piled else ("", "")
        lines.append(f"| {words} | {plain[0]:.1f} | {hits} | {ours[0]:.1f} | {speed} | {ours[2]:.2f} |")
    return "\n".join(lines)


def complete(order, tiles, heads):
    return len(set(listed(order, tiles, heads))) == tiles * heads


def spread():
    """The largest difference between two seeds, in % of the median, of any makespan in the first table."""
    return max(
        100 * (max(times) - min(times)) / median(times)
        for times in ([run.makespan for run in runs(order)] for order in NAMES)
    )


def page():
    plain, piled, ours = map(figures, PANELS)
    return TEXT.format(
        dies=MI300X.dies, slots=MI300X.slots, capacity=MI300X.capacity, miss=MI300X.miss, jitter=f"{MI300X.jitter:g}",
        BLOCK=BLOCK, TILES=TILES, HEADS=HEADS, N=TILES * BLOCK, seeds=len(SEEDS), spread=spread() + 0.05,
        main=main_table(), sensitivity=sensitivity_table(), sizes=sizes_table(),
        plain_hits=plain[0], piled_hits=piled[0], ours_hits=ours[0], share=piled[4], piled_speed=piled[2],
        ours_speed=ours[2],
    ) + orders_measured.section()  # fmt: skip


def picture():
    """Tiles of keys by die, a panel for each order, hits dark and misses light; below, when each die is done."""
    from report.drawing import OURS_DARK, SOFT, house_style, new_figure

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


def draw(path):
    from report.drawing import save

    save(picture(), path)


def bars(figure, box, highest, is_first, label):
    """Axes for one bar a die, with the same scale in each column."""
    from report.drawing import GRID, plain_ticks

    axes = figure.add_axes(box)
    axes.set_ylim(0, 1.08 * highest)
    axes.set_xticks(range(8))
    axes.grid(True, axis="y", color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(length=3)
    plain_ticks(axes.yaxis)
    if is_first:
        axes.set_ylabel(label)
    else:
        axes.set_yticklabels([])
    return axes


def drifted():
    """Of the page and the picture, those that are not what the model gives; a picture of another matplotlib passes."""
    import matplotlib

    found = [] if PAGE.is_file() and PAGE.read_text() == page() else [PAGE]
    drawn = PICTURE.read_text() if PICTURE.is_file() else ""
    if not drawn or f"Matplotlib v{matplotlib.__version__}," in drawn:
        with tempfile.TemporaryDirectory() as folder:
            fresh = Path(folder) / PICTURE.name
            draw(fresh)
            found += [] if fresh.read_text() == drawn else [PICTURE]
    return found


def main(arguments):
    if arguments == ["--check"]:
        stale = drifted()
        for path in stale:
            print(
                f"{path.relative_to(HERE.parent)} is not what the model gives: `python -m report.orders` writes it anew"
            )
        return 1 if stale else 0
    PAGE.write_text(page())
    draw(PICTURE)
    print(f"written: {PAGE} and {PICTURE}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
