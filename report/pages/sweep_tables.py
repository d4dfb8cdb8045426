"""A table for each shape and mask of the sweep: a line for each length, a column for each kernel."""

from report.pages import measured
from report.pages.measured import fastest, length, mask, our_best, shape, times_over
from report.pages.tables import median, note, number, times, with_notes
from report.studies.sweep import KERNELS, PEERS


def at_dtype(sweep, dtype):
    """[{kernel: row}] of each point of that dtype, in the CSV's order."""
    return [cells for cells in sweep.points().values() if next(iter(cells.values())).dtype == dtype]


def every_shape(sweep, dtype, what):
    """A table for each tier and mask; what: ms, tflops or mib."""
    tables = {}
    for cells in sorted(at_dtype(sweep, dtype), key=lambda cells: by_size(next(iter(cells.values())))):
        row = next(iter(cells.values()))
        tables.setdefault((shape(row), mask(row)), []).append(cells)
    return "\n\n".join(one_table(*key, lines, what) for key, lines in tables.items())


def by_size(row):
    return row.q_len, row.window or 0, row.sinks or 0


def one_table(label, kind, lines, what):
    notes, rows = {}, []
    for cells in lines:
        row = next(iter(cells.values()))
        name = length(row.q_len)
        name += f", {row.window:,}, {row.sinks or 0}" if kind == "window" else ""
        best = None if what == "mib" else fastest(cells, KERNELS)
        texts = [entry(cells.get(k), what, best, notes) for k in KERNELS]
        ours, peer = our_best(cells), fastest(cells, PEERS)
        against = f"{times(times_over(peer, ours))} {peer.kernel}" if ours and peer and what == "ms" else ""
        rows.append([name, *texts, against])
    first = "N, window, sinks" if kind == "window" else "N"
    return f"**{label}, {kind}**\n\n" + with_notes([first, *KERNELS, "best peer's time / ours"], rows, notes)


def entry(row, what, best, notes):
    """One cell: the number, or the status; a reason for it goes to the notes under the table."""
    if row is None:
        return ""
    if row.status == "oom":
        return "oom"
    if row.status != "ok":
        return note(row.status, f"{row.status}: {row.reason}", notes)
    if what == "ms":
        return median(row.median_ms, *measured.spread(row), row is best)
    text = number(row.tflops if what == "tflops" else row.peak_mib)
    return f"**{text}**" if row is best and text else text
