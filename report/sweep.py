"""The command behind `make report`: python -m report.sweep. Exit status 0 done, 2 bad arguments or files, 130 stopped.

Rows go to sweep.csv as they finish, each safe on the disk. A sweep that was stopped goes on where it was: the same
command again measures what is not there yet.
"""

import sys
from dataclasses import replace
from pathlib import Path

from report import runner, shapes, table
from report.resume import RESULTS, BadArguments, Parser, check_positive, guarded, measure, progress, slug, summary

BUDGET = {"cuda": 0.3, "cpu": 0.1}  # seconds of sampling for each kernel at a point
LIMIT = {"cuda": 180.0, "cpu": 60.0}  # seconds for one step of a kernel: compiling, say


def parse(argv):
    parser = Parser(
        prog="python -m report.sweep", description="Measure every kernel at every shape.", allow_abbrev=False
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="small shapes on the CPU, under a minute: see tables and plots work")
    add("--only", metavar="LIST", help='kernels, like "P4,SDPA flash" (default: all)')
    add("--tiers", metavar="LIST", help="shapes BxHxD, like 4x16x128,1x12x64, or none (default: all)")
    add("--lengths", metavar="LIST", help="tokens, like 512,16k (default: all)")
    add("--dtypes", metavar="LIST", help="float16, bfloat16 (default: both)")
    add("--windows", metavar="LIST", help="windows, like 128,1024 (default: all)")
    add("--no-windows", action="store_true", help="no windows")
    add("--out", type=Path, metavar="DIR", help="where sweep.csv goes (default: report/results/ and the GPU's name)")
    add("--budget", type=float, metavar="SECONDS", help="of sampling for a kernel at a point (default: 0.3)")
    add("--limit", type=float, metavar="SECONDS", help="for one step of a kernel before it is given up (default: 180)")
    add("--again", action="store_true", help="measure finished rows again")
    add("--prepare", type=int, metavar="N", help="only compile ahead, in N processes; nothing is measured")
    add("--device", choices=("cpu", "cuda"), help="where to measure (default: the GPU; with --quick the CPU)")
    add("--list", action="store_true", help="say what would be measured, and stop")
    options = parser.parse_args(argv)
    options.device = options.device or ("cpu" if options.quick else "cuda")
    check_positive(options)
    options.budget = options.budget or BUDGET[options.device]
    options.limit = options.limit or LIMIT[options.device]
    return options


def choose(text, known, what):
    """The entries of `known` (name -> value) that `text`, a comma-separated list, names; all where it is None."""
    if text is None:
        return tuple(known.values())
    chosen = []
    for name in filter(None, (part.strip() for part in text.split(","))):
        if name not in known:
            raise BadArguments(f"there is no {what} {name!r}; the {what}s are {', '.join(known)}")
        chosen.append(known[name])
    return tuple(dict.fromkeys(chosen))


def sizes(numbers):
    """{"512": 512, "16k": 16384, "16384": 16384}"""
    named = {f"{n // 1024}k" if n % 1024 == 0 else str(n): n for n in numbers}
    return named | {str(n): n for n in numbers}


def plan(options):
    """(points, kernels): the Points to measure and the kernels asked at each; raises BadArguments."""
    whole = shapes.QUICK if options.quick else shapes.FULL
    tiers = {tier.name: tier for tier in whole.tiers}
    lengths = choose(options.lengths, sizes(sorted({*whole.lengths, *whole.window_lengths})), "length")
    chosen = replace(
        whole,
        tiers=() if options.tiers == "none" else choose(options.tiers, tiers, "tier"),
        lengths=tuple(n for n in whole.lengths if n in lengths),
        window_lengths=tuple(n for n in whole.window_lengths if n in lengths),
        windows=() if options.no_windows else choose(options.windows, sizes(whole.windows), "window"),
        dtypes=choose(options.dtypes, {dtype: dtype for dtype in whole.dtypes}, "dtype"),
    )
    only = choose(options.only, {name: name for name in table.KERNELS}, "kernel")
    kernels = {point: [name for name in chosen.kernels(point) if name in only] for point in chosen.points()}
    return {point: names for point, names in kernels.items() if names}


def folder_for(options, gpu):
    if options.out is not None:
        return options.out
    return RESULTS / ("quick" if options.quick else slug(gpu or "cpu"))


def companions(point, names, writer):
    """Kernels with a row already, timed again beside `names` only so that their ratios come from one run."""
    status = {
        name: row.status
        for name in ("vectorised", "naive per head", "fast")
        if (row := writer.rows.get(point.row(name).key))
    }
    base = "naive per head" if status.get("vectorised") == "oom" else "vectorised"
    return [name for name in (base, "fast") if name not in names and status.get(name) == "ok"]


def run(options, command):
    def new():
        return runner.Runner(options.device, options.limit, command)

    kernels = plan(options)
    if not kernels:
        raise BadArguments("nothing is left to measure with these options; --list shows what there is")
    if options.list:
        for point, names in kernels.items():
            print(f"{point.title}: {', '.join(names)}")
        print(f"{sum(map(len, kernels.values()))} rows at {len(kernels)} points")
        return 0
    if options.prepare:
        with progress(len(kernels)) as show:
            runner.prepare(new, kernels, kernels.get, options.prepare, lambda point: show(point.title, True))
        return 0
    bench = new()
    try:
        path, rows = measure(options, bench, kernels, folder_for(options, bench.machine["gpu"]), companions=companions)
    finally:
        bench.close()
    print(summary(path, rows))
    return 0


def main(argv=None, command=runner.COMMAND):
    return guarded(lambda: run(parse(argv), command), "sweep", "python -m report.sweep")


if __name__ == "__main__":
    sys.exit(main())
