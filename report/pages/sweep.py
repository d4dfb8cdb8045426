"""The measured sweep as a page, BENCHMARKS.md, with its pictures. No torch."""

from pathlib import Path

from report.pages import sweep_pictures
from report.pages.measured import dtypes, fastest, geometric_mean, length, load, mask, our_best, shape, times_over
from report.pages.sweep_tables import at_dtype, every_shape
from report.pages.tables import FACTS, NOISY, commits, number, plain, protocol_lines, table, times
from report.pages.template import render
from report.places import PUBLISHED, REPORT
from report.studies.sweep import BASELINES, OURS, PEERS, STUDY

PAGE = "BENCHMARKS.md"
MASKS = ("full", "causal", "window")
SECTIONS = {"time in ms": "ms", "TFLOP/s": "tflops", "peak memory in MiB": "mib"}


def files(folder=PUBLISHED):
    """{path: text} of the page and its pictures, of the sweep in a folder or a CSV; raises BadTable."""
    sweep = load(folder)
    return {PAGE: page(sweep)} | sweep_pictures.drawn(sweep)


def page(sweep):
    """The whole text of BENCHMARKS.md."""
    every, facts = dtypes(sweep.rows), sweep.machine
    known = {name: plain(facts[key]) for key, name in FACTS.items() if facts.get(key) is not None}
    return render(
        PAGE, device=sweep.device, facts=facts, commits=commits(facts), dtype=every[0], dtypes=every,
        summary=summary(sweep, every[0]), means=means(sweep), sinks=sinks(sweep, every[0]),
        plans=sweep_pictures.plans(sweep), sources=sources(sweep.path),
        machine=[f"- {name}: {words}" for name, words in known.items() if words], protocol=protocol_lines(facts),
        noisy=100 * NOISY, sections=sections(sweep, every),
        unpaired=any(ours.kernel != "fast" for ours in map(our_best, longest(sweep, every[0]).values()) if ours),
    )  # fmt: skip


def sources(path):
    """The CSV and its machine's file, as they lie from the page."""
    folder = PUBLISHED.relative_to(REPORT) if path.parent.resolve() == PUBLISHED else Path()
    return " and ".join(f"`{(folder / name).as_posix()}`" for name in (path.name, STUDY.facts))


def sections(sweep, every):
    """[(title, tables)] of all shapes: of each dtype times and speeds; memory of the first, unless others differ."""
    found = []
    for dtype in every:
        for title, what in SECTIONS.items():
            if what != "mib" or dtype == every[0] or every[0] not in ("float16", "bfloat16"):
                found.append((f"{dtype}: {title}", every_shape(sweep, dtype, what)))
    return [(title, tables) for title, tables in found if tables]


def longest(sweep, dtype):
    """{(tier, mask): cells} at the greatest length of each, in the CSV's order."""
    found = {}
    for cells in at_dtype(sweep, dtype):
        row = next(iter(cells.values()))
        key = row.tier, mask(row)
        if key not in found or found[key][0] < row.q_len:
            found[key] = row.q_len, cells
    return {key: cells for key, (_, cells) in found.items()}


def summary(sweep, dtype):
    """The page in one table: for each tier and mask our best against the best peer, at the greatest length."""
    rows = []
    for (tier, kind), cells in longest(sweep, dtype).items():
        ours, peer = our_best(cells), fastest(cells, PEERS)
        any_row = next(iter(cells.values()))
        if not (ours or peer) or any_row.sinks:
            continue  # sinks have a table of their own
        label = f"{shape(any_row)}, window {any_row.window}" if kind == "window" else tier
        base = fastest(cells, ["vectorised"]) or fastest(cells, ["naive per head"])
        rows.append([
            label, "causal" if kind == "window" else kind, length(any_row.q_len),
            result(ours), result(peer), times(times_over(peer, ours) if ours and peer else None, strong=True),
            f"{number(base.median_ms / ours.median_ms)}" if ours and base else "",
            f"{100 * ours.fraction_of_peak:.0f} %" if ours and ours.fraction_of_peak is not None else "",
        ])  # fmt: skip
    head = ["shape", "mask", "N", "ours: ms, TFLOP/s", "best peer: ms, TFLOP/s", "its time / ours",
            "plain PyTorch's time / ours", "share of the GPU's peak"]  # fmt: skip
    return table(head, rows) if rows else ""


def result(row):
    """`fast: 1.23, 550`"""
    return f"{row.kernel}: {number(row.median_ms)}, {number(row.tflops)}" if row else ""


def means(sweep):
    """Geometric means of the peers' times over ours, over all points where both were measured."""
    ratios = {}
    for cells in sweep.points().values():
        ours = our_best(cells)
        for row in cells.values():
            if ours and row.kernel not in OURS and row.median_ms is not None:
                ratios.setdefault((row.kernel, mask(row)), []).append(times_over(row, ours).middle)
    rows = []
    for kernel in PEERS + BASELINES:
        found = [ratios.get((kernel, kind), []) for kind in MASKS]
        if any(found):
            rows.append([kernel] + [spread_of(values) for values in found])
    return table(["ours is so many times as fast as", *MASKS], rows) if rows else ""


def spread_of(values):
    if not values:
        return ""
    return f"**{number(geometric_mean(values))}** ({number(min(values))} to {number(max(values))}; {len(values)})"


def sinks(sweep, dtype):
    """What sinks beside a window cost: a line for each window at its greatest N, a column for each number of sinks."""
    groups = {}
    for cells in longest(sweep, dtype).values():
        row = next(iter(cells.values()))
        if row.window is not None:
            groups.setdefault((shape(row), row.q_len, row.window), {})[row.sinks or 0] = cells
    counts = sorted({count for group in groups.values() for count in group})
    rows = []
    for (label, n, window), group in groups.items():
        everywhere = [name for name in PEERS if all(fastest(c, [name]) for c in group.values())]  # one peer, not a mix
        peer = fastest(next(iter(group.values())), everywhere)
        for names in (OURS, [peer.kernel] if peer else []):
            found = {count: our_best(c) if names is OURS else fastest(c, names) for count, c in group.items()}
            if any(found.values()):
                name = next(row.kernel for row in found.values() if row)
                name = "P6, P7" if name in ("P6", "P7") else name
                cells = [with_rise(found.get(count), found.get(0)) for count in counts]
                rows.append([label, length(n), f"{window:,}", name, *cells])
    head = ["shape", "N", "window", "kernel", *("no sinks, ms" if c == 0 else f"{c} sinks" for c in counts)]
    return table(head, rows) if rows else ""


def with_rise(row, without_sinks):
    """`1.23 (+4 %)`"""
    if row is None:
        return ""
    if without_sinks is None or row is without_sinks:
        return number(row.median_ms)
    more = round(100 * (row.median_ms / without_sinks.median_ms - 1))
    return f"{number(row.median_ms)} ({more:+d} %)"
