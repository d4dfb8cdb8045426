"""Did a kernel of ours become slower? python -m report compare FRESH [COMMITTED] compares two sweeps. No torch.

FRESH, COMMITTED: folders of a sweep, or their CSVs; by default COMMITTED is the one in report/results/ of the same GPU.
Times of two runs are not compared: clocks and neighbours differ. A kernel's time over that of a peer in the same run
is, and a row is slower where that ratio grew by more than its interval and the margin, against most of the peers.
Exit status 0 nothing is slower, 1 something is, 2 the two cannot be compared.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path
from statistics import median_low

from report.measuring import machine
from report.measuring.rows import BadTable, Ratio
from report.pages import measured
from report.pages.measured import mask, shape, times_over, unpaired
from report.places import RESULTS
from report.studies.sweep import OURS, PEERS, STUDY

MARGIN = 2.0  # per cent: what two runs of the same code differ by, beyond the interval of either
SAME = ("gpu", "torch", "triton", "cuda", "cudnn")


@dataclass(frozen=True)
class Change:
    """One row, fresh over committed. ratio: above 1 is slower; against: the peers in both runs, () for bare times."""

    row: object
    ratio: Ratio | None = None
    against: tuple = ()
    lost: str = ""

    def verdict(self, margin):
        """slower, faster or same."""
        if self.lost or self.ratio.low > 1 + margin / 100:
            return "slower"
        return "faster" if self.ratio.high < 1 / (1 + margin / 100) else "same"

    def sentence(self):
        row = self.row
        window = f" window {row.window} sinks {row.sinks or 0}" if row.window is not None else f" {mask(row)}"
        name = f"{row.kernel}, {shape(row)}{window} N={row.q_len} {row.dtype}"
        if self.lost:
            return f"{name}: {self.lost}"
        by = " and ".join(self.against) or "nothing (bare times)"
        ratio = self.ratio
        return f"{name}: {ratio.middle:.2f} times as long ({ratio.low:.2f} to {ratio.high:.2f}) against {by}"


def compare(fresh, committed):
    """(Changes of our rows that both sweeps measured, the number of committed rows that fresh has not measured)."""
    points, changes, missing = fresh.points(), [], 0
    for point, before in committed.points().items():
        after = points.get(point, {})
        for kernel in (name for name in OURS if name in before and before[name].median_ms is not None):
            row = after.get(kernel)
            if row is None or row.status == "not run":
                missing += 1
            elif row.median_ms is None:
                changes.append(Change(row, lost=f"was measured, now {row.status}: {row.reason}"))
            else:
                changes.append(change(row, before[kernel], after, before))
    return changes, missing


def change(row, old, after, before):
    """How much longer the row takes than it did, against each peer that both runs measured."""
    peers = [name for name in PEERS if times_over(row, after.get(name)) and times_over(old, before.get(name))]
    if not peers:
        return Change(row, unpaired(row, old))
    ratios = [over(times_over(row, after[name]), times_over(old, before[name])) for name in peers]
    middle, low, high = (
        median_low(values) for values in zip(*((r.middle, r.low, r.high) for r in ratios), strict=True)
    )
    return Change(row, Ratio(middle, low, high), tuple(peers))


def over(new, old):
    return Ratio(new.middle / old.middle, new.low / old.high, new.high / old.low)


def find_committed(fresh):
    """The folder in report/results/ that was measured on the same GPU; raises BadTable."""
    for path in sorted(RESULTS.glob(f"*/{STUDY.facts}")):
        if machine.read(path)["gpu"] == fresh.machine["gpu"]:
            return path.parent
    raise BadTable(f"no committed results were measured on {fresh.device}; name a folder to compare with")


def check_alike(fresh, committed):
    """Raise BadTable where the two were measured on another GPU or with other versions."""
    for fact in SAME:
        new, old = fresh.machine.get(fact), committed.machine.get(fact)
        if new != old:
            raise BadTable(
                f"{fresh.path} was measured with {fact} {new or 'unknown'}, {committed.path} with {old or 'unknown'}: "
                "a difference would not be the kernels'; sweep with the same, or add --anyway"
            )


def tell(changes, missing, margin):
    """Print every slower row and a summary; returns the exit status."""
    slower, faster = ([c for c in changes if c.verdict(margin) == verdict] for verdict in ("slower", "faster"))
    for found in sorted(slower, key=lambda c: -c.ratio.low if c.ratio else float("-inf")):
        print(f"slower: {found.sentence()}")
    bare = sum(1 for c in changes if not c.against and not c.lost)
    if bare:
        print(f"warning: {bare} rows have no peer in both runs; their bare times were compared, and clocks may differ")
    same = len(changes) - len(slower) - len(faster)
    print(f"{len(changes)} rows compared: {len(slower)} slower, {len(faster)} faster, {same} within the noise", end="")
    print(f"; {missing} were not measured again" if missing else "")
    return 1 if slower else 0


def main(argv):
    """The exit status; raises BadTable where the two cannot be compared."""
    parser = argparse.ArgumentParser(prog="python -m report compare", description=__doc__.partition("\n")[0])
    parser.add_argument("fresh", type=Path, help="the folder, or CSV, of the new sweep")
    parser.add_argument("committed", type=Path, nargs="?", help="the one to compare with (default: by its GPU)")
    parser.add_argument("--margin", type=float, default=MARGIN, help=f"per cent beyond the noise (default: {MARGIN:g})")
    parser.add_argument("--anyway", action="store_true", help="compare across GPUs and versions too")
    options = parser.parse_args(argv)
    fresh = measured.load(options.fresh)
    committed = measured.load(options.committed or find_committed(fresh))
    if options.committed is None and committed.path.resolve() == fresh.path.resolve():
        raise BadTable(f"{fresh.path} would be compared with itself; sweep into another folder with --out")
    if not options.anyway:
        check_alike(fresh, committed)
    changes, missing = compare(fresh, committed)
    if not changes:
        raise BadTable(f"{fresh.path} and {committed.path} have no measured row of ours in common")
    return tell(changes, missing, options.margin)
