"""What Nsight Compute counts in the launches of a program, as numbers."""

import csv
import re
import tempfile
from pathlib import Path
from typing import NamedTuple

from grader.gpu import ncu


class Launch(NamedTuple):
    """values: {name of a metric: number}; what was not counted is not in it."""

    kernel: str
    values: dict


def count(tool, metrics, program):
    """The Launches between the program's cudaProfilerStart and cudaProfilerStop; raises ncu.Failed.

    A metric that this GPU or this ncu does not know is left out.
    """
    with tempfile.TemporaryDirectory(prefix="counters-") as folder:
        for _ in range(2):
            options = ["--metrics", ",".join(metrics), "--csv", "--page", "raw", "--print-units", "base"]
            said, printed = ncu.look_into(tool, Path(folder), options, program)
            errors = " ".join(line for line in said.splitlines() if line.startswith("==ERROR=="))
            unknown = [name for name in metrics if re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", errors)]
            if not unknown:
                break
            metrics = [name for name in metrics if name not in unknown]
    if not (launches := read(said)):
        raise ncu.Failed(f"Nsight Compute counted nothing: {ncu.find_fault(said, printed)}")
    return launches


def read(said):
    """The Launches in what `--csv --page raw` wrote: a line of names, one of units, then one for each launch."""
    lines = said.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID",')), len(lines))
    header, _, *rows = [*csv.reader(lines[start:]), [], []]
    named = [dict(zip(header, row, strict=True)) for row in rows if row and len(row) == len(header)]
    return [Launch(row["Kernel Name"], numbers(row)) for row in named]


def numbers(row):
    """{name: number} of the metrics' cells that hold one; "1,024" is 1024, and "n/a" and nothing are not counted."""
    cells = {name: cell.replace(",", "") for name, cell in row.items() if "." in name}
    return {name: float(cell) for name, cell in cells.items() if re.fullmatch(r"-?\d+(\.\d+)?(e[+-]?\d+)?", cell)}
