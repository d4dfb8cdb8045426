"""The seven problems beside each other on a GPU: python -m report.ladder.

One shape, two lengths: P1 to P7 and our fast form of P3 to P7, in turns, on the same inputs. Rows go to ladder.csv as
they finish; `python -m report.write_up` puts them into REPORT.md. Exit status 0 done, 2 bad arguments, 130 stopped.
"""

import sys
from pathlib import Path

from report import ladder_rows, runner
from report.ladder_rows import FULL, NAIVE, QUICK, WHOLE, LadderRow
from report.resume import RESULTS, Files, Parser, check_positive, guarded, measure, slug, summary

COMMAND = (sys.executable, "-m", "report.ladder_bench")
FILES = Files(ladder_rows.FILE, ladder_rows.MACHINE, LadderRow)


def parse(argv):
    parser = Parser(prog=LadderRow.COMMAND, description="Time the seven problems in turns.", allow_abbrev=False)
    add = parser.add_argument
    add("--quick", action="store_true", help="a small shape in Triton's interpreter on the CPU")
    add("--out", type=Path, metavar="DIR", help="where the rows go (default: report/results/ and the GPU's name)")
    add("--budget", type=float, metavar="SECONDS", default=1.0, help="of sampling for a rung at a length (1)")
    add("--limit", type=float, metavar="SECONDS", default=120.0, help="for one step of a rung (120)")
    add("--again", action="store_true", help="measure finished rows again")
    options = parser.parse_args(argv)
    options.device = "cpu" if options.quick else "cuda"
    check_positive(options)
    return options


def companions(point, asked, writer):
    """The rungs that all are compared with, where they are finished already."""
    done = [name for name in (NAIVE, FULL) if point.row(name).key in writer.rows]
    return [name for name in done if name not in asked and writer.rows[point.row(name).key].status == "ok"]


def run(options, command):
    points = {point: point.kernels for point in (QUICK if options.quick else WHOLE)}
    bench = runner.Runner(options.device, options.limit, command, row=LadderRow, interpreted=True)
    try:
        folder = options.out or RESULTS / ("quick" if options.quick else slug(bench.machine["gpu"]))
        path, rows = measure(options, bench, points, folder, FILES, companions)
    finally:
        bench.close()
    print(summary(path, rows))
    return 0


def main(argv=None, command=COMMAND):
    return guarded(lambda: run(parse(argv), command), "report", LadderRow.COMMAND)


if __name__ == "__main__":
    sys.exit(main())
