"""The tables of REPORT.md that come from committed measurements: ladder.csv, and the sweep beside it."""

from dataclasses import dataclass
from functools import cached_property

from grader.gpu.peaks import peak
from report.measuring import machine as machines
from report.measuring import rows
from report.measuring.rows import BadTable
from report.pages import measured
from report.pages.measured import length
from report.pages.tables import commits, number, plain, times
from report.pages.tables import table as markdown
from report.places import PUBLISHED
from report.studies import ladder, orders, steps
from report.studies.ladder import BEFORE, RUNGS, WHOLE
from report.studies.sweep import KERNELS
from report.write_up import excerpts

PROBLEMS = tuple(excerpts.MODULES)
ADDS = {
    "P1": "the formula, with the whole score matrix",
    "P2": "tiles and the online softmax, in PyTorch",
    "P3": "the same loop as one Triton kernel",
    "P4": "causal: two phases",
    "P5": "query heads that share K and V",
    "P6": "a sliding window",
    "P7": "the first tokens stay visible",
}


@dataclass(frozen=True)
class Ladder:
    """The rows of ladder.csv and the facts of their machine."""

    rows: dict
    machine: dict

    @cached_property
    def lengths(self):
        return sorted({n for n, _ in self.rows})

    @property
    def point(self):
        """The shape that all rungs share, at its greatest length."""
        return ladder.point(self.lengths[-1])

    def row(self, kernel, n):
        return self.rows[n, kernel]

    def ratio(self, kernel, n, column):
        """How many times as fast a kernel is as column's: naive, full or before; None where it was not paired."""
        return self.row(kernel, n).ratio(f"over_{column}")

    def before(self, kernel, n):
        """Over the rung before; P3 over P2 is known from P2's own row, where P2 is too slow to take turns."""
        found = self.ratio(kernel, n, "before")
        if found is None and kernel == "P3":
            over = self.ratio("P2", n, "full")
            return over and over.inverse
        return found


def load_ladder(folder=PUBLISHED):
    """The committed Ladder; raises BadTable where a rung is missing or failed, or the GPU is not known."""
    study = ladder.STUDY
    found = {row.key: row for row in rows.read(folder / study.csv, study.row)}
    asked = [study.blank(point, kernel) for point in WHOLE for kernel in RUNGS]
    missing = [f"{row.kernel} at {row.n}" for row in asked if getattr(found.get(row.key), "status", "") != "ok"]
    if missing:
        raise BadTable(f"{study.csv} lacks {', '.join(missing)}: `python -m report ladder` measures what is missing")
    machine = machines.read(folder / study.facts)
    if peak(machine["gpu"]) is None:
        raise BadTable(
            f"{study.facts} names the GPU {machine['gpu']!r}, of unknown peak: add it to grader/gpu/peaks.py"
        )
    return Ladder({(row.n, row.kernel): found[row.key] for row in asked}, machine)


def order_row(name, shape="B=1 H=16 D=128", n=8192, folder=PUBLISHED):
    """The row of one of the lab's program orders; raises BadTable where it was not measured."""
    for row in rows.read(folder / orders.STUDY.csv, orders.Row):
        if (row.kernel, row.shape, row.n, row.status) == (name, shape, n, "ok") and row.read_hits is not None:
            return row
    raise BadTable(f"{orders.STUDY.csv} lacks {name!r} at {shape}, {n}: `python -m report orders` measures it")


def in_steps(shape, mask="causal", folder=PUBLISHED):
    """{"cudnn_ms", "fast_ms"} of the study `steps` at one of its shapes; raises BadTable where it was not measured."""
    found = rows.read(folder / steps.STUDY.csv, steps.STUDY.row)
    us = {row.kernel: row.median_us for row in found if (row.shape, row.mask, row.status) == (shape, mask, "ok")}
    if missing := [name for name in (steps.CUDNN, steps.THREE) if name not in us]:
        raise BadTable(f"{steps.STUDY.csv} lacks {missing[0]} at {shape}, {mask}: `python -m report steps` measures it")
    return {"cudnn_ms": us[steps.CUDNN] / 1000, "fast_ms": us[steps.THREE] / 1000}


def swept(sweep, kernel, tier, n, causal, dtype="float16"):
    """The sweep's row of a kernel; raises BadTable where it was not measured."""
    for row in sweep.rows:
        found = row.kernel, row.tier, row.q_len, row.causal, row.dtype
        if found == (kernel, tier, n, causal, dtype) and row.median_ms is not None:
            return row
    mask = "causal" if causal else "full"
    raise BadTable(f"sweep.csv lacks {kernel} at {tier}, {mask}, {n}: `python -m report sweep` measures it")


def machine_line(machine):
    """`NVIDIA H200, driver ..., PyTorch ..., Triton ..., commit ...`."""
    names = (("gpu", ""), ("driver", "driver "), ("torch", "PyTorch "), ("triton", "Triton "))
    known = [words + plain(machine[name]) for name, words in names if machine.get(name)]
    return ", ".join(filter(None, [*known, commits(machine)]))


def rungs(ladder, n):
    """A line for each problem: its time, its memory, and how many times as fast as P1 and as the one before."""
    lines = []
    for name in PROBLEMS:
        row = ladder.row(name, n)
        lines.append([
            f"{name}: {ADDS[name]}", f"{number(row.median_ms)} ({number(row.p20_ms)} to {number(row.p80_ms)})",
            number(row.tflops), number(row.peak_mib), "" if name == "P1" else quick(ladder.ratio(name, n, "naive")),
            quick(ladder.before(name, n)),
        ])  # fmt: skip
    head = (length(n) + " tokens", "ms (p20 to p80)", "TFLOP/s", "memory, MiB", "over P1", "over the one before")
    return markdown(head, lines)


def quick(ratio):
    """A ratio with its interval: three digits where it is small, whole numbers where it is large."""
    if ratio is None:
        return ""
    if ratio.middle >= 0.1 and ratio.middle < 10:
        return times(ratio)
    return f"{number(ratio.middle)} ({number(ratio.low)} to {number(ratio.high)})"


def fast_form(ladder):
    """Our fast form under each mask, over the problem's own kernel."""
    lines = []
    for name in RUNGS:
        if name.startswith("fast"):
            cells = [
                f"{number(ladder.row(name, n).median_ms)}, {times(ladder.ratio(name, n, 'before'))}"
                for n in ladder.lengths
            ]
            lines.append([f"as {BEFORE[name]}", *cells])
    return markdown(("the fast form", *(f"{length(n)}: ms, over the problem's" for n in ladder.lengths)), lines)


def peers(sweep, label, n, dtype="float16"):
    """The sweep's kernels at one shape, full and causal: time, and how many times our fast form's."""
    lines = []
    rows = [row for row in sweep.rows if (row.tier, row.q_len, row.dtype) == (label, n, dtype)]
    kinds = {kind: {row.kernel: row for row in rows if measured.mask(row) == kind} for kind in ("full", "causal")}
    for kernel in KERNELS:
        cells = []
        for found in kinds.values():
            row = found.get(kernel)
            done = row is not None and row.median_ms is not None
            ratio = measured.times_over(row, found.get("fast")) if done and kernel != "fast" else None
            cells += [number(row.median_ms) if done else row.status if row else "", times(ratio)]
        if any(cells):
            lines.append([kernel, *cells])
    return markdown(("kernel", "full, ms", "its time / fast", "causal, ms", "its time / fast"), lines)


def windows(sweep, label, n, dtype="float16"):
    """P6 and P7 beside FlexAttention and our fast form: windows at one length."""
    lines = []
    for cells in sweep.points().values():
        row = next(iter(cells.values()))
        if measured.mask(row) == "window" and (measured.shape(row), row.q_len, row.dtype) == (label, n, dtype):
            names = ("P6", "P7", "FlexAttention", "fast")
            texts = [number(cells[k].median_ms) if k in cells else "" for k in names]
            ratio = measured.times_over(cells.get("FlexAttention"), cells.get("P6") or cells.get("P7"))
            lines.append([f"{row.window:,}, {row.sinks or 0}", *texts, times(ratio)])
    return markdown(
        ("window, sinks", "P6, ms", "P7", "FlexAttention", "fast", "FlexAttention's time / P6's, or P7's"), lines
    )
