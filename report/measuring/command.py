"""The command of every study: python -m report STUDY.

Rows go to the study's CSV as they finish, each safe on the disk. A run that was stopped goes on where it was: the same
command again measures what is not there yet. No torch.
"""

import argparse
import contextlib
import itertools
import sys
import time
from functools import partial
from pathlib import Path

from report.measuring import machine, rows, runner
from report.places import RESULTS, Refused

ON_CPU = {"budget": 0.1, "limit": 60.0}  # there seconds mean nothing
KEPT = "every finished row is kept, and the same command goes on from there"


class BadArguments(Refused):
    """An argument that cannot be used; the text is one sentence."""


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise BadArguments(f"{message}; `{self.prog} --help` lists the options")


def parse(study, argv):
    parser = Parser(prog=f"python -m report {study.name}", description=study.words, allow_abbrev=False)
    add = parser.add_argument
    add("--quick", action="store_true", help="small shapes on the CPU: see tables and plots work")
    add("--only", metavar="LIST", help="kernels, by name, between commas (default: all)")
    for option, words in study.choices.items():
        add(f"--{option}", metavar="LIST", help=f"{words}, or none (default: all)")
        add(f"--no-{option}", dest=option, action="store_const", const="none", help=argparse.SUPPRESS)
    add("--out", type=Path, metavar="DIR", help="where the rows go (default: report/results/ and the GPU's name)")
    add("--budget", type=float, metavar="SECONDS", help=f"of sampling for a kernel at a point ({study.budget:g})")
    add("--limit", type=float, metavar="SECONDS", help=f"for one step of a kernel ({study.limit:g})")
    add("--seconds", type=float, metavar="SECONDS", help="begin no new point after this long")
    add("--again", action="store_true", help="measure finished rows again")
    add("--prepare", type=int, metavar="N", help="only compile ahead what is left, in N processes; nothing is measured")
    add("--device", choices=("cpu", "cuda"), help="where to measure (default: the GPU; with --quick the CPU)")
    if study.finish:
        add("--no-profile", action="store_true", help="times only")
    add("--list", action="store_true", help="say what would be measured, and stop")
    options = parser.parse_args(argv)
    options.device = options.device or ("cpu" if options.quick else "cuda")
    for name in ("budget", "limit", "prepare", "seconds"):
        value = getattr(options, name)
        if value is not None and not value > 0:
            raise BadArguments(f"--{name} must be more than 0; got {value:g}")
    for name, few in ON_CPU.items():
        if getattr(options, name) is None:
            setattr(options, name, few if options.device == "cpu" else getattr(study, name))
    return options


# What is asked --------------------------------------------------------------------------------------------------------


def named(values):
    """{"P4": "P4"}; of numbers {"512": 512, "16k": 16384, "16384": 16384}"""
    short = {f"{n // 1024}k" if isinstance(n, int) and n % 1024 == 0 else str(n): n for n in values}
    return short | {str(n): n for n in values}


def choose(text, values, what):
    """Those of `values` that `text`, a comma-separated list, names; all where it is None, none where it is `none`."""
    known, chosen = named(dict.fromkeys(values)), []
    if text is None or text == "none":
        return set(() if text else values)
    for name in filter(None, (part.strip() for part in text.split(","))):
        if name not in known:
            raise BadArguments(f"there is no {what} {name!r}; the {what}s are {', '.join(known)}")
        chosen.append(known[name])
    return set(chosen)


def plan(study, options):
    """[(point, names of the arms asked there)]; raises BadArguments."""
    points = whole = study.quick if options.quick else study.whole
    for option in study.choices:
        values = [point.chosen_by[option] for point in whole if option in point.chosen_by]
        chosen = choose(getattr(options, option), values, option[:-1])
        points = [point for point in points if point.chosen_by.get(option) in {None, *chosen}]
    every = [name for point in whole for name in point.kernels]
    only = choose(options.only, every, "kernel")
    asked = [(point, [name for name in point.kernels if name in only]) for point in points]
    if not (asked := [(point, names) for point, names in asked if names]):
        raise BadArguments("nothing is left to measure with these options; --list shows what there is")
    return asked


def left_to_measure(study, asked, done, again):
    """What of `asked` has no finished row in `done`, the rows by key."""

    def finished(point, name):
        row = done.get(study.blank(point, name).key)
        return row is not None and row.status in rows.FINISHED

    left = [(point, [name for name in names if again or not finished(point, name)]) for point, names in asked]
    return [(point, names) for point, names in left if names]


# Measuring ------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
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


def measure(study, options, bench, asked, folder):
    """Measure what is left of `asked`, row by row to the study's CSV in `folder`; returns the rows of this run."""
    path, facts = folder / study.csv, folder / study.facts
    folder.mkdir(parents=True, exist_ok=True)
    if path.exists():
        machine.check(facts, bench.machine)
    else:  # the facts of rows that are gone are nobody's
        facts.unlink(missing_ok=True)
    writer = rows.Writer(path, study.row)
    if writer.mended:
        print(f"report: {writer.mended}", file=sys.stderr)
    left, found = left_to_measure(study, asked, writer.rows, options.again), []
    if left:  # what nobody measures again keeps its commit, its date and its clocks
        machine.write(facts, bench.machine, None, options)
    started, most = time.perf_counter(), options.seconds or float("inf")
    with progress(len(left)) as show:
        for number, (point, names) in enumerate(left):
            if time.perf_counter() - started > most:
                print(f"report: {len(left) - number} points are left after {most:g} s; {KEPT}", file=sys.stderr)
                break
            show(point.title, False)
            companions = study.companions(point, names, writer.rows)
            for row in bench.measure(point, names, companions, options.budget):
                writer.add(row)
                found.append(row)
            show(point.title, True)
    writer.tidy()
    if left:
        machine.write(facts, bench.machine, bench.machine_now(), options)
    return found


def run(study, argv, child=runner.COMMAND):
    """Do what the arguments ask; returns the folder of the rows, or None where nothing was to be measured.

    child: what starts the process that measures. Raises Refused.
    """
    options = parse(study, argv)
    asked = plan(study, options)
    new = partial(runner.Runner, study, options.device, options.limit, child)
    if options.list:
        for point, names in asked:
            print(f"{point.title}: {', '.join(names)}")
        print(f"{sum(len(names) for _, names in asked)} rows at {len(asked)} points")
        return None
    if options.prepare:
        if options.out and (options.out / study.csv).exists():
            done = rows.Writer(options.out / study.csv, study.row).rows
            asked = left_to_measure(study, asked, done, options.again)
        with progress(len(asked)) as show:
            runner.prepare(new, asked, options.prepare, lambda point: show(point.title, True))
        return None
    with contextlib.closing(new()) as bench:
        folder = options.out or RESULTS / ("quick" if options.quick else machine.slug(bench.machine["gpu"] or "cpu"))
        found = measure(study, options, bench, asked, folder)
    counts = {status: sum(row.status == status for row in found) for status in rows.STATUSES}
    said = ", ".join(f"{n} {status}" for status, n in counts.items() if n)
    print(f"{folder / study.csv}: {len(found)} rows measured ({said})")
    if study.finish and not options.no_profile:
        study.finish(folder / study.csv, [point for point, _ in asked], options)
    return folder
