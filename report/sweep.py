"""The command behind `make report`: python -m report.sweep. Exit status 0 done, 2 bad arguments or files, 130 stopped.

Rows go to sweep.csv as they finish, each safe on the disk. A sweep that was stopped goes on where it was: the same
command again measures what is not there yet.
"""

import argparse
import itertools
import json
import re
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from report import runner, shapes, table
from report.table import BadTable

RESULTS = Path(__file__).resolve().parent / "results"
SAME_MACHINE = ("gpu", "torch", "triton")  # rows of one CSV share these
BUDGET = {"cuda": 0.3, "cpu": 0.1}  # seconds of sampling for each kernel at a point
KEPT = "every finished row is kept, and the same command goes on from there"
LIMIT = {"cuda": 180.0, "cpu": 60.0}  # seconds for one step of a kernel: compiling, say


class BadArguments(Exception):
    """An argument, a file or a machine that cannot be used; the text is one sentence."""


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise BadArguments(f"{message}; `python -m report.sweep --help` lists the options")


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
    for name in ("budget", "limit", "prepare"):
        value = getattr(options, name)
        if value is not None and not value > 0:
            raise BadArguments(f"--{name} must be more than 0; got {value:g}")
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


def slug(gpu):
    """`NVIDIA H200` -> `h200`: the name of the folder."""
    words = re.sub(r"[^a-z0-9]+", "-", gpu.lower()).strip("-").removeprefix("nvidia-")
    return words or "gpu"


def folder_for(options, gpu):
    if options.out is not None:
        return options.out
    return RESULTS / ("quick" if options.quick else slug(gpu or "cpu"))


def check_machine(path, machine):
    """Raise BadArguments where the rows beside `path`, a machine.json, were measured elsewhere."""
    if not path.exists():
        return
    try:
        before = json.loads(path.read_text())
        if not isinstance(before, dict):
            raise ValueError(before)
    except (OSError, ValueError):
        raise BadArguments(f"{path} cannot be read; delete it if the rows beside it are of this machine") from None
    for name in SAME_MACHINE:
        if before.get(name) != machine.get(name):
            raise BadArguments(
                f"the rows in {path.parent} were measured with {name} {before.get(name)}, and here it is "
                f"{machine.get(name)}; choose another folder with --out"
            )


def earlier_commits(path, machine):
    """The commits, other than this one, at which rows beside `path` were measured."""
    if not path.exists():
        return []
    before = json.loads(path.read_text())
    commits = [*before.get("earlier_commits", []), before.get("commit")]
    return [commit for commit in dict.fromkeys(commits) if commit and commit != machine.get("commit")]


def write_machine(path, machine, after, options):
    facts = {
        **machine,
        "clocks": {"before": machine.get("clocks"), "after": (after or {}).get("clocks")},
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "protocol": {
            **machine.get("protocol", {}),
            "device": options.device,
            "budget_s": options.budget,
            "limit_s": options.limit,
        },
    }
    if earlier := earlier_commits(path, machine):
        facts["earlier_commits"] = earlier  # of rows measured before the sweep went on
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(json.dumps(facts, indent=2) + "\n")
    fresh.replace(path)


def left_to_measure(kernels, writer, again):
    """{point: names of the kernels without a finished row}"""
    left = {}
    for point, names in kernels.items():
        done = {
            row.kernel for row in (writer.rows.get(point.row(name).key) for name in names)
            if row is not None and row.status in table.FINISHED
        }  # fmt: skip
        names = names if again else [name for name in names if name not in done]
        if names:
            left[point] = names
    return left


def companions(point, names, writer):
    """Kernels with a row already, timed again beside `names` only so that their ratios come from one run."""
    status = {
        name: row.status
        for name in ("vectorised", "naive per head", "fast")
        if (row := writer.rows.get(point.row(name).key))
    }
    base = "naive per head" if status.get("vectorised") == "oom" else "vectorised"
    return [name for name in (base, "fast") if name not in names and status.get(name) == "ok"]


@contextmanager
def progress(total):
    """A function (text, finished) to call as each point begins and ends: a bar on a terminal, else a line a point."""
    started, count = time.perf_counter(), itertools.count(1)
    if not sys.stderr.isatty():

        def line(text, finished):
            if finished:
                seconds = time.perf_counter() - started
                print(f"[{next(count)}/{total}, {seconds:.0f} s] {text}", file=sys.stderr, flush=True)

        yield line
        return
    from rich import progress as bars
    from rich.console import Console

    columns = (
        bars.BarColumn(), bars.MofNCompleteColumn(), bars.TimeRemainingColumn(), bars.TextColumn("{task.description}"),
    )  # fmt: skip
    with bars.Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=total)
        yield lambda text, finished: bar.update(task, description=text, advance=int(finished))


def measure(options, bench, kernels):
    """Measure what is left, row by row to the CSV; returns (its path, the rows of this run)."""
    machine = bench.machine
    folder = folder_for(options, machine["gpu"])
    path = folder / "sweep.csv"
    folder.mkdir(parents=True, exist_ok=True)
    if path.exists():
        check_machine(folder / "machine.json", machine)
    else:  # the facts of rows that are gone are nobody's
        (folder / "machine.json").unlink(missing_ok=True)
    writer = table.Writer(path)
    if writer.mended:
        print(f"sweep: {writer.mended}", file=sys.stderr)
    left, rows = left_to_measure(kernels, writer, options.again), []
    if left:  # what nobody measures again keeps its commit, its date and its clocks
        write_machine(folder / "machine.json", machine, None, options)
    with progress(len(left)) as show:
        for point, names in left.items():
            show(point.title, False)
            for row in bench.measure(point, names, companions(point, names, writer), options.budget):
                writer.add(row)
                rows.append(row)
            show(point.title, True)
    writer.tidy()
    if left:
        write_machine(folder / "machine.json", machine, bench.machine_now(), options)
    return path, rows


def run(options, command):
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
            runner.prepare(
                options.device, kernels, kernels.get, options.prepare, options.limit,
                lambda point: show(point.title, True), command,
            )  # fmt: skip
        return 0
    bench = runner.Runner(options.device, options.limit, command)
    try:
        path, rows = measure(options, bench, kernels)
    finally:
        bench.close()
    counts = {status: sum(row.status == status for row in rows) for status in table.STATUSES}
    print(f"{path}: {len(rows)} rows measured ({', '.join(f'{n} {status}' for status, n in counts.items() if n)})")
    return 0


def main(argv=None, command=runner.COMMAND):
    try:
        return run(parse(argv), command)
    except (BadArguments, BadTable) as error:
        sentence = str(error)
    except runner.NoChild as error:
        sentence = f"{error}; `python -m report.sweep --quick` needs no GPU" if "no GPU" in str(error) else str(error)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        sentence = f"a row or a file could not be written: {error.strerror}{where}; {KEPT}"
    except KeyboardInterrupt:
        print(f"\nsweep: stopped; {KEPT}", file=sys.stderr)
        return 130
    print(f"sweep: {sentence}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
