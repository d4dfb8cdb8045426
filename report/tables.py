"""Markdown tables of the measured rows: numbers, ratios and what stands where there is no number."""

from report import measured
from report.measured import fastest, length, mask, shape, times_over
from report.table import KERNELS, OURS, PEERS

NOISY = 0.05  # where p20 and p80 lie further apart than this, they stand under the median


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


def at_dtype(sweep, dtype):
    return [(point, cells) for point, cells in sweep.points().items() if point[4] == dtype]


def plain(value):
    """A value of machine.json as words on one line."""
    if isinstance(value, dict):
        return "; ".join(f"{key}: {plain(inner)}" for key, inner in value.items() if inner is not None)
    if isinstance(value, list):
        return ", ".join(map(plain, value))
    return " ".join(str(value).split()).replace("|", "\\|")


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
