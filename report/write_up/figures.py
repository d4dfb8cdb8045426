"""The pictures of REPORT.md: the ladder's times, the phases of each kernel, one program's keys, tiles against N."""

from matplotlib.patches import Patch, Rectangle

from grader.kinds.attention.cases import Case
from report.counting import cost, coverage, traced
from report.pages import tile_figures
from report.pages.drawing import (
    GRID,
    INK,
    LABEL,
    OURS_DARK,
    OURS_LIGHT,
    SOFT,
    house_style,
    new_figure,
    on_grid,
    plain_ticks,
)
from report.pages.measured import length
from report.pages.tables import number
from report.pages.tile_figures import PHASES
from report.write_up.measured import ADDS, PROBLEMS

PALE = "#a0a0a0"
N, WINDOW, SINKS, BLOCK = 250, 80, 40, 32  # of the phases drawn
ONE = Case("one program", N=256, causal=True, window=100, sinks=70)  # sinks that reach into the window's edge
Q_START = 192


def ladder(found):
    """Dots: the time of each problem's kernel at the greatest length, our fast form's as a ring; logarithmic."""
    n = found.lengths[-1]
    with house_style():
        figure = new_figure(9.2, 3.7, f"One call at {length(n)} tokens, {found.machine['gpu']}: median, ms")
        axes = figure.add_axes((0.37, 0.12, 0.57, 0.74))
        for place, name in enumerate(PROBLEMS):
            ms = found.row(name, n).median_ms
            axes.plot(ms, place, "o", markersize=9, color=PALE if name in ("P1", "P2") else OURS_LIGHT, zorder=3)
            fast = found.rows.get((n, f"fast as {name}"))
            text = f"{number(ms)}"
            if fast is not None:
                axes.plot(fast.median_ms, place, "o", markersize=9, markerfacecolor="white",
                          markeredgecolor=OURS_DARK, markeredgewidth=1.8, zorder=2)  # fmt: skip
                text += f"  (ring: the fast form, {number(fast.median_ms)})"
            axes.text(ms * 1.22, place, text, va="center", size=LABEL, color=INK)
        axes.set_xscale("log")
        axes.set(ylim=(len(PROBLEMS) - 0.5, -0.5), xlim=(0.1, 20000))
        axes.set_yticks(range(len(PROBLEMS)), [f"{name}: {ADDS[name]}" for name in PROBLEMS])
        axes.tick_params(length=0)
        axes.tick_params(axis="y", labelcolor=INK)
        plain_ticks(axes.xaxis)
        on_grid(axes)
        axes.spines["left"].set_visible(False)
        return figure


def causal(name, window=None, sinks=None):
    return Case(name, N=N, D=16, causal=True, window=window, sinks=sinks)


def phases():
    """Which phase visits which tile: P3, P4, P6 and P7 on one ragged length."""
    cases = [Case("P3", N=N, D=16), causal("P4"), causal(f"P6, window {WINDOW}", WINDOW),
             causal(f"P7, window {WINDOW}, {SINKS} sinks", WINDOW, SINKS)]  # fmt: skip
    title = f"Which phase visits which tile: {N} tokens, tiles of {BLOCK} x {BLOCK}"
    return tile_figures.phase_maps(cases, [(BLOCK, BLOCK)] * len(cases), title)


def one_program():
    """The keys of one program of P7: the phase that owns each tile, and what its first and last query see."""
    found = cost.phases(ONE, Q_START, BLOCK, BLOCK)
    last = Q_START + BLOCK - 1
    with house_style():
        title = f"P7, window {ONE.window}, {ONE.sinks} sinks: the keys of the program of queries {Q_START} to {last}"
        figure = new_figure(9.2, 2.75, title)
        axes = figure.add_axes((0.125, 0.35, 0.855, 0.5))
        for letter, tiles in found.items():
            for k in tiles:
                axes.add_patch(Rectangle((k, 2.1), BLOCK, 0.8, facecolor=PHASES[letter][1], edgecolor="white"))
                axes.text(k + BLOCK / 2, 2.5, letter, ha="center", va="center", size=9)
        for place, q in ((1, Q_START), (0, last)):
            for first, after in seen(q):
                axes.add_patch(Rectangle((first, place + 0.2), after - first, 0.5, facecolor=OURS_LIGHT))
        axes.set(xlim=(0, ONE.N), ylim=(0, 3), xlabel="key")
        axes.set_xticks(range(0, ONE.N + 1, BLOCK))
        axes.set_yticks([2.5, 1.45, 0.45], ["visited by", f"query {Q_START} sees", f"query {last} sees"])
        axes.tick_params(length=0)
        axes.tick_params(axis="y", labelcolor=INK)
        for k in range(0, ONE.N + 1, BLOCK):
            axes.axvline(k, color=GRID, linewidth=0.7, zorder=0)
        axes.spines[["top", "right", "left"]].set_visible(False)
        handles = [Patch(facecolor=PHASES[x][1], label=f"{x}: {PHASES[x][0]}") for x in found if found[x]]
        figure.legend(handles=handles, loc="lower left", bbox_to_anchor=(0.115, 0), ncols=4, frameon=False,
                      fontsize=8.5, handlelength=1.2, labelcolor=SOFT)  # fmt: skip
        return figure


def seen(q):
    """[(first key, after the last)] of what a query of ONE sees."""
    mask = coverage.seen(ONE.visibility, ONE.N)[q]
    edges = [j for j in range(ONE.N + 1) if (j < ONE.N and mask[j]) != (j > 0 and mask[j - 1])]
    return list(zip(edges[::2], edges[1::2], strict=True))


FAMILIES = {
    "P3": lambda n: Case(f"{n}", N=n, D=16),
    "P4": lambda n: Case(f"{n}", N=n, D=16, causal=True),
    "P7: window 128\nand 64 sinks": lambda n: Case(f"{n}", N=n, D=16, causal=True, window=128, sinks=64),
    "P6: window 128": lambda n: Case(f"{n}", N=n, D=16, causal=True, window=128),
}


def tiles():
    """Tiles against N: by formula as lines, of kernels that ran as circles."""
    ran = {
        name: [(int(r.case), traced.tiles_visited(r)) for r in
               traced.run(name[:2].lower(), *map(made, (64, 128, 256, 512)))]
        for name, made in FAMILIES.items()
    }  # fmt: skip
    return tile_figures.work(FAMILIES, [64 * 2**i for i in range(9)], traced.TILES, ran)


def drawn(found):
    """{file name: Figure}; found: the Ladder."""
    return {
        "report-ladder.svg": ladder(found),
        "report-phases.svg": phases(),
        "report-one-program.svg": one_program(),
        "report-tiles.svg": tiles(),
    }
