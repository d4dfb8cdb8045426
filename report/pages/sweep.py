"""The measured sweep as a page, BENCHMARKS.md, with its pictures. No torch."""

from report.pages import sweep_pictures
from report.pages.measured import dtypes, fastest, geometric_mean, length, load, mask, our_best, shape, times_over
from report.pages.sweep_tables import at_dtype, every_shape
from report.pages.tables import FACTS, NOISY, number, plain, protocol_lines, table, times
from report.places import PUBLISHED
from report.studies.sweep import BASELINES, OURS, PEERS

PAGE = "BENCHMARKS.md"
MASKS = ("full", "causal", "window")
SECTIONS = {"time in ms": "ms", "TFLOP/s": "tflops", "peak memory in MiB": "mib"}


def files(folder=PUBLISHED):
    """{path: text} of the page and its pictures, of the sweep in a folder or a CSV; raises BadTable."""
    sweep = load(folder)
    return {PAGE: page(sweep)} | sweep_pictures.drawn(sweep)


def page(sweep):
    """The whole text of BENCHMARKS.md."""
    every = dtypes(sweep.rows)
    first = [row for row in sweep.rows if row.dtype == every[0]]
    parts = [
        "# Benchmarks",
        opening(sweep),
        *summary(sweep, every[0]),
        *means(sweep, every),
        *sinks(sweep, every[0]),
        *figures(sweep),
        *machine(sweep.machine),
        "## Every shape",
        reading(),
    ]
    for dtype in every:
        rows = [row for row in sweep.rows if row.dtype == dtype]
        for title, what in SECTIONS.items():
            if what != "mib" or rows == first or every[0] not in ("float16", "bfloat16"):
                parts.append(details(f"{dtype}: {title}", every_shape(sweep, dtype, what)))
    return "\n\n".join(part for part in parts if part) + "\n"


def opening(sweep):
    facts = sweep.machine
    dirty = ", with changes that are not committed" if facts.get("dirty") else ""
    commit = f" at commit {facts['commit'][:12]}{dirty}" if facts.get("commit") else ""
    date = f" on {facts['date']}" if facts.get("date") else ""
    return (
        f"Attention kernels on **{sweep.device}**, measured{commit}{date}. This page is made from `sweep.csv` and "
        "`machine.json` by `python -m report pages sweep`; edit nothing here."
    )


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
        base = fastest(cells, ["vectorised"]) or fastest(cells, BASELINES)
        rows.append([
            label, "causal" if kind == "window" else kind, length(any_row.q_len),
            result(ours), result(peer), times(times_over(peer, ours) if ours and peer else None, strong=True),
            f"{number(base.median_ms / ours.median_ms)}" if ours and base else "",
            f"{100 * ours.fraction_of_peak:.0f} %" if ours and ours.fraction_of_peak is not None else "",
        ])  # fmt: skip
    head = ["shape", "mask", "N", "ours: ms, TFLOP/s", "best peer: ms, TFLOP/s", "its time / ours",
            "plain PyTorch's time / ours", "share of the GPU's peak"]  # fmt: skip
    note = (
        f"Each shape at its greatest length, {dtype}. Above 1, ours is faster; in brackets the 95 % interval of the "
        "paired ratio, or where ours is not `fast` what p20 and p80 allow. Plain PyTorch is the vectorised formula, or "
        "head after head where that runs out of memory; where the column is empty, neither was measured."
    )
    return ["## At a glance", table(head, rows), note] if rows else []


def result(row):
    """`fast: 1.23, 550`"""
    return f"{row.kernel}: {number(row.median_ms)}, {number(row.tflops)}" if row else ""


def means(sweep, every):
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
    title = f"### Over all lengths, {' and '.join(every)}"
    note = "The geometric mean of how many times faster ours is, the least and the greatest, and of how many shapes."
    if any("vectorised compiled" in row for row in rows):
        note += (
            " torch.compile knows the formula where nothing is masked and calls SDPA in its place (its pass is named "
            "`fuse_attention`); with a causal mask written out it does not."
        )
    return [title, table(["than", *MASKS], rows), note] if rows else []


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
        for names in (OURS, PEERS):
            found = {count: our_best(c) if names is OURS else fastest(c, names) for count, c in group.items()}
            if any(found.values()):
                name = next(row.kernel for row in found.values() if row)
                name = "P6, P7" if name in ("P6", "P7") else name
                cells = [with_rise(found.get(count), found.get(0)) for count in counts]
                rows.append([label, length(n), f"{window:,}", name, *cells])
    head = ["shape", "N", "window", "kernel", *("no sinks, ms" if c == 0 else f"{c} sinks" for c in counts)]
    note = f"The median in ms, {dtype}, and how much more it is than without sinks."
    return ["### What sinks cost beside a window", table(head, rows), note] if rows else []


def with_rise(row, without_sinks):
    """`1.23 (+4 %)`"""
    if row is None:
        return ""
    if without_sinks is None or row is without_sinks:
        return number(row.median_ms)
    more = round(100 * (row.median_ms / without_sinks.median_ms - 1))
    return f"{number(row.median_ms)} ({more:+d} %)"


def figures(sweep):
    """Links to the pictures."""
    links = [f"![{plan.words}]({name})" for name, plan in sweep_pictures.plans(sweep).items()]
    return ["## Pictures", *links] if links else []


def machine(facts):
    """The machine's facts, and the protocol as the sweep wrote it down."""
    known = {name: plain(facts[key]) for key, name in FACTS.items() if facts.get(key) is not None}
    parts = ["## The machine", "\n".join(f"- {name}: {words}" for name, words in known.items() if words)]
    return parts + (["## How it was measured", protocol_lines(facts)] if facts.get("protocol") else [])


def reading():
    return (
        "The best of each line is bold. `oom`: out of memory. A blank was not measured. Where p20 and p80 lie more "
        f"than {100 * NOISY:.0f} % apart they stand under the median."
    )


def details(title, body):
    return f"<details>\n<summary>{title}</summary>\n\n{body}\n\n</details>" if body else ""
