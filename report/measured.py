"""A finished sweep as tables, plots and comparisons want it: its rows, its machine, and ratios with their intervals."""

import json
import math
from dataclasses import dataclass
from pathlib import Path

from report import table
from report.table import BadTable, Row

REPORT = Path(__file__).parent
RESULTS = REPORT / "results"
PUBLISHED = RESULTS / "h200"  # what report/BENCHMARKS.md and report/figures/ are made of
CSV, MACHINE = "sweep.csv", "machine.json"


@dataclass(frozen=True)
class Sweep:
    """The rows of one CSV and the facts of the machine that they were measured on."""

    path: Path
    rows: tuple[Row, ...]
    machine: dict

    @property
    def device(self):
        return self.machine["gpu"] or "a CPU"

    def points(self):
        """{point: {kernel: Row}}: the rows that answer the same question, in the CSV's order."""
        found = {}
        for row in self.rows:
            found.setdefault(row.point, {})[row.kernel] = row
        return found


@dataclass(frozen=True)
class Ratio:
    """One time over another, with the ends of its interval."""

    middle: float
    low: float
    high: float


def load(where):
    """The Sweep in a folder, or in a CSV with its machine.json beside it; raises BadTable."""
    path = Path(where)
    path = path / CSV if path.is_dir() or path.suffix != ".csv" else path
    rows = tuple(table.read(path))
    if not rows:
        raise BadTable(f"{path} holds no rows yet; `python -m report.sweep` measures them")
    return Sweep(path, rows, read_machine(path.with_name(MACHINE)))


def read_machine(path):
    try:
        machine = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadTable(f"there is no {path}, and numbers without their machine mean nothing; sweep anew") from None
    except OSError as error:
        raise BadTable(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise BadTable(f"{path} is no JSON ({error}); mend it, or sweep anew") from None
    if not isinstance(machine, dict) or "gpu" not in machine:  # null: a quick sweep on a CPU
        raise BadTable(f'{path} does not name the machine: "gpu" is missing; mend it, or sweep anew')
    return machine


def times_over(row, other):
    """How many times the time of `other` this row takes, or None where one was not measured.

    Against our fast kernel the sweep has paired the two, call after call: its interval is used. Any other pair has only
    its p20 and p80, whose interval is wider than need be.
    """
    if row is None or other is None or row.median_ms is None or other.median_ms is None:
        return None
    if other.kernel == "fast" and row.ours is not None:
        return Ratio(row.ours, row.ours_low or row.ours, row.ours_high or row.ours)
    if row.kernel == "fast" and other.ours is not None:
        inverse = times_over(other, row)
        return Ratio(1 / inverse.middle, 1 / inverse.high, 1 / inverse.low)
    (low, high), (other_low, other_high) = spread(row), spread(other)
    return Ratio(row.median_ms / other.median_ms, low / other_high, high / other_low)


def spread(row):
    """(p20, p80) in ms; the median twice where they are blank."""
    return row.p20_ms or row.median_ms, row.p80_ms or row.median_ms


def fastest(cells, kernels):
    """Of the Rows {kernel: Row} of these kernels, the one with the smallest median, or None."""
    done = [cells[name] for name in kernels if name in cells and cells[name].median_ms is not None]
    return min(done, key=lambda row: row.median_ms, default=None)


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def mask(row):
    """full, causal or window: the three kinds of tables and plots."""
    return "window" if row.window is not None else "causal" if row.causal else "full"


def shape(row):
    """`B=1 H=32/8 D=128`: the tier's label without its window."""
    heads = f"{row.heads}" if row.heads == row.kv_heads else f"{row.heads}/{row.kv_heads}"
    return f"B={row.batch} H={heads} D={row.head_dim}"


def length(n):
    """512, 1k, 16k: a number of tokens as people say it."""
    return f"{n // 1024}k" if n >= 1024 and n % 1024 == 0 else f"{n}"


def visible_pairs(row):
    """How many (query, key) pairs of one head the mask leaves: the work, as grader/course/masks.py counts it."""
    if not row.causal and row.window is None:
        return row.q_len * row.k_len
    window = row.window or row.k_len
    return capped(row.q_len, window) + capped(max(0, row.q_len - window), row.sinks or 0)


def capped(n, most):
    """The sum of min(i, most) for i from 1 to n."""
    ramp = min(n, most)
    return ramp * (ramp + 1) // 2 + (n - ramp) * most


def dtypes(rows):
    """The dtypes of these rows, float16 first."""
    order = ("float16", "bfloat16", "float32")
    return sorted({row.dtype for row in rows}, key=lambda name: (*order, name).index(name))


def places(folder):
    """(where the sweep is, where what is made of it goes)."""
    return (PUBLISHED, REPORT) if folder is None else (folder, folder if folder.suffix != ".csv" else folder.parent)
