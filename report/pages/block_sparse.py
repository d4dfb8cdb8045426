"""Block-sparse attention as a page, BLOCK_SPARSE.md, with its pictures; blank where a row is missing. No torch."""

from collections import Counter
from functools import partial

from report.pages import block_sparse_tables as tables
from report.pages.block_sparse_targets import TARGETS, full_map, place
from report.pages.measured import geometric_mean, length, load_study
from report.pages.tables import PROTOCOL, machine_words, number, protocol_lines
from report.pages.tables import table as markdown
from report.pages.template import render
from report.places import PUBLISHED
from report.studies import block_sparse as names

PAGES = "BLOCK_SPARSE.md", "BLOCK_SPARSE_ROWS.md"
NOTHING = "**Nothing has been measured yet**: `python -m report block_sparse`, on an H200."
FEW = 2  # rows of one pattern that are named each
OURS = (*names.STEPS, "fast")
BEFORE = {
    "prefetch": "simple",
    "row_pairs": "prefetch",
    "longest_first": "prefetch",
    "fast": "longest_first",
}  # builds on


def files(folder=PUBLISHED):
    """{path: text} of the page and its pictures; raises BadTable."""
    rows, machine = load_study(names.STUDY, folder)
    return pages(rows, machine) | drawn(rows)


def pages(rows, machine):
    means = {kernel: by_length(rows, kernel) for kernel in OURS}
    told = machine.get("protocol", {})
    facts = dict(
        machine=f"{machine_words(machine)}." if machine else NOTHING,
        targets=markdown(
            ["figure (H200)", "aim", "worst", "where", "met in"], [target.line(rows) for target in TARGETS]
        ),
        short=falls_short(rows),
        full_speed=min((1 / full_map(row) for row in rows if full_map(row) and row.n == 16384), default=None),
        ladder=ladder(means),
        **{kernel: step(means, before, kernel) for kernel, before in BEFORE.items()},
        pictures=[f"![{words}]({name})" for name, (words, *_) in planned(rows).items()],
        protocol=protocol_lines({"protocol": {name: told[name] for name in PROTOCOL if name in told}}, "FlexAttention"),
        every=tables_of_each(partial(tables.pattern_table, rows)),
        tflops=tables_of_each(partial(tables.each_kernel, rows, show=tables.tflops)),
        speed_ups=tables_of_each(partial(tables.each_kernel, rows, show=tables.speed_up)),
        fillings=fillings(rows),
        full=tables.full_table(rows),
        density=tables.density_table(rows),
        maps=tables.maps_table(rows),
    )
    return {page: render(page, **facts) for page in PAGES}


def tables_of_each(table_of):
    """The tables of all patterns, one under the other."""
    return "\n\n".join(filter(None, map(table_of, names.PATTERNS + names.PUBLISHED))) or "Nothing yet."


def fillings(rows):
    """The random blocks as ours and as published: sparsity, and the fast form's time and speed over FlexAttention."""
    found = {(row.pattern, row.n, row.block): row for row in rows if row.kernel == "fast"}
    lines = []
    for (pattern, n, block), theirs in found.items():
        ours = found.get((pattern.removesuffix(" published"), n, block))
        if pattern in names.PUBLISHED and ours and ours.over_flex and theirs.over_flex:
            pairs = [(f"{row.sparsity:.3f}", number(row.median_us), f"{row.over_flex:.2f}") for row in (ours, theirs)]
            name = f"{pattern.removesuffix(' published')} {length(n)}, {block}"
            lines.append([name, *(text for pair in zip(*pairs, strict=True) for text in pair)])
    head = ["pattern, N, block", "sparsity: ours", "published", "fast, us: ours", "published",
            "over FlexAttention: ours", "published"]  # fmt: skip
    return markdown(head, lines) if lines else "Nothing yet."


# The story ------------------------------------------------------------------------------------------------------------


def falls_short(rows):
    """`12 rows of documents, and causal 16k, block 128 (1.49 x)`: what misses the first target; empty for none."""
    target = TARGETS[0]
    short = [row for row in rows if (figure := target.figure(row)) is not None and not target.holds(figure)]
    counts = Counter(row.pattern for row in short)
    said = [f"{count} rows of {pattern}" for pattern, count in counts.items() if count > FEW]
    said += [f"{place(row)} ({row.over_flex:.2f} x)" for row in short if counts[row.pattern] <= FEW]
    return " and ".join([", ".join(said[:-1]), said[-1]] if len(said) > 1 else said)


def by_length(rows, kernel):
    """{n: [over_flex of each row of that kernel]} over the five patterns."""
    found = {}
    for row in rows:
        if row.kernel == kernel and row.pattern in names.PATTERNS and row.over_flex is not None:
            found.setdefault(row.n, []).append(row.over_flex)
    return found


def ladder(means):
    lengths = sorted({n for found in means.values() for n in found})
    lines = []
    for kernel, found in means.items():
        values = [value for n in lengths for value in found.get(n, [])]
        cells = [f"{geometric_mean(found[n]):.2f}" if n in found else "" for n in lengths]
        lines.append([kernel, *cells, f"{geometric_mean(values):.2f}" if values else ""])
    return markdown(["kernel", *map(length, lengths), "all"], lines)


def step(means, before, kernel):
    """What an idea brought over the one before, as far as both were measured."""
    both = sorted(set(means[before]) & set(means[kernel]))
    if not both:
        return ""
    gains = {n: geometric_mean(means[kernel][n]) / geometric_mean(means[before][n]) for n in both}
    low, high = min(gains.values()), max(gains.values())
    at = ", ".join(f"{gains[n]:.2f} at {length(n)}" for n in dict.fromkeys((both[0], both[-1])))
    return f"Over *{before}*: {at}; at all lengths {low:.2f} to {high:.2f}."


# Pictures -------------------------------------------------------------------------------------------------------------


def planned(rows):
    """{path: (words, function of block_sparse_pictures, its arguments)} of what there are rows for."""
    found = {}
    for block in sorted({row.block for row in rows if row.pattern in names.PATTERNS and row.over_flex is not None}):
        words = f"speed over FlexAttention by pattern and N, tiles of {block}"
        found[f"figures/block-sparse-{block}.svg"] = words, "speedups", (block,)
    if any(row.pattern == names.BY_DENSITY and row.over_dense is not None for row in rows):
        found["figures/block-sparse-density.svg"] = "time against density", "density", ()
    return found


def drawn(rows):
    """{path: SVG}"""
    from report.pages import block_sparse_pictures
    from report.pages.drawing import svg

    return {
        name: svg(getattr(block_sparse_pictures, function)(rows, *arguments))
        for name, (_, function, arguments) in planned(rows).items()
    }
