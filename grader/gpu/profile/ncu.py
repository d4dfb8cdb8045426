"""NVIDIA Nsight Compute's command line, `ncu`: where it is, how it is asked, and what its table says."""

import csv
import glob
import re
import shutil
from dataclasses import dataclass

from grader.processes import sandbox_process

# Where the CUDA toolkit and NVIDIA's packages put it; often none of these is on PATH.
PLACES = ("/usr/local/cuda/bin/ncu", "/usr/local/cuda-*/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu")
LAUNCHES = 32  # of one call are profiled, at most: each is replayed about ten times
DESCRIBING = ("Kernel Name", "Block Size", "Grid Size")  # columns that are no metrics


class NcuFailed(Exception):
    """ncu made no table: the text says why, as far as its own words tell."""


@dataclass(frozen=True)
class Launch:
    """One profiled launch: {name of a metric: number}; what was not measured is not in it."""

    kernel: str
    block: str
    grid: str
    values: dict


def find():
    """The path of ncu, or None where it is not installed."""
    installed = [path for place in PLACES for path in sorted(glob.glob(place), reverse=True)]
    return shutil.which("ncu") or (installed or [None])[0]


def command(ncu, log, metrics, program):
    """The command that profiles `program` between its cudaProfilerStart and cudaProfilerStop, and writes to `log`.

    The clocks stay as they are: locked ones are not those at which anything is timed. Caches are cold before each
    replay, as before each sample of grader/gpu/timing.py. Of a program's children, none is looked into.
    """
    return [
        ncu, "--clock-control", "none", "--cache-control", "all", "--target-processes", "application-only",
        "--profile-from-start", "off", "--launch-count", str(LAUNCHES), "--metrics", ",".join(metrics),
        "--csv", "--page", "raw", "--print-units", "base", "--log-file", str(log), *program,
    ]  # fmt: skip


def environment():
    """The little environment that a child on a GPU gets."""
    return sandbox_process.environment("cuda") | {"LC_ALL": "C.UTF-8"}  # numbers with points


def read(text):
    """The Launches in what `--csv --page raw` printed: a line of names, one of units, then one for each launch.

    Raises NcuFailed where there is no such table.
    """
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID",')), None)
    if start is None:
        raise NcuFailed(reason(text))
    header, _, *rows = csv.reader(lines[start:])
    named = [dict(zip(header, row, strict=False)) for row in rows if len(row) == len(header)]
    if not named:
        raise NcuFailed(reason(text))
    return [Launch(*(row[name] for name in DESCRIBING), values=numbers(row)) for row in named]


def numbers(row):
    """{name: number} of the cells that hold one; "1,024" is 1024, and "n/a", "nan" and nothing are not measured."""
    values = {}
    for name, cell in row.items():
        if name not in DESCRIBING and re.fullmatch(r"-?[\d,]+(\.\d+)?(e[+-]?\d+)?", cell):
            values[name] = float(cell.replace(",", ""))
    return values


def refused(text, metrics):
    """Those of `metrics` that ncu's errors name: this GPU has none of them."""
    said = " ".join(line for line in text.splitlines() if line.startswith("==ERROR=="))
    return [name for name in metrics if re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", said)]


def fault(text):
    """ncu's first error in its own words, or None; that the program failed is none of its own."""
    said = re.findall(r"^==ERROR== *(.*\S)", text, re.MULTILINE)
    return next((words[:300] for words in said if "application returned an error code" not in words), None)


def reason(text):
    """Why there is no table, as far as ncu's own words tell: its first error, or else its last warning."""
    warnings = re.findall(r"^==WARNING== *(.*\S)", text, re.MULTILINE)
    return fault(text) or (warnings or ["it said nothing"])[-1][:300]
