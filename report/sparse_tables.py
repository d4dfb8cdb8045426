"""Markdown tables of the rows of block_sparse.csv: every pattern, the full map, by density, and building maps."""

from report import sparse_points as names
from report.measured import Ratio, length
from report.sparse_targets import of_linear
from report.tables import number, plain, times
from report.tables import table as markdown


def cell(row, best=None, notes=None):
    """The time in us, or what went wrong; blank where nothing was measured."""
    if row is None or row.status == "not run":
        return ""
    if row.status != "ok":
        word = "wrong" if row.reason.startswith("wrong") else row.status
        return word if notes is None else f"{word} <sup>{notes.setdefault(plain(row.reason), len(notes) + 1)}</sup>"
    text = f"**{number(row.median_us)}**" if row is best else number(row.median_us)
    if row.p80_us - row.p20_us > 0.05 * row.median_us:
        text += f"<br><sub>{number(row.p20_us)} to {number(row.p80_us)}</sub>"
    return text


def over(row, what):
    """A Ratio of the row, or None."""
    middle = row and getattr(row, f"over_{what}")
    return Ratio(middle, getattr(row, f"over_{what}_low"), getattr(row, f"over_{what}_high")) if middle else None


def grouped(rows, pattern):
    """{(n, block): {kernel: row}} of one pattern, in order."""
    found = {}
    for row in sorted((row for row in rows if row.pattern == pattern), key=lambda row: (row.n, row.block)):
        found.setdefault((row.n, row.block), {})[row.kernel] = row
    return found


def with_notes(head, lines, notes):
    parts = [markdown(head, lines)]
    if notes:
        parts.append("<br>\n".join(f"<sup>{index}</sup> {reason}" for reason, index in notes.items()))
    return "\n\n".join(parts)


def pattern_table(rows, pattern):
    notes, lines = {}, []
    for (n, block), cells in grouped(rows, pattern).items():
        done = [row for name, row in cells.items() if row.median_us is not None and name not in names.WITHOUT_MASK]
        best, some = min(done, key=lambda row: row.median_us, default=None), (done or [None])[0]
        fast = cells.get("fast")
        facts = [f"{some.sparsity:.3f}", f"{some.density:.3f}"] if some else ["", ""]
        tflops = number(fast.tflops) if fast else ""
        times_us = (cell(cells.get(name), best, notes) for name in names.KERNELS)
        ratios = times(over(fast, "flex"), strong=True), times(over(fast, "cudnn"))
        lines.append([f"{length(n)}, {block}", *facts, *times_us, *ratios, tflops])
    head = ["N, block", "sparsity", "density", *names.KERNELS, "fast over Flex", "fast over cuDNN", "fast, TFLOP/s"]
    return f"**{pattern}**\n\n" + with_notes(head, lines, notes) if lines else ""


def full_table(rows):
    notes, kernels = {}, ["swizzled", "fast", names.DENSE, names.CUDNN]
    lines = [
        [f"{length(n)}, {block}", *(cell(cells.get(name), notes=notes) for name in kernels)]
        + [times(over(cells.get("fast"), what)) for what in ("dense", "cudnn")]
        for (n, block), cells in grouped(rows, names.FULL_MAP).items()
    ]
    head = ["N, block", *kernels, "fast: speed over fast_attention", "over cuDNN"]
    return with_notes(head, lines, notes) if lines else "Nothing yet."


def density_table(rows):
    notes, lines = {}, []
    groups = grouped(rows, names.BY_DENSITY)
    for (n, block), cells in groups.items():
        for density in names.DENSITIES:
            line = [f"{length(n)}, block {block}, {density}"]
            for kernel in names.SCALED:
                row = cells.get(f"{kernel} at {density}")
                linear = f"{of_linear(row):.2f}" if row and row.over_dense is not None else ""
                line += [cell(row, notes=notes), linear]
            lines.append(line)
    head = ["N, block, density", *(f"{name}{words}" for name in names.SCALED for words in (", us", ", of linear"))]
    return with_notes(head, lines, notes) if lines else "Nothing yet."


def maps_table(rows):
    notes = {}
    lines = [
        [
            f"{pattern.removeprefix('map of ')}, block {block}",
            *(cell(cells.get(b), notes=notes) for b in names.BUILDERS),
        ]
        for pattern in names.MAPS
        for (_, block), cells in grouped(rows, pattern).items()
    ]
    return with_notes(["mask", *names.BUILDERS], lines, notes) if lines else "Nothing yet."
