"""Lines against N and against the window: time, TFLOP/s, growth and memory."""

import math
import textwrap
from dataclasses import replace

from report.pages.drawing import INK, LOOKS, SOFT, finish, line, new_figure, panel
from report.pages.measured import length, mask, shape, spread, visible_pairs
from report.studies.sweep import OURS, PEERS

LAST = 3  # points that a slope is fitted over
KINDS = ("full", "causal")
WIDE_BOX = (0.085, 0.125, 0.68, 0.7)
LEFT_BOX, RIGHT_BOX = (0.078, 0.125, 0.265, 0.7), (0.575, 0.125, 0.24, 0.7)  # two panels and the names beside them


def lines_of(rows):
    """{kernel: its measured rows, by N}, and {kernel: the least N that ran out of memory}."""
    done, oom = {}, {}
    for row in sorted(rows, key=lambda row: row.q_len):
        if row.median_ms is not None:
            done.setdefault(row.kernel, []).append(row)
        elif row.status == "oom":
            oom.setdefault(row.kernel, row.q_len)
    return done, oom


def tier(sweep, label, dtype):
    """Time (left) and TFLOP/s (right) against N, full above causal, of one tier."""
    rows = [row for row in sweep.rows if row.tier == label and row.dtype == dtype]
    kinds = [kind for kind in KINDS if any(mask(row) == kind and row.median_ms for row in rows)]
    height = 0.55 + 3.6 * len(kinds)
    title = f"{label}, {dtype}, {sweep.device}: median of one call, band from p20 to p80"
    figure = new_figure(10.5, height, title)
    for i, kind in enumerate(kinds):
        bottom = 1 - (0.68 + 3.6 * i + 2.75) / height
        chosen = [row for row in rows if mask(row) == kind]
        for left, what in ((0.078, "time"), (0.575, "TFLOP/s")):
            axes = panel(figure, (left, bottom, 0.28, 2.75 / height), f"{kind}: {what}", "N, tokens",
                         "time, ms" if what == "time" else "TFLOP/s (visible pairs)", y_log=what == "time")  # fmt: skip
            against_length(axes, chosen, what)
    return figure


def against_length(axes, rows, what):
    done, oom = lines_of(rows)
    ends = []
    for kernel, points in done.items():
        points = [row for row in points if what == "time" or row.tflops]
        if not points:
            continue
        xs = [row.q_len for row in points]
        lows, highs = zip(*map(spread, points), strict=True)
        ys = [row.median_ms for row in points]
        if what != "time":
            work = [row.tflops * row.median_ms for row in points]
            lows, highs = zip(
                *[(w / high, w / low) for w, low, high in zip(work, lows, highs, strict=True)], strict=True
            )
            ys = [row.tflops for row in points]
        line(axes, kernel, xs, ys, (lows, highs))
        text = LOOKS[kernel].name + (f", oom at {length(oom[kernel])}" if kernel in oom and what == "time" else "")
        ends.append((xs[-1], ys[-1], text, LOOKS[kernel]))
    if what != "time":
        axes.set_ylim(bottom=0)
    finish(axes, sorted({row.q_len for row in rows}), ends)


def short(kernel):
    return LOOKS[kernel].name.partition(" (")[0]


def slope(points, what="median_ms"):
    """a of value ~ N^a by least squares over the last points, or None where there are fewer than two."""
    points = [(math.log(row.q_len), math.log(getattr(row, what))) for row in points[-LAST:]]
    if len(points) < 2:
        return None
    mean_x, mean_y = (sum(values) / len(points) for values in zip(*points, strict=True))
    above = sum((x - mean_x) * (y - mean_y) for x, y in points)
    return above / sum((x - mean_x) ** 2 for x, _ in points)


def scaling(sweep, label, dtype):
    """Time against N with the fitted exponent at each line: a whole mask to the left, windows to the right."""
    rows = [row for row in sweep.rows if row.dtype == dtype]
    main = [row for row in rows if row.tier == label]
    kind = "causal" if any(mask(row) == "causal" for row in main) else "full"
    windowed = [row for row in rows if mask(row) == "window" and not row.sinks]
    windowed = [row for row in windowed if shape(row) == shape(windowed[0])]
    figure = new_figure(
        10.5, 4.6, f"How time grows with N, {dtype}: beside each line the power of N, fitted to its last points"
    )
    groups = {}
    for row in sorted(windowed, key=lambda row: (-row.window, row.q_len)):
        if row.kernel in ("fast", "FlexAttention") and row.median_ms is not None:
            name = f"{short(row.kernel)}, {row.window:,}"
            groups.setdefault((row.kernel, name), []).append(row)
    axes = panel(figure, LEFT_BOX if groups else WIDE_BOX, f"{label}, {kind}", "N, tokens", "time, ms")
    done, _ = lines_of([row for row in main if mask(row) == kind])
    growth(axes, {(kernel, LOOKS[kernel].name): points for kernel, points in done.items()})
    if groups:
        axes = panel(figure, RIGHT_BOX, f"{shape(windowed[0])}, by window", "N, tokens", "time, ms")
        growth(axes, groups)
    return figure


def growth(axes, groups):
    """Lines of {(kernel, name): rows} with name and exponent at the end of each."""
    ends = []
    for (kernel, name), points in groups.items():
        xs, ys = [row.q_len for row in points], [row.median_ms for row in points]
        line(axes, kernel, xs, ys)
        fitted = slope(points)
        text = f"{name}: $N^{{{fitted:.2f}}}$" if fitted is not None else name
        ends.append((xs[-1], ys[-1], text, LOOKS[kernel]))
    finish(axes, sorted({row.q_len for points in groups.values() for row in points}), ends)


def memory(sweep, label, dtype):
    """Peak memory against N; where a kernel ran out of memory, a cross at the GPU's limit."""
    rows = [row for row in sweep.rows if row.tier == label and row.dtype == dtype]
    kind = "causal" if any(mask(row) == "causal" for row in rows) else "full"
    rows = [row for row in rows if mask(row) == kind]
    figure = new_figure(8.4, 5.2, f"Peak memory of one call beside its inputs: {label}, {kind}, {dtype}")
    axes = panel(figure, (0.105, 0.11, 0.6, 0.76), "", "N, tokens", "peak memory, MiB")
    done, oom = lines_of(rows)
    done = {kernel: [row for row in points if row.peak_mib] for kernel, points in done.items()}
    counts = sorted({row.q_len for row in rows})
    for kernel, points in done.items():
        if points:
            line(axes, kernel, [row.q_len for row in points], [row.peak_mib for row in points])
    limit(axes, sweep.machine.get("memory_gib"), oom)
    finish(axes, counts, shared_ends({kernel: points for kernel, points in done.items() if points}, oom))
    return figure


def limit(axes, gib, oom):
    """The GPU's memory as a line, with a cross for each kernel that did not fit."""
    if not isinstance(gib, (int, float)):
        return
    axes.axhline(gib * 1024, color=SOFT, linewidth=1, linestyle=(0, (1, 1)))
    axes.annotate(f"the GPU's memory, {gib:.0f} GiB", (0, gib * 1024), (4, -11), xycoords=("axes fraction", "data"),
                  textcoords="offset points", size=8.5, color=SOFT)  # fmt: skip
    for n in set(oom.values()):
        axes.plot([n], [gib * 1024], marker="X", markersize=9, color=INK, linestyle="none", zorder=7, clip_on=False)
        axes.annotate("oom", (n, gib * 1024), (0, 7), textcoords="offset points", ha="center", size=8.5, clip_on=False)
    axes.set_ylim(top=gib * 1024 * 1.7)


def shared_ends(done, oom):
    """Ends for name_ends where lines that end together share one label."""
    groups = []
    for kernel, points in sorted(done.items(), key=lambda item: -LOOKS[item[0]].rank):
        n, peak = points[-1].q_len, points[-1].peak_mib
        for group in groups:
            if group[0] == n and abs(group[1] / peak - 1) < 0.1:
                group[2].append(kernel)
                break
        else:
            groups.append((n, peak, [kernel]))
    ends = []
    for n, peak, kernels in groups:
        names = [short(k) + (f" (oom at {length(oom[k])})" if k in oom else "") for k in kernels]
        power = slope(done[kernels[0]], "peak_mib")
        text = textwrap.fill(", ".join(names), 26) + (f": $N^{{{power:.2f}}}$" if power is not None else "")
        ends.append((n, peak, text, LOOKS[kernels[0]]))
    return ends


def windows(sweep, dtype):
    """Time against the window at the greatest N, a panel for each shape, beside the work that is visible."""
    rows = [row for row in sweep.rows if row.dtype == dtype and mask(row) == "window" and row.median_ms is not None]
    rows = [row for row in rows if row.kernel in OURS + PEERS] or rows  # plain PyTorch pays for every pair
    shapes = list(dict.fromkeys(map(shape, rows)))
    longest = max(row.q_len for row in rows)
    figure = new_figure(10.5, 4.6, f"Time against the window at N = {length(longest)}, causal, {dtype}")
    for i, label in enumerate(shapes[:2]):
        chosen = [row for row in rows if shape(row) == label and row.q_len == longest]
        axes = panel(
            figure, (LEFT_BOX, RIGHT_BOX)[i] if len(shapes) > 1 else WIDE_BOX, label, "window, tokens", "time, ms"
        )
        against_window(axes, chosen)
    return figure


def against_window(axes, rows):
    groups = {}
    for row in sorted(rows, key=lambda row: row.window):
        if row.kernel in ("fast", *PEERS) or not row.sinks:
            groups.setdefault((row.kernel, row.sinks or 0), []).append(row)
    ends = []
    for (kernel, sinks), points in groups.items():
        look = LOOKS[kernel]
        if sinks:  # the same kernel, thinner: only sinks differ
            dashes = (0, (1, 1)) if sinks == max(row.sinks or 0 for row in rows) else (0, (4, 1.5))
            look = replace(look, width=1.1, dashes=dashes, marker="_" if sinks < 100 else "|")
        line(axes, kernel, [row.window for row in points], [row.median_ms for row in points], look=look)
        text = f"{short(kernel)}, {sinks} sinks" if sinks else look.name
        ends.append((points[-1].window, points[-1].median_ms, text, look))
    anchors = groups.get(("fast", 0)) or next((points for (_, sinks), points in groups.items() if not sinks), [])
    if anchors:
        end = anchors[-1]
        ys = [end.median_ms * visible_pairs(row) / visible_pairs(end) for row in anchors]
        xs = [row.window for row in anchors]
        axes.plot(xs, ys, color=INK, linewidth=1, linestyle=(0, (1, 2)))
        axes.annotate("visible work", (xs[0], ys[0]), (7, -1), textcoords="offset points", va="top", size=8.5)
    finish(axes, sorted({row.window for row in rows}), ends, words=lambda n: f"{n:,}")
