"""The measured sweep as a page: python -m report.benchmarks [folder] writes BENCHMARKS.md. No torch.

Without a folder: of report/results/h200, into report/. With one: of that folder's sweep.csv and machine.json, into it.
Exit status 2, with one sentence, where there is nothing to read or to write to.
"""

import argparse
import sys
from pathlib import Path

from report import measured, plots
from report.measured import PUBLISHED, REPORT, fastest, geometric_mean, length, mask, shape, times_over
from report.table import BASELINES, KERNELS, OURS, PEERS, BadTable

PAGE = "BENCHMARKS.md"
MASKS = ("full", "causal", "window")
SECTIONS = {"time in ms": "ms", "TFLOP/s": "tflops", "peak memory in MiB": "mib"}
NOISY = 0.05  # where p20 and p80 lie further apart than this, they stand under the median
FACTS = {
    "gpu": "GPU", "driver": "driver", "memory_gib": "memory, GiB", "torch": "PyTorch", "triton": "Triton",
    "cuda": "CUDA", "cudnn": "cuDNN", "python": "Python", "commit": "commit", "clocks": "clocks", "date": "date",
}  # fmt: skip


def page(sweep):
    """The whole text of BENCHMARKS.md."""
    dtypes = measured.dtypes(sweep.rows)
    first = [row for row in sweep.rows if row.dtype == dtypes[0]]
    parts = [
        "# Benchmarks",
        opening(sweep),
        *summary(sweep, dtypes[0]),
        *means(sweep, dtypes),
        *sinks(sweep, dtypes[0]),
    ]
    parts += figures(sweep)
    parts += machine(sweep.machine)
    parts += ["## Every shape", reading(sweep)]
    for dtype in dtypes:
        rows = [row for row in sweep.rows if row.dtype == dtype]
        for title, what in SECTIONS.items():
            if what != "mib" or rows == first or dtypes[0] not in ("float16", "bfloat16"):
                parts.append(details(f"{dtype}: {title}", every_shape(sweep, dtype, what)))
    return "\n\n".join(part for part in parts if part) + "\n"


def opening(sweep):
    facts = sweep.machine
    dirty = ", with changes that are not committed" if facts.get("dirty") else ""
    commit = f" at commit {facts['commit'][:12]}{dirty}" if facts.get("commit") else ""
    date = f" on {facts['date']}" if facts.get("date") else ""
    return (
        f"Attention kernels on **{sweep.device}**, measured{commit}{date}. This page is made from `sweep.csv` and "
        "`machine.json` by `python -m report.benchmarks`; edit nothing here."
    )


def table(head, rows):
    """A Markdown table: the first column to the left, the others to the right; columns without any entry left out."""
    kept = [i for i in range(len(head)) if i == 0 or any(row[i] for row in rows)]
    lines = [head, ["---" if i == 0 else "---:" for i in range(len(head))], *rows]
    return "\n".join("| " + " | ".join(row[i] for i in kept) + " |" for row in lines)


def number(value):
    """Three significant digits, never an exponent; blank where nothing was measured."""
    if value is None:
        return ""
    if value >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}" if value >= 0.9995 else f"{value:#.3g}"


def times(ratio, strong=False):
    """`1.08 (1.07 to 1.09)`: how many times, and its interval."""
    if ratio is None:
        return ""
    middle = f"**{ratio.middle:.2f}**" if strong else f"{ratio.middle:.2f}"
    return f"{middle} ({ratio.low:.2f} to {ratio.high:.2f})"


def our_best(cells):
    """Our fast kernel where it was measured, else the fastest of ours."""
    return fastest(cells, ["fast"]) or fastest(cells, OURS)


def longest(sweep, dtype):
    """{(tier, mask): cells} at the greatest length of each, in the CSV's order."""
    found = {}
    for (tier, n, *_), cells in at_dtype(sweep, dtype):
        key = tier, mask(next(iter(cells.values())))
        if key not in found or found[key][0] < n:
            found[key] = n, cells
    return {key: cells for key, (_, cells) in found.items()}


def at_dtype(sweep, dtype):
    return [(point, cells) for point, cells in sweep.points().items() if point[4] == dtype]


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


def means(sweep, dtypes):
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
    title = f"### Over all lengths, {' and '.join(dtypes)}"
    note = "The geometric mean of how many times faster ours is, the least and the greatest, and of how many shapes."
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
                cells = [dear(found.get(count), found.get(0)) for count in counts]
                rows.append([label, length(n), f"{window:,}", name, *cells])
    head = ["shape", "N", "window", "kernel", *("no sinks, ms" if c == 0 else f"{c} sinks" for c in counts)]
    note = f"The median in ms, {dtype}, and how much more it is than without sinks."
    return ["### What sinks cost beside a window", table(head, rows), note] if rows else []


def dear(row, plain):
    if row is None:
        return ""
    if plain is None or row is plain:
        return number(row.median_ms)
    more = round(100 * (row.median_ms / plain.median_ms - 1))
    return f"{number(row.median_ms)} ({more:+d} %)"


def figures(sweep):
    """Links to what report.plots draws."""
    links = [f"![{plan.words}]({plots.FIGURES}/{name})" for name, plan in plots.plans(sweep).items()]
    return ["## Pictures", *links] if links else []


def machine(facts):
    """The machine's facts, and the protocol as the sweep wrote it down."""
    known = {name: plain(facts[key]) for key, name in FACTS.items() if facts.get(key) is not None}
    parts = ["## The machine", "\n".join(f"- {name}: {words}" for name, words in known.items() if words)]
    protocol = facts.get("protocol")
    if protocol:
        lines = [f"- {key}: {plain(value)}" for key, value in protocol.items()] if isinstance(protocol, dict) else []
        parts += ["## How it was measured", "\n".join(lines) or plain(protocol)]
    return parts


def plain(value):
    """A value of machine.json as words on one line."""
    if isinstance(value, dict):
        return "; ".join(f"{key}: {plain(inner)}" for key, inner in value.items() if inner is not None)
    if isinstance(value, list):
        return ", ".join(map(plain, value))
    return " ".join(str(value).split()).replace("|", "\\|")


def reading(sweep):
    return (
        "The best of each line is bold. `oom`: out of memory. A blank was not measured. Where p20 and p80 lie more "
        f"than {100 * NOISY:.0f} % apart they stand under the median."
    )


def details(title, body):
    return f"<details>\n<summary>{title}</summary>\n\n{body}\n\n</details>" if body else ""


def every_shape(sweep, dtype, what):
    """A table for each tier and mask: a line for each length, or window and sinks; a column for each kernel."""
    tables = {}
    in_order = sorted(at_dtype(sweep, dtype), key=lambda item: by_size(next(iter(item[1].values()))))
    for _, cells in in_order:
        row = next(iter(cells.values()))
        tables.setdefault((shape(row), mask(row)), []).append(cells)
    return "\n\n".join(one_table(*key, lines, what) for key, lines in tables.items())


def by_size(row):
    return row.q_len, row.window or 0, row.sinks or 0


def one_table(label, kind, lines, what):
    reasons, rows = {}, []
    for cells in lines:
        row = next(iter(cells.values()))
        name = length(row.q_len)
        name += f", {row.window:,}, {row.sinks or 0}" if kind == "window" else ""
        values = {k: cells[k].median_ms for k in cells}
        best = None if what == "mib" else fastest(cells, KERNELS)
        texts = [entry(cells.get(k), what, best, reasons) for k in KERNELS]
        ours, peer = our_best(cells), fastest(cells, PEERS)
        against = f"{times(times_over(peer, ours))} {peer.kernel}" if ours and peer and what == "ms" and values else ""
        rows.append([name, *texts, against])
    first = "N, window, sinks" if kind == "window" else "N"
    parts = [f"**{label}, {kind}**", table([first, *KERNELS, "best peer's time / ours"], rows)]
    if reasons:
        parts.append("<br>\n".join(f"<sup>{index}</sup> {plain(reason)}" for reason, index in reasons.items()))
    return "\n\n".join(parts)


def entry(row, what, best, reasons):
    """One cell: the number, or the status; a reason for it goes to the notes under the table."""
    if row is None:
        return ""
    if row.status == "oom":
        return "oom"
    if row.status != "ok":
        index = reasons.setdefault(f"{row.status}: {row.reason}", len(reasons) + 1)
        return f"{row.status} <sup>{index}</sup>"
    text = number({"ms": row.median_ms, "tflops": row.tflops, "mib": row.peak_mib}[what])
    text = f"**{text}**" if row is best and text else text
    low, high = measured.spread(row)
    if what == "ms" and high - low > NOISY * row.median_ms:
        text += f"<br><sub>{number(low)} to {number(high)}</sub>"
    return text


def places(folder):
    """(where the sweep is, where what is made of it goes)."""
    return (PUBLISHED, REPORT) if folder is None else (folder, folder if folder.suffix != ".csv" else folder.parent)


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m report.benchmarks", description="Write BENCHMARKS.md of a sweep.")
    parser.add_argument(
        "folder", nargs="?", type=Path, help="of sweep.csv and machine.json (default: the published one)"
    )
    source, target = places(parser.parse_args(argv).folder)
    try:
        text = page(measured.load(source))
        (target / PAGE).write_text(text, encoding="utf-8")
    except BadTable as error:
        print(f"report: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"report: {target / PAGE} cannot be written: {error.strerror}", file=sys.stderr)
        return 2
    print(f"written: {target / PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
