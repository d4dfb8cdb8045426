"""Block-sparse attention measured: python -m report.block_sparse. Exit status 0 done, 2 bad arguments, 130 stopped.

Rows go to block_sparse.csv as they finish, each safe on the disk; the same command measures what is not there yet.
`python -m report.sparse_page` makes the page and the pictures of them.
"""

import sys
from pathlib import Path

from report import runner, table
from report import sparse_points as names
from report.resume import (
    RESULTS,
    BadArguments,
    Files,
    Parser,
    check_positive,
    guarded,
    left_to_measure,
    measure,
    progress,
    slug,
    summary,
)
from report.sparse_points import QUICK, WHOLE, SparseRow
from report.sweep import choose, sizes

COMMAND = (sys.executable, "-m", "report.sparse_bench")
FILES = Files(names.FILE, names.MACHINE, SparseRow)
PARTS = {"patterns": names.PATTERNS, "full": (names.FULL_MAP,), "density": (names.BY_DENSITY,), "maps": names.MAPS}


def parse(argv):
    parser = Parser(
        prog="python -m report.block_sparse", description="Measure block-sparse attention.", allow_abbrev=False
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="small shapes in Triton's interpreter on the CPU: see the tables work")
    add("--parts", metavar="LIST", help=f"of {', '.join(PARTS)} (default: all)")
    add("--patterns", metavar="LIST", help='patterns, like "documents,random FP" (default: all)')
    add("--lengths", metavar="LIST", help="tokens, like 512,16k (default: all)")
    add("--only", metavar="LIST", help='kernels, like "fast,swizzled" (default: all)')
    add("--out", type=Path, metavar="DIR", help="where the rows go (default: report/results/ and the GPU's name)")
    add("--budget", type=float, metavar="SECONDS", default=0.2, help="of sampling for a kernel at a point (0.2)")
    add("--limit", type=float, metavar="SECONDS", default=120.0, help="for one step of a kernel (120)")
    add("--seconds", type=float, metavar="SECONDS", help="begin no new point after this long")
    add("--again", action="store_true", help="measure finished rows again")
    add("--prepare", type=int, metavar="N", help="only compile ahead what is left, in N processes")
    add("--list", action="store_true", help="say what would be measured, and stop")
    options = parser.parse_args(argv)
    options.device = "cpu" if options.quick else "cuda"
    check_positive(options)
    return options


def plan(options):
    """{point: names of the kernels asked there}; raises BadArguments."""
    whole = QUICK if options.quick else WHOLE
    chosen = choose(options.parts, PARTS, "part")
    asked = {pattern for part in chosen for pattern in part}
    asked &= set(choose(options.patterns, {point.pattern: point.pattern for point in whole}, "pattern"))
    lengths = choose(options.lengths, sizes(sorted({point.n for point in whole})), "length")
    known = dict.fromkeys(name for point in whole for name in point.kernels)
    only = choose(options.only, {name: name for name in known}, "kernel")
    points = [point for point in whole if point.pattern in asked and point.n in lengths]
    kernels = {point: [name for name in point.kernels if name in only] for point in points}
    return {point: chosen for point, chosen in kernels.items() if chosen}


def companions(point, asked, writer):
    """What the ratios are taken to, timed again where its own row is there already."""
    bases = ["fast at 1", "swizzled at 1"] if point.pattern == names.BY_DENSITY else [*names.WITHOUT_MASK, names.FLEX]
    rows = {name: writer.rows.get(point.row(name).key) for name in bases if name not in asked}
    return [name for name, row in rows.items() if row is not None and row.status == "ok"]


def run(options, command):
    def new():
        return runner.Runner(options.device, options.limit, command, row=SparseRow, interpreted=True)

    kernels = plan(options)
    if not kernels:
        raise BadArguments("nothing is left to measure with these options; --list shows what there is")
    if options.list:
        for point, asked in kernels.items():
            print(f"{point.title}: {', '.join(asked)}")
        print(f"{sum(map(len, kernels.values()))} rows at {len(kernels)} points")
        return 0
    if options.prepare:
        if options.out and (options.out / FILES.csv).exists():
            kernels = left_to_measure(kernels, table.Writer(options.out / FILES.csv, SparseRow), options.again)
        with progress(len(kernels)) as show:
            runner.prepare(new, kernels, kernels.get, options.prepare, lambda point: show(point.title, True))
        return 0
    bench = new()
    try:
        folder = options.out or RESULTS / ("quick" if options.quick else slug(bench.machine["gpu"]))
        path, rows = measure(options, bench, kernels, folder, FILES, companions)
    finally:
        bench.close()
    print(summary(path, rows))
    return 0


def main(argv=None, command=COMMAND):
    return guarded(lambda: run(parse(argv), command), "report", SparseRow.COMMAND)


if __name__ == "__main__":
    sys.exit(main())
