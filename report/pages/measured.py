"""Committed or fresh rows as pages want them: with their machine, and the sweep's by point and in ratios. No torch."""

import csv
import json
import math
from dataclasses import dataclass
from pathlib import Path

from report.measuring import machine, rows
from report.measuring.rows import BadTable, Ratio, Row
from report.places import PUBLISHED
from report.studies import sweep


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
            found.setdefault(question(row), {})[row.kernel] = row
        return found


def question(row):
    """What rows of different kernels share when they answer the same question."""
    return row.tier, row.q_len, row.k_len, row.causal, row.dtype


def load(where=PUBLISHED):
    """The Sweep in a folder, or in a CSV with its machine.json beside it; raises BadTable."""
    path = Path(where)
    path = path / sweep.STUDY.csv if path.is_dir() or path.suffix != ".csv" else path
    if not (found := tuple(rows.read(path, sweep.Row))):
        raise BadTable(f"{path} holds no rows yet; `python -m report sweep` measures them")
    return Sweep(path, found, machine.read(path.with_name(sweep.STUDY.facts)))


def load_study(study, folder=PUBLISHED):
    """(rows, facts of their machine) of a study; ([], {}) where nothing was measured. Raises BadTable."""
    path = folder / study.csv
    found = rows.read(path, study.row) if path.is_file() else []
    return found, machine.read(folder / study.facts) if found else {}


def read_words(path):
    """A list of rows, each a dict of words."""
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def read_both(name, folder):
    """(rows of a CSV as dicts of words, the facts beside it); ([], {}) where nothing was measured."""
    path = folder / f"{name}.csv"
    if not path.is_file():
        return [], {}
    return read_words(path), json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))


def times_over(row, other):
    """How many times the time of `other` this row takes, or None where one was not measured.

    Against our fast kernel the sweep has paired the two, call after call: its interval is used. Any other pair has only
    its p20 and p80, whose interval is wider than need be.
    """
    if row is None or other is None or row.median_ms is None or other.median_ms is None:
        return None
    if other.kernel == "fast" and row.ours is not None:
        return row.ratio("ours")
    if row.kernel == "fast" and other.ours is not None:
        return other.ratio("ours").inverse
    return unpaired(row, other)


def unpaired(row, other):
    """The Ratio of two times by their p20 and p80."""
    (low, high), (other_low, other_high) = spread(row), spread(other)
    return Ratio(row.median_ms / other.median_ms, low / other_high, high / other_low)


def spread(row):
    """(p20, p80) in ms; the median twice where they are blank."""
    return row.p20_ms or row.median_ms, row.p80_ms or row.median_ms


def fastest(cells, kernels):
    """Of the Rows {kernel: Row} of these kernels, the one with the smallest median, or None."""
    done = [cells[name] for name in kernels if name in cells and cells[name].median_ms is not None]
    return min(done, key=lambda row: row.median_ms, default=None)


def our_best(cells):
    """Our fast kernel where it was measured, else the fastest of ours."""
    return fastest(cells, ["fast"]) or fastest(cells, sweep.OURS)


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def mask(row):
    """full, causal or window: the three kinds of tables and plots."""
    return "window" if row.window is not None else "causal" if row.causal else "full"


def shape(row):
    """`B=1 H=32/8 D=128`: the tier's label without its window."""
    return sweep.Tier(row.batch, row.heads, row.head_dim, row.kv_heads).label


def length(n):
    """512, 1k, 16k: a number of tokens as people say it."""
    return f"{n // 1024}k" if n >= 1024 and n % 1024 == 0 else f"{n}"


def visible_pairs(row):
    """How many (query, key) pairs of one head the mask leaves: the work, as kinds/attention/masks.py counts it."""
    if not row.causal and row.window is None:
        return row.q_len * row.k_len
    window = row.window or row.k_len
    return capped(row.q_len, window) + capped(max(0, row.q_len - window), row.sinks or 0)


def capped(n, most):
    """The sum of min(i, most) for i from 1 to n."""
    ramp = min(n, most)
    return ramp * (ramp + 1) // 2 + (n - ramp) * most


def dtypes(found):
    """The dtypes of these rows, float16 first."""
    order = ("float16", "bfloat16", "float32")
    return sorted({row.dtype for row in found}, key=lambda name: (*order, name).index(name))
