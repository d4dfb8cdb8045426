"""Pictures of notebook 01: where the time goes, what the matrix holds, what each operation moves, and the roofline."""

from dataclasses import replace

from matplotlib.patches import Patch

from grader.gpu.peaks import peak
from notebooks.pictures.png import PAGE
from report.arms.pytorch import attend
from report.pages.drawing import (
    GRID,
    INK,
    LOOKS,
    OURS_DARK,
    SOFT,
    Look,
    house_style,
    line,
    name_ends,
    new_figure,
    panel,
    plain_ticks,
    token_ticks,
)

WARM, PALE = "#c2571a", "#b9c7da"
PLAIN, FUSED = Look("plain PyTorch", WARM, "s", "-", 1.8, 5), replace(LOOKS["fast"], name="FlashAttention")
P3 = LOOKS["P3"]
GPUS = ("T4", "A100-SXM4-80GB", "H100", "H200", "MI300X", "B200")
GREYS = {"T4": "#b4b4b4", "A100-SXM4-80GB": "#969696", "H100": "#787878", "MI300X": "#a08a6c", "B200": "#5a5a5a"}


def plain_attention(q, k, v):
    """The formula as careful PyTorch code, without a mask: "vectorised" in the report."""
    return attend(q, k, v, None)


def ridge(gpu):
    """FLOPs that the GPU of that name can do in the time in which it moves one byte."""
    known = peak(gpu)
    return known.tflops / known.terabytes


def least_times(ledger, gpu):
    """(ms to compute the ledger's FLOPs, ms to move its bytes) at the peaks of that GPU."""
    known = peak(gpu)
    return ledger.flops / known.tflops / 1e9, ledger.moved / known.terabytes / 1e9


def sideways(figure, left, x_label):
    """Axes for bars that lie, from that part of the width on, as high as the title and the label leave room."""
    high = figure.get_size_inches()[1]
    axes = figure.add_axes((left, 0.5 / high, 0.95 - left, 1 - 0.9 / high))
    axes.set_xlabel(x_label)
    axes.grid(True, axis="x", color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(length=0)
    return axes


def times(needs, took, title):
    """Lying bars of {name: ms}: what data sheets allow at the least, under it what was measured."""
    bars = [*needs.items(), *took.items()]
    with house_style():
        figure = new_figure(PAGE, 0.95 + 0.42 * len(bars), title)
        axes = sideways(figure, 0.3, "milliseconds of one call")
        names, values = zip(*bars, strict=True)
        colors = [PALE] * len(needs) + [OURS_DARK] * len(took)
        axes.barh(range(len(bars)), values, color=colors, height=0.62)
        axes.set_yticks(range(len(bars)), names, color=INK)
        axes.invert_yaxis()
        for place, value in enumerate(values):
            axes.annotate(f"{value:.3g}", (value, place), (5, 0), textcoords="offset points", va="center", color=INK)
        axes.set_xlim(0, 1.1 * max(values))
        keys = [Patch(color=OURS_DARK, label="measured"), Patch(color=PALE, label="the least, from the data sheet")]
        axes.legend(handles=keys, loc="upper right", frameon=False)
    return figure


def held(counted, measured, limits, title):
    """Memory beside the inputs against N. counted and measured: {Look: [(N, MiB)]}; limits: {a GPU: its MiB}."""
    with house_style():
        figure = new_figure(PAGE, 4.8, title)
        axes = panel(figure, (0.125, 0.11, 0.7, 0.79), "", "N, tokens", "memory beside the inputs, MiB")
        ends = []
        for look, points in counted.items():
            line(axes, None, *zip(*points, strict=True), look=look)
            ends.append((*points[-1], look.name, look))
        for look, points in measured.items():
            axes.plot(*zip(*points, strict=True), "o", color=look.color, markersize=10, fillstyle="none", zorder=8)
        for name, mib in limits.items():
            axes.axhline(mib, color=SOFT, linewidth=1, linestyle=(0, (1, 1.5)))
            axes.annotate(f"all of {name}", (0.01, mib), (0, 3), xycoords=("axes fraction", "data"),
                          textcoords="offset points", size=8.5, color=SOFT)  # fmt: skip
        token_ticks(axes, [n for n, _ in next(iter(counted.values()))])
        plain_ticks(axes.yaxis)
        name_ends(axes, ends)
    return figure


def moved(ledger, title, least=1e-3):
    """Gigabytes that each operation reads and writes, in order; those under that part of all are left out."""
    shown = [operation for operation in ledger.operations if operation.moved > least * ledger.moved]
    with house_style():
        figure = new_figure(PAGE, 0.95 + 0.3 * len(shown), title)
        axes = sideways(figure, 0.2, "GB moved")
        places = range(len(shown))
        reads, writes = ([getattr(one, kind) / 1e9 for one in shown] for kind in ("read", "written"))
        axes.barh(places, reads, color=PALE, height=0.66, label="read")
        axes.barh(places, writes, left=reads, color=WARM, height=0.66, label="written")
        axes.set_yticks(places, [one.name for one in shown], color=INK)
        for place, one in enumerate(shown):
            if one.flops:
                axes.annotate(f"{one.flops / 1e12:.2g} TFLOP", (one.moved / 1e9, place), (5, 0),
                              textcoords="offset points", va="center", color=INK, size=8.5)  # fmt: skip
        axes.invert_yaxis()
        axes.set_xlim(0, 1.22 * max(one.moved for one in shown) / 1e9)
        axes.legend(loc="lower right", frameon=False)
    return figure


def roofline(places, measured, title, featured="H200"):
    """Roofs of several GPUs. places: {name: FLOPs per byte}; measured: [(FLOPs per byte, TFLOP/s, name, Look)]."""
    with house_style():
        figure = new_figure(PAGE, 5.4, title)
        axes = panel(figure, (0.105, 0.1, 0.785, 0.82), "", "FLOPs per byte moved", "TFLOP/s")
        xs = (0.5, 20_000)
        ends = []
        for gpu in GPUS:
            known = peak(gpu)
            look = Look(gpu.partition("-")[0], GREYS.get(gpu, OURS_DARK), "", "-", 2.4 if gpu == featured else 1.2,
                        6 if gpu == featured else 3)  # fmt: skip
            roof = [min(known.tflops, known.terabytes * x) for x in (xs[0], ridge(gpu), xs[1])]
            axes.plot((xs[0], ridge(gpu), xs[1]), roof, color=look.color, linewidth=look.width, zorder=look.rank)
            ends.append((xs[1], known.tflops, look.name, look))
        axes.set_xlim(*xs)
        axes.set_ylim(0.1, 5000)
        for name, x in places.items():
            axes.axvline(x, color=WARM, linewidth=1, linestyle=(0, (4, 3)))
            low = x > 8  # where the roofs leave room
            axes.annotate(name, (x, 0.12 if low else 4200), (-4, 0), textcoords="offset points", rotation=90,
                          ha="right", va="bottom" if low else "top", color=WARM, size=8.5)  # fmt: skip
        for x, tflops, name, look in measured:
            right = x < 1000
            axes.plot([x], [tflops], "o", color=look.color, markersize=8, markeredgecolor="white", zorder=9)
            axes.annotate(name, (x, tflops), (10 if right else -9, -11 if right else -4), textcoords="offset points",
                          ha="left" if right else "right", size=8.5, zorder=9)  # fmt: skip
        token_ticks(axes, [1, 4, 16, 64, 256, 1024, 4096, 16384], words=lambda x: f"{x:,}")
        plain_ticks(axes.yaxis)
        name_ends(axes, ends)
    return figure
