"""Measurements that can be stopped and go on: rows safe on the disk, their machine's facts beside them. No torch."""

import argparse
import itertools
import json
import re
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from grader.processes import files
from report import runner, table
from report.table import BadTable

RESULTS = Path(__file__).resolve().parent / "results"
SAME_MACHINE = ("gpu", "torch", "triton")  # rows of one CSV share these
KEPT = "every finished row is kept, and the same command goes on from there"


class BadArguments(Exception):
    """An argument, a file or a machine that cannot be used; the text is one sentence."""


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise BadArguments(f"{message}; `{self.prog} --help` lists the options")


def check_positive(options):
    for name in ("budget", "limit", "prepare", "seconds"):
        value = getattr(options, name, None)
        if value is not None and not value > 0:
            raise BadArguments(f"--{name} must be more than 0; got {value:g}")


@dataclass(frozen=True)
class Files:
    """Where a measurement keeps its rows, of which class, and the facts of their machine."""

    csv: str = "sweep.csv"
    machine: str = "machine.json"
    row: type = table.Row


SWEEP = Files()


def slug(gpu):
    """`NVIDIA H200` -> `h200`: the name of the folder."""
    words = re.sub(r"[^a-z0-9]+", "-", gpu.lower()).strip("-").removeprefix("nvidia-")
    return words or "gpu"


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
    files.write(path, json.dumps(facts, indent=2) + "\n")


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


def measure(options, bench, kernels, folder, files=SWEEP, companions=lambda point, names, writer: ()):
    """Measure what is left of {point: names of kernels}, row by row to the CSV in `folder`.

    options: again, device, budget, limit, and perhaps `seconds`, after which no new point is begun.
    companions(point, names, writer): kernels to time again beside `names`.
    Returns (the CSV's path, the rows of this run).
    """
    machine = bench.machine
    path, facts = folder / files.csv, folder / files.machine
    folder.mkdir(parents=True, exist_ok=True)
    if path.exists():
        check_machine(facts, machine)
    else:  # the facts of rows that are gone are nobody's
        facts.unlink(missing_ok=True)
    writer = table.Writer(path, files.row)
    if writer.mended:
        print(f"report: {writer.mended}", file=sys.stderr)
    left, rows = left_to_measure(kernels, writer, options.again), []
    if left:  # what nobody measures again keeps its commit, its date and its clocks
        write_machine(facts, machine, None, options)
    started, most = time.perf_counter(), getattr(options, "seconds", None) or float("inf")
    with progress(len(left)) as show:
        for number, (point, names) in enumerate(left.items()):
            if time.perf_counter() - started > most:
                print(f"report: {len(left) - number} points are left after {most:g} s; {KEPT}", file=sys.stderr)
                break
            show(point.title, False)
            for row in bench.measure(point, names, companions(point, names, writer), options.budget):
                writer.add(row)
                rows.append(row)
            show(point.title, True)
    writer.tidy()
    if left:
        write_machine(facts, machine, bench.machine_now(), options)
    return path, rows


def summary(path, rows):
    counts = {status: sum(row.status == status for row in rows) for status in table.STATUSES}
    return f"{path}: {len(rows)} rows measured ({', '.join(f'{n} {status}' for status, n in counts.items() if n)})"


def guarded(run, who, command):
    """The exit status of run(), 0, 2 or 130; what it cannot go on with is one sentence."""
    try:
        return run()
    except (BadArguments, BadTable) as error:
        sentence = str(error)
    except runner.NoChild as error:
        sentence = f"{error}; `{command} --quick` needs no GPU" if "no GPU" in str(error) else str(error)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        sentence = f"a row or a file could not be written: {error.strerror}{where}; {KEPT}"
    except KeyboardInterrupt:
        print(f"\n{who}: stopped; {KEPT}", file=sys.stderr)
        return 130
    print(f"{who}: {sentence}", file=sys.stderr)
    return 2
