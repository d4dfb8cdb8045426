"""Markdown tables of the rows of block_sparse.csv: every pattern, the full map, by density, and building maps."""

from report.pages.block_sparse_targets import linear_share
from report.pages.measured import length
from report.pages.tables import median, note, number, table, times, with_notes
from report.studies import block_sparse as names


def cell(row, notes, best=None):
    """The time in us, or what went wrong; blank where nothing was measured."""
    if row is None or row.status == "not run":
        return ""
    if row.status != "ok":
        return note("wrong" if row.reason.startswith("wrong") else row.status, row.reason, notes)
    return median(row.median_us, row.p20_us, row.p80_us, row is best)


def over(row, what, strong=False):
    """A ratio of the row as text."""
    return times(row and row.ratio(f"over_{what}"), strong)


def grouped(rows, pattern):
    """{(n, block): {kernel: row}} of one pattern, in order."""
    found = {}
    for row in sorted((row for row in rows if row.pattern == pattern), key=lambda row: (row.n, row.block)):
        found.setdefault((row.n, row.block), {})[row.kernel] = row
    return found


def titled(head, lines, notes):
    return with_notes(head, lines, notes) if lines else "Nothing yet."


def pattern_table(rows, pattern):
    notes, lines = {}, []
    for (n, block), cells in grouped(rows, pattern).items():
        done = [row for name, row in cells.items() if row.median_us is not None and name not in names.WITHOUT_MASK]
        best, some = min(done, key=lambda row: row.median_us, default=None), (done or [None])[0]
        fast = cells.get("fast")
        facts = [f"{some.sparsity:.3f}", f"{some.density:.3f}"] if some else ["", ""]
        times_us = (cell(cells.get(name), notes, best) for name in names.KERNELS)
        ratios = over(fast, "flex", strong=True), over(fast, "cudnn")
        lines.append([f"{length(n)}, {block}", *facts, *times_us, *ratios, number(fast.tflops) if fast else ""])
    head = ["N, block", "sparsity", "density", *names.KERNELS, "fast over Flex", "fast over cuDNN", "fast, TFLOP/s"]
    return f"**{pattern}**\n\n" + with_notes(head, lines, notes) if lines else ""


def each_kernel(rows, pattern, show):
    """A line for each length and block, a column for each kernel: show(row) of its row."""
    lines = [
        [f"{length(n)}, {block}", *(show(cells[name]) if name in cells else "" for name in names.KERNELS)]
        for (n, block), cells in grouped(rows, pattern).items()
    ]
    return f"**{pattern}**\n\n" + table(["N, block", *names.KERNELS], lines) if lines else ""


def tflops(row):
    return number(row.tflops)


def speed_up(row):
    """How many times as fast as FlexAttention; the interval is in the CSV."""
    return "" if row.over_flex is None else f"{row.over_flex:.2f}"


def full_table(rows):
    notes, kernels = {}, ["longest_first", "fast", names.DENSE, names.CUDNN]
    lines = [
        [f"{length(n)}, {block}", *(cell(cells.get(name), notes) for name in kernels)]
        + [over(cells.get("fast"), what) for what in ("dense", "cudnn")]
        for (n, block), cells in grouped(rows, names.FULL_MAP).items()
    ]
    return titled(["N, block", *kernels, "fast: speed over fast_attention", "over cuDNN"], lines, notes)


def density_table(rows):
    notes, lines = {}, []
    for (n, block), cells in grouped(rows, names.BY_DENSITY).items():
        for density in names.DENSITIES:
            line = [f"{length(n)}, block {block}, {density}"]
            for kernel in names.SCALED:
                row = cells.get(f"{kernel} at {density}")
                linear = f"{linear_share(row):.2f}" if row and row.over_dense is not None else ""
                line += [cell(row, notes), linear]
            lines.append(line)
    head = ["N, block, density", *(f"{name}{words}" for name in names.SCALED for words in (", us", ", of linear"))]
    return titled(head, lines, notes)


def maps_table(rows):
    notes = {}
    lines = [
        [f"{pattern.removeprefix('map of ')}, block {block}", *(cell(cells.get(b), notes) for b in names.BUILDERS)]
        for pattern in names.MAPS
        for (_, block), cells in grouped(rows, pattern).items()
    ]
    return titled(["mask", *names.BUILDERS], lines, notes)
