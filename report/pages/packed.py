"""Packed attention of images as a page, PACKED.md, with its pictures; blank where a row is missing. No torch."""

import statistics

from report.pages.measured import geometric_mean, load_study
from report.pages.tables import machine_words, number, plain, protocol_lines, table, times
from report.pages.template import render
from report.places import PUBLISHED
from report.studies import packed as names

PAGES = "PACKED.md", "PACKED_ROWS.md"
EVEN = [name for name in names.PATTERNS if "global" not in name]  # no row of blocks sees all
FIGURES = {
    "figures/packed-speed.svg": ("speed over cuDNN's dense attention against the tokens of an image", "speed"),
    "figures/packed-sparsity.svg": ("speed over the same kernel with all blocks visible, by the part hidden", "hidden"),
}


def files(folder=PUBLISHED):
    """{path: text} of the page and its pictures; raises BadTable."""
    rows, machine = load_study(names.STUDY, folder)
    return pages(rows, machine) | drawn(rows)


def pages(rows, machine):
    shapes = dict.fromkeys((row.heads, row.head_dim) for row in rows)
    facts = dict(
        machine=machine_words(machine), rows=rows,
        patterns="\n".join(f"- *{name}*: {words}" for name, words in names.PATTERNS.items()),
        guides=[(of(shape), guide(rows, *shape)) for shape in shapes],
        pays=pays_table(rows, shapes), needed=needed_table(rows, shapes), dense=dense_table(rows, shapes),
        host=host(rows), at_random=at_random(rows), rows_of_192=rows_of_192(rows),
        pictures=[f"![{words}]({name})" for name, (words, _) in FIGURES.items()],
        protocol=protocol_lines(machine, "cuDNN"),
        every=[(f"{batch} x {of(shape)}", every_table(rows, *shape, batch)) for shape in shapes
               for batch in dict.fromkeys(row.batch for row in rows)],
    )  # fmt: skip
    return {page: render(page, **facts) for page in PAGES}


def of(shape):
    return f"{shape[0]} heads of {shape[1]}"


# The guide ------------------------------------------------------------------------------------------------------------


def chosen(rows, **values):
    return [row for row in rows if all(getattr(row, name) == value for name, value in values.items())]


def best_block(rows, pattern):
    """(block, speed over cuDNN: the geometric mean over batches) of the fastest block; None without any row."""
    means = {}
    for block in names.BLOCKS:
        found = [row.over_cudnn for row in rows if row.kernel == names.arm(pattern, block) and row.over_cudnn]
        if found:
            means[block] = geometric_mean(found)
    return max(means.items(), key=lambda item: item[1]) if means else None


def sparse_patterns():
    return [name for name in names.PATTERNS if name != "dense"]


def guide(rows, heads, head_dim):
    """A line for each image, a column for each pattern: `128: 2.02`, the fastest block and its speed over cuDNN."""
    lines = []
    for tokens in dict.fromkeys(row.tokens for row in rows):
        some = chosen(rows, tokens=tokens, heads=heads, head_dim=head_dim)
        line = [f"{tokens:,}"]
        for pattern in sparse_patterns():
            best = best_block(some, pattern)
            hidden = any(row.sparsity for row in some if names.parts(row.kernel)[0] == pattern)
            words = "" if best is None else "dense" if best[1] < 1 else f"{best[0]}: {best[1]:.2f}"
            line.append(words if hidden or best is None else "hides nothing")
        lines.append(line)
    return table(["tokens", *sparse_patterns()], lines)


def pays_table(rows, shapes):
    """From how many tokens on a pattern's best block is faster than cuDNN in each batch, beyond the interval."""
    lines = []
    for pattern in sparse_patterns():
        line = [pattern]
        for heads, head_dim in shapes:
            paying = None
            for tokens in sorted({row.tokens for row in rows}, reverse=True):
                if not pays(chosen(rows, tokens=tokens, heads=heads, head_dim=head_dim), pattern):
                    break
                paying = tokens
            line.append(f"{paying:,}" if paying else "none of these")
        lines.append(line)
    return table(["pattern", *map(of, shapes)], lines) if rows else ""


def pays(rows, pattern):
    """Whether that block which is fastest on the whole hides something and is faster than cuDNN in each batch."""
    best = best_block(rows, pattern)
    found = [row for row in rows if best and row.kernel == names.arm(pattern, best[0])]
    return bool(found) and all(row.sparsity > 0 and row.over_cudnn_low > 1 for row in found)


def by_tokens(rows, shapes, words):
    """A line for each image, a column for each shape of heads: words(the rows of both)."""
    lines = []
    for tokens in dict.fromkeys(row.tokens for row in rows):
        of_image = [chosen(rows, tokens=tokens, heads=heads, head_dim=head_dim) for heads, head_dim in shapes]
        lines.append([f"{tokens:,}", *map(words, of_image)])
    return table(["tokens", *map(of, shapes)], lines) if rows else ""


def needed_table(rows, shapes):
    """The part of all blocks that must be hidden so that every row of EVEN which hides as much is faster than cuDNN."""

    def needed(some):
        some = [row for row in some if names.parts(row.kernel)[0] in EVEN and row.over_cudnn is not None]
        slower = max((row.block_sparsity for row in some if row.over_cudnn <= 1), default=0.0)
        enough = [row.block_sparsity for row in some if row.block_sparsity > slower]
        return f"{100 * min(enough):.0f} %" if enough else "more than was tried"

    return by_tokens(rows, shapes, needed)


def dense_table(rows, shapes):
    """Our kernel with every block visible, over cuDNN: the range over batches."""

    def dense(some):
        found = [row.over_cudnn for row in chosen(some, kernel=names.arm("dense", 128)) if row.over_cudnn is not None]
        return f"{min(found):.2f} to {max(found):.2f}" if found else ""

    return by_tokens(rows, shapes, dense)


def rows_of_192(rows):
    """Of blocks of 192 at head dim 64, all visible, beside 128: {"most": times the time, "faster": where}, or None."""
    both = {}
    for row in rows:
        if row.head_dim == 64 and row.kernel in (names.arm("dense", 128), names.arm("dense", 192)) and row.median_us:
            both.setdefault((row.tokens, row.batch), {})[row.kernel] = row.median_us
    found = {key: us[names.arm("dense", 192)] / us[names.arm("dense", 128)] for key, us in both.items() if len(us) == 2}
    less = [
        f"{ratio:.2f} with {batch} image{'s' if batch > 1 else ''} of {tokens:,} tokens"
        for (tokens, batch), ratio in found.items() if ratio < 1
    ]  # fmt: skip
    return {"most": max(found.values()), "faster": "; ".join(less)} if found else None


def at_random(rows):
    """Words on random patterns at head dim 128, where every block hides something: which block is the fastest."""
    found = {}
    for row in rows:
        pattern, block = names.parts(row.kernel)
        if row.head_dim == 128 and pattern and pattern.startswith("random") and row.median_us and row.sparsity:
            found.setdefault((pattern, row.tokens, row.batch), {})[block] = row.median_us
    found = {case: us for case, us in found.items() if len(us) == len(names.BLOCKS)}
    if not found:
        return None
    least = min(tokens for _, tokens, _ in found)
    firsts = [min(us, key=us.get) for us in found.values()]
    shares = ", ".join(f"{block} in {firsts.count(block)}" for block in names.BLOCKS)
    most = max(max(us.values()) / min(us.values()) for us in found.values())
    of_all = f"of {len(found)} cases, from {least:,} tokens on, the fastest is"
    return f"{of_all}\n{shares}, and the slowest takes up to {most:.2f} times its time"


def host(rows):
    """{"ours", "cudnn", "least"}: median us of the host for a call, and the least time of ours on the GPU."""
    ours = [row for row in rows if names.parts(row.kernel)[0] and row.host_ms is not None]
    cudnn = [row.host_ms for row in rows if row.kernel == names.CUDNN and row.host_ms is not None]
    if not ours or not cudnn:
        return None
    return {
        "ours": number(1e3 * statistics.median(row.host_ms for row in ours)),
        "cudnn": number(1e3 * statistics.median(cudnn)),
        "least": number(min(row.median_us for row in ours)),
    }


# Every row ------------------------------------------------------------------------------------------------------------


def every_table(rows, heads, head_dim, batch):
    lines = []
    for tokens in dict.fromkeys(row.tokens for row in rows):
        cells = {row.kernel: row for row in chosen(rows, tokens=tokens, heads=heads, head_dim=head_dim, batch=batch)}
        peers = ", ".join(f"{name} {cell(cells.get(name))}" for name in names.DENSE if name in cells)
        if peers:
            lines.append([f"**{tokens:,}**", peers, *[""] * (3 * len(names.BLOCKS))])
        for pattern in names.PATTERNS:
            found = [cells.get(names.arm(pattern, block)) for block in names.BLOCKS]
            if any(found):
                lines.append([f"{tokens:,}", pattern, *(text for row in found for text in three(row))])
    head = [f"{block}{words}" for block in names.BLOCKS for words in (": us", ": hidden, %", ": over cuDNN")]
    return table(["tokens", "pattern", *head], lines, left=2)


def cell(row):
    """`12.3 (12.1 to 12.9)`"""
    if row.status != "ok":
        return f"{row.status}: {plain(row.reason)}"
    return f"{number(row.median_us)} ({number(row.p20_us)} to {number(row.p80_us)})"


def three(row):
    """The time, what is hidden in tokens and in blocks, and the speed over cuDNN."""
    if row is None:
        return ["", "", ""]
    return [cell(row), f"{100 * row.sparsity:.0f}, {100 * row.block_sparsity:.0f}", times(row.ratio("over_cudnn"))]


# Pictures -------------------------------------------------------------------------------------------------------------


def drawn(rows):
    """{path: SVG}"""
    if not rows:
        return {}
    from report.pages import packed_pictures
    from report.pages.drawing import svg

    return {name: svg(getattr(packed_pictures, function)(rows)) for name, (_, function) in FIGURES.items()}
