"""Pictures of notebook 06: the die of every program beside hits and time, dies without number, and schedules."""

from dataclasses import dataclass, replace

from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch
from matplotlib.ticker import MultipleLocator

from grader.kinds.program_order.check_order import check_order
from notebooks.pictures.png import PAGE, png
from report.counting.cache_model import MI300X, Machine, visits
from report.counting.orders import head_first, identity, listed, longest_first, published
from report.pages import orders_model as orders
from report.pages import orders_picture
from report.pages.drawing import GRID, INK, OURS_DARK, SOFT, house_style, new_figure

WARM, MUTED = "#c2571a", "#8b8378"
FOUND, LOADED = "#a9cfec", "#f3b27a"  # in the cache; from memory
# Die 0 to 7, dark to light: in greys too they tell neighbours apart.
DIES = ("#27205f", "#3b528b", "#2f7f9e", "#2aa58f", "#6cc069", "#b4d44a", "#f2d13c", "#e8893a")
ORDERS = {"plain": identity, "reversed": longest_first, "published": published, "head first": head_first}
LOOKS = {"plain": (MUTED, "D"), "published": (WARM, "s"), "head first": (OURS_DARK, "o")}


@dataclass(frozen=True)
class Launch:
    """A causal launch in the model: heads x tiles programs in an order; told_dies: what the order is told of them."""

    name: str
    order: object
    tiles: int = orders.TILES
    heads: int = orders.HEADS
    machine: Machine = MI300X
    told_dies: int | None = None

    @property
    def places(self):
        return listed(self.order, self.tiles, self.heads, self.told_dies or self.machine.dies)

    @property
    def figures(self):
        """(hits in %, time in steps): medians of the report's seeds."""
        return orders.figures(self.order, self.tiles, self.heads, 1, self.machine)[:2]


# Programs on dies ----------------------------------------------------------------------------------------------------


def launches(them, title):
    """For each Launch the die of every program, by head and tile of queries; below, its hits and its time as bars."""
    found = [launch.figures for launch in them]
    longest = max(time for _, time in found)
    with house_style():
        width = PAGE * max(2, len(them)) / 3
        figure, room = new_figure(width, 4.1, title), 1 - 0.5 / width
        for place, (launch, (hits, time)) in enumerate(zip(them, found, strict=True)):
            left, wide = 0.5 / width + place * room / len(them), room / len(them) - 0.25 / width
            axes = dies_of(figure.add_axes((left, 0.36, wide, 0.49)), launch)
            axes.set_title(launch.name)
            if place == 0:
                axes.set_yticks([0, launch.heads])
                axes.set_ylabel("head", labelpad=-4)
            bars = figure.add_axes((left, 0.09, wide, 0.15))
            bar(bars, 1, hits / 100, FOUND, f"found in the cache: {hits:.0f} %")
            bar(bars, 0, time / longest, LOADED, f"time: {time:.0f} steps")
            bars.set(xlim=(0, 1), ylim=(-0.5, 1.5))
            bars.axis("off")
        handles = [Patch(facecolor=DIES[die], label=f"{die}") for die in range(them[0].machine.dies)]
        figure.text(0.5 / width, 0.033, "colour: the die", size=8.5, va="center")
        figure.legend(handles=handles, loc="center left", bbox_to_anchor=(1.45 / width, 0.03), ncols=8,
                      frameon=False, fontsize=8.5, handlelength=0.9, handletextpad=0.35, columnspacing=0.8)  # fmt: skip
    words = "; ".join(f"{launch.name}: {hits:.0f} % hits, {time:.0f} steps"
                      for launch, (hits, time) in zip(them, found, strict=True))  # fmt: skip
    return png(figure, f"The die of every program. {words}")


def dies_of(axes, launch):
    grid = [[0] * launch.tiles for _ in range(launch.heads)]
    for program, (head, tile) in enumerate(launch.places):
        grid[head][tile] = program % launch.machine.dies
    axes.imshow(grid, cmap=ListedColormap(DIES), vmin=-0.5, vmax=7.5, aspect="auto", interpolation="nearest",
                extent=(0, launch.tiles, launch.heads, 0))  # fmt: skip
    axes.set_xticks([0, launch.tiles])
    axes.set_yticks([])
    axes.tick_params(length=2, labelsize=8)
    axes.set_xlabel("tile of queries", labelpad=-6, size=8.5)
    return axes


def bar(axes, y, part, colour, words):
    axes.barh([y], [1], color="#eef1f4", height=0.78)
    axes.barh([y], [part], color=colour, height=0.78)
    axes.text(0.02, y, words, va="center", size=9)


def chosen(order="published", tiles=64, heads=32, dies=8, cache=512, miss=1.6):
    """One launch beside the plain one, on a GPU of one's own; cache: tiles of K and V of all its dies together."""
    machine = replace(divided(dies, cache), miss=miss)
    launch = Launch(order, ORDERS[order], tiles, heads, machine)
    if not orders.complete(launch.order, tiles, heads):
        return print(f"Not an order: {check_order(launch.places, tiles, heads, dies)}.")
    both = {"plain": Launch("plain", identity, tiles, heads, machine), order: launch}
    return launches(list(both.values()), f"{tiles * orders.BLOCK:,} tokens, {heads} heads, {dies} dies (a model)")


def divided(dies, cache=MI300X.dies * MI300X.capacity):
    """The modelled GPU with its slots and its cache cut into that many dies."""
    return replace(MI300X, dies=dies, slots=MI300X.dies * MI300X.slots // dies, capacity=max(1, cache // dies))


def against_dies(names, dies):
    """Hits and time of orders on one GPU cut into more and more dies."""
    with house_style():
        figure = new_figure(PAGE, 3.2, "One GPU cut into more and more dies, in the model")
        panels = [figure.add_axes((0.065 + 0.42 * i, 0.16, 0.345, 0.64)) for i in range(2)]
        for name in names:
            colour, marker = LOOKS[name]
            found = [Launch(name, ORDERS[name], machine=divided(count)).figures for count in dies]
            for axes, values in zip(panels, zip(*found, strict=True), strict=True):
                axes.plot(range(len(dies)), values, marker=marker, color=colour, label=name, linewidth=1.8)
        for axes, title in zip(panels, ("found in the cache, %", "time, steps"), strict=True):
            axes.set_title(title)
            axes.set_xticks(range(len(dies)), dies)
            axes.set_xlabel("dies")
            axes.set_ylim(0, 1.08 * axes.get_ylim()[1])
            open_frame(axes, "both")
        panels[0].set_ylim(0, 105)
        panels[1].legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, handlelength=1.4)
    return png(figure, "On one die three orders are alike; with more dies they part, in hits and in time")


def open_frame(axes, grid):
    axes.grid(True, axis=grid, color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(length=3)


def by_die():
    """The report's picture of the work and the hits of each die, as wide as a page."""
    figure = orders_picture.picture()
    figure.set_size_inches(PAGE, 5.6)
    for axes in figure.axes:  # room for the names at the left
        left, bottom, width, height = axes.get_position().bounds
        axes.set_position((0.03 + 0.97 * left, bottom, 0.97 * width, height))
    note = figure.texts[-1]
    note.set_text(note.get_text().replace("; dashed", ";\ndashed"))
    return png(figure, "Work and hits of each die: published piles work on die 7, head first is level")


# Schedules ----------------------------------------------------------------------------------------------------


def schedules(them, title):
    """Each Launch of one die as it runs: a line for each slot, a bar for each program, as long as its work."""
    slots = them[0].machine.slots
    with house_style():
        figure = new_figure(PAGE, 0.75 + (0.42 + 0.24 * slots) * len(them), title)
        height = figure.get_size_inches()[1]
        runs = [programs(launch) for launch in them]
        last = max(end for run in runs for *_, end in run)
        for place, (launch, run) in enumerate(zip(them, runs, strict=True)):
            bottom = height - 0.42 - (0.42 + 0.24 * slots) * (place + 1) + 0.12
            axes = figure.add_axes((0.075, bottom / height, 0.905, 0.24 * slots / height))
            end = max(end for *_, end in run)
            for slot, tile, start, stop in run:
                colour = FOUND if stop < end else LOADED
                axes.barh([slot], [stop - start], left=start, height=0.84, color=colour, edgecolor="white")
                axes.text((start + stop) / 2, slot, f"{tile + 1}", ha="center", va="center", size=8)
            axes.axvline(end, color=INK, linewidth=1, linestyle=(0, (1, 1.5)))
            axes.set(xlim=(0, 1.003 * last), ylim=(slots - 0.4, -0.6))
            axes.set_title(f"{launch.name}: done at {end:g}", pad=3)
            axes.set_yticks([])
            axes.set_ylabel(f"{slots} slots", size=8.5)
            axes.spines[["top", "right", "left"]].set_visible(False)
            axes.tick_params(length=2, labelsize=8, labelbottom=place == len(them) - 1)
            axes.xaxis.set_major_locator(MultipleLocator(2))
        axes.set_xlabel("steps")
        figure.text(0.98, 1 - 0.12 / height, "a bar: a program, and how many tiles it visits; orange: what ends last",
                    ha="right", va="top", size=8.5, color=SOFT)  # fmt: skip
    ends = "; ".join(f"{launch.name} {max(end for *_, end in run):g}" for launch, run in zip(them, runs, strict=True))
    return png(figure, f"Schedules of programs on {slots} slots, done at: {ends}")


def programs(launch):
    """[(slot, tile of queries, start, end)] of the programs of a Launch on one die."""
    found = {}
    for slot, program, _, _, start, cost, _ in visits(launch.places, 1, launch.machine, 0):
        first = found.get(program, (slot, start))[1]
        found[program] = slot, first, start + cost
    return [(slot, launch.places[program][1], first, end) for program, (slot, first, end) in found.items()]
