"""One kernel in several orders of its programs, on a GPU: python -m report.orders_gpu.

First times, in turns; then, with Nsight Compute, what each order found in L2. Rows go to orders.csv as they finish, and
`python -m report.orders` puts them on its page. Exit status 0 done, 2 bad arguments, 130 stopped.
"""

import json
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

from report import order_rows, runner, table
from report.order_rows import PLAIN, QUICK, WHOLE, OrderRow
from report.resume import RESULTS, Files, Parser, check_positive, guarded, measure, slug, summary

COMMAND = (sys.executable, "-m", "report.order_bench")
FILES = Files(order_rows.FILE, order_rows.MACHINE, OrderRow)
PROGRAM = (sys.executable, str(Path(__file__).with_name("order_profiled.py")))
KERNEL = "flash_attention_kernel"
METRICS = {
    "all": "lts__t_sector_hit_rate.pct",
    "read": "lts__t_sectors_op_read.sum",
    "found": "lts__t_sectors_op_read_lookup_hit.sum",
    "dram": "dram__bytes_read.sum",
}
SECTOR, MIB = 32, 2**20


def parse(argv):
    parser = Parser(prog="python -m report.orders_gpu", description="Measure orders of programs.", allow_abbrev=False)
    add = parser.add_argument
    add("--quick", action="store_true", help="a small shape in Triton's interpreter on the CPU, without Nsight Compute")
    add("--out", type=Path, metavar="DIR", help="where the rows go (default: report/results/ and the GPU's name)")
    add("--budget", type=float, metavar="SECONDS", default=1.0, help="of sampling for an order at a shape (1)")
    add("--limit", type=float, metavar="SECONDS", default=120.0, help="for one step of an order (120)")
    add("--seconds", type=float, metavar="SECONDS", help="begin no new shape after this long")
    add("--again", action="store_true", help="measure finished rows again")
    add("--no-profile", action="store_true", help="times only")
    options = parser.parse_args(argv)
    options.device = "cpu" if options.quick else "cuda"
    check_positive(options)
    return options


def companions(point, asked, writer):
    row = writer.rows.get(point.row(PLAIN).key)
    return [PLAIN] if PLAIN not in asked and row is not None and row.status == "ok" else []


def run(options, command):
    kernels = {point: point.kernels for point in (QUICK if options.quick else WHOLE)}
    bench = runner.Runner(options.device, options.limit, command, row=OrderRow, interpreted=True)
    try:
        folder = options.out or RESULTS / ("quick" if options.quick else slug(bench.machine["gpu"]))
        path, rows = measure(options, bench, kernels, folder, FILES, companions)
    finally:
        bench.close()
    print(summary(path, rows))
    if not options.quick and not options.no_profile:
        profile(path, kernels, options.again)
    return 0


# What was found in L2 ------------------------------------------------------------------------------------------------


def profile(path, kernels, again):
    """Look into the timed orders of each point with Nsight Compute, and write what it counted into their rows."""
    from grader.gpu.profile import measure as watching
    from grader.gpu.profile import ncu

    tool = ncu.find()
    if tool is None:
        print("report: Nsight Compute (ncu) is not here; the columns of L2 stay blank", file=sys.stderr)
        return
    writer = table.Writer(path, OrderRow)
    for point, names in kernels.items():
        rows = [writer.rows.get(point.row(name).key) for name in names]
        if any(row is None or row.status != "ok" for row in rows):
            continue
        if not again and all(row.l2_hits is not None for row in rows):
            continue
        try:
            launches = counted(tool, point)
        except (ncu.NcuFailed, watching.Failed) as failure:
            print(f"report: {point.title} was not profiled: {failure}", file=sys.stderr)
            continue
        for row, launch in zip(rows, launches, strict=True):
            writer.add(replace(row, **found(launch.values)))
        print(f"profiled: {point.title}", file=sys.stderr, flush=True)
    writer.tidy()


def counted(tool, point):
    """The ncu.Launches of the kernel, one for each of the point's orders."""
    from grader.gpu.profile import measure as watching
    from grader.gpu.profile import ncu

    metrics = list(METRICS.values())
    with tempfile.TemporaryDirectory(prefix="orders-") as folder:
        log = Path(folder) / "ncu.log"
        for _ in range(2):
            command = ncu.command(tool, log, metrics, [*PROGRAM, json.dumps(asdict(point))])
            _, printed = watching.watch(command)
            said = log.read_text(errors="replace") if log.exists() else printed
            unknown = ncu.refused(said, metrics)
            if not unknown:
                break
            metrics = [name for name in metrics if name not in unknown]
        launches = [launch for launch in ncu.read(said) if KERNEL in launch.kernel]
    if len(launches) != len(point.kernels):
        raise ncu.NcuFailed(f"{len(launches)} launches were profiled, and there are {len(point.kernels)} orders")
    return launches


def found(values):
    """The columns of a row from the counters of its launch; None for what this GPU does not count."""
    hits, read, of_read, dram = (values.get(METRICS[name]) for name in ("all", "read", "found", "dram"))
    return {
        "l2_hits": hits,
        "read_hits": 100 * of_read / read if read and of_read is not None else None,
        "l2_reads": None if read is None else read * SECTOR / MIB,
        "dram_reads": None if dram is None else dram / MIB,
    }


def main(argv=None, command=COMMAND):
    return guarded(lambda: run(parse(argv), command), "report", OrderRow.COMMAND)


if __name__ == "__main__":
    sys.exit(main())
