"""Block-sparse attention as a page: python -m report.sparse_page writes BLOCK_SPARSE.md and its pictures. No torch.

Of results/h200/block_sparse.csv alone, finished or not: what was not measured is blank. With --check exit status 1
where the page or a picture is not what the CSV gives; 2, with one sentence, where it cannot be read.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from report import sparse_points as names
from report import table
from report.benchmarks import FACTS, PROTOCOL
from report.measured import PUBLISHED, REPORT, geometric_mean, length, read_machine
from report.sparse_points import SparseRow
from report.sparse_tables import density_table, full_table, maps_table, pattern_table
from report.sparse_targets import TARGETS
from report.table import BadTable
from report.tables import plain
from report.tables import table as markdown

PAGE = "BLOCK_SPARSE.md"
OURS = (*names.STEPS, "fast")
BEFORE = {"prefetch": "simple", "shared_kv": "prefetch", "swizzled": "prefetch", "fast": "swizzled"}  # builds on

TEXT = """# Block-sparse attention

What the tile lists of the lab `solutions/x1_block_sparse.py` bring on a GPU: four plain Triton kernels, one idea each
(`solutions/block_sparse_steps.py`), and the fast form (`solutions/fast_block_sparse.py`), beside FlexAttention and
dense attention. Made by `python -m report.sparse_page` out of `results/h200/block_sparse.csv`; edit nothing here.
B=1 H=8 D=64, float16. What is blank was not measured.

{machine}

## What was asked, and the worst row

{targets}

Worst: of all rows that count, the one that is furthest from what was asked; "of linear" is the time at density 1 times
the density, over the time.

What falls short: documents are FULL tiles but for a few, and those both compute without a mask. At 4k tokens and more
the fast form does so at the speed of `fast_attention.py`, as the map that is all FULL shows, and FlexAttention is not
far behind: 1.5 times its speed would take a dense kernel that is faster than ours and cuDNN's. Up to 2k a launch, the
first loads and the longest list are most of the time, whatever the rest of the mask hides.

## One idea at a time

How many times as fast as compiled FlexAttention: the geometric mean over the five patterns and both sizes of tiles.

{ladder}

**simple**: the lab's kernel. A tile is loaded when it is needed, and everything waits for it.

**prefetch**: the same kernel, with three tiles on their way while one is computed (`num_stages=3`).
{prefetch}

**shared_kv**: a program takes two rows of tiles and walks the union of their lists: each tile of K and V is loaded once
for both, at the price of computing what only one of them sees.
{shared_kv}

**swizzled**: prefetch, with the longest lists first and the heads that fit into L2 together side by side, so that what
starts last ends soon.
{swizzled}

**fast**: the fast form for Hopper: a producer warp, consumers, the copy engine, as in `STEPS.md`.
{fast}
{pictures}
## How it was measured

FlexAttention is compiled with its own tiles for blocks of 128 tokens; 64 does not compile on Hopper with the tiles that
it chooses, so rows with tiles of 64 compare with its 128 as well. For random masks its `mask_mod` reads a table of
N x N booleans: packed bits or a hash took 4 to 6 times as long there. It is asked for o alone; ours give lse too. cuDNN
and `fast_attention.py` compute all pairs: their TFLOP/s are of all pairs, all others' of the visible ones. SDPA with a
mask of N x N booleans is asked up to 4k. Lists, orders of rows and block masks are made once, outside the timing. A
kernel's o and lse are compared with float64, on rows of each kind of tile, before it is timed; one that is wrong has no
time.

{protocol}

## Every row

Times in us: the median, and under it p20 and p80 where they lie far apart. Bold: the fastest that honours the mask.

{every}

## A map that is all FULL

What tile lists cost where nothing can be skipped: times in us.

{full}

## Time against density

16k tokens, FULL blocks at random places of the whole square. Of linear: the time at density 1 times the density, over
the time; 1.00 is no cost beyond the work.

{density}

## Building the map

16k tokens, on the GPU, in us of wall clock, until the map is there.

{maps}
"""


def load(folder):
    """(rows, facts of their machine); ([], {}) where nothing was measured. Raises BadTable."""
    path = folder / names.FILE
    rows = table.read(path, SparseRow) if path.is_file() else []
    return rows, read_machine(folder / names.MACHINE) if rows else {}


def page(rows, machine):
    means = {kernel: by_length(rows, kernel) for kernel in OURS}
    return TEXT.format(
        machine=machine_line(machine),
        targets=markdown(
            ["figure (H200)", "asked", "worst", "where", "verdict"], [target.line(rows) for target in TARGETS]
        ),
        ladder=ladder(means),
        **{kernel: step(means, before, kernel) for kernel, before in BEFORE.items()},
        pictures=pictures(rows),
        protocol=protocol(machine),
        every="\n\n".join(filter(None, (pattern_table(rows, pattern) for pattern in names.PATTERNS))) or "Nothing yet.",
        full=full_table(rows),
        density=density_table(rows),
        maps=maps_table(rows),
    )


def machine_line(machine):
    if not machine:
        return "**Nothing has been measured yet**: `python -m report.block_sparse`, on an H200."
    facts = (
        f"{words} {plain(machine[name])}" for name, words in FACTS.items() if machine.get(name) and name != "clocks"
    )
    return "; ".join(facts) + "."


def protocol(machine):
    told = machine.get("protocol", {})
    lines = (words(told[name]).replace("`fast`", "FlexAttention") for name, words in PROTOCOL.items() if name in told)
    return "\n".join(f"- {line}" for line in lines)


# The story ------------------------------------------------------------------------------------------------------------


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
    at = " and ".join(f"{gains[n]:.2f} at {length(n)}" for n in dict.fromkeys((both[0], both[-1])))
    return f"Over *{before}*: {at} (between {low:.2f} and {high:.2f})."


# Pictures -------------------------------------------------------------------------------------------------------------


def planned(rows):
    """{file name: (words, function of report.sparse_figures, its arguments)} of what there are rows for."""
    found = {}
    for block in sorted({row.block for row in rows if row.pattern in names.PATTERNS and row.over_flex is not None}):
        words = f"speed over FlexAttention by pattern and N, tiles of {block}"
        found[f"block-sparse-{block}.svg"] = words, "speedups", (block,)
    if any(row.pattern == names.BY_DENSITY and row.over_dense is not None for row in rows):
        found["block-sparse-density.svg"] = "time against density", "density", ()
    return found


def pictures(rows):
    return "".join(f"\n![{words}](figures/{name})\n" for name, (words, _, _) in planned(rows).items())


def draw(rows, folder):
    from report import sparse_figures
    from report.drawing import house_style, save

    for name, (_, function, arguments) in planned(rows).items():
        with house_style():
            figure = getattr(sparse_figures, function)(rows, *arguments)
        save(figure, folder / name)


def drifted(rows, machine):
    """Of the page and the pictures, those that are not what the CSV gives; pictures of another matplotlib pass."""
    import matplotlib

    path = REPORT / PAGE
    found = [] if path.is_file() and path.read_text() == page(rows, machine) else [path]
    with tempfile.TemporaryDirectory() as folder:
        draw(rows, Path(folder))
        for fresh in sorted(Path(folder).iterdir()):
            kept = REPORT / "figures" / fresh.name
            drawn = kept.read_text() if kept.is_file() else ""
            if not drawn or (f"Matplotlib v{matplotlib.__version__}," in drawn and fresh.read_text() != drawn):
                found.append(kept)
    return found


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m report.sparse_page", description="Write BLOCK_SPARSE.md.")
    parser.add_argument(
        "--check", action="store_true", help="only say whether page and pictures are what the CSV gives"
    )
    check = parser.parse_args(argv).check
    try:
        rows, machine = load(PUBLISHED)
        if check:
            stale = drifted(rows, machine)
            for path in stale:
                print(f"{path} is not what {names.FILE} gives: `python -m report.sparse_page` writes it anew")
            return 1 if stale else 0
        (REPORT / PAGE).write_text(page(rows, machine))
        draw(rows, REPORT / "figures")
    except (OSError, BadTable) as error:
        print(f"report: {error}", file=sys.stderr)
        return 2
    print(f"written: {REPORT / PAGE} and {len(planned(rows))} pictures")
    return 0


if __name__ == "__main__":
    sys.exit(main())
