"""Orders of programs on a GPU: one kernel in each, timed in turns; then what each found in L2. No torch.

The times are the harness's. What was found in L2 is counted by Nsight Compute, in one launch of each order.
"""

import json
import sys
from dataclasses import asdict, replace

from report.measuring.rows import Writer, schema
from report.measuring.study import Over, Study, columns
from report.places import REPORT
from report.studies.sweep import Tier

PLAIN = "plain"
# What each order is, in words; the published one is a bijection up to 64 tiles, and not at 128.
ORDERS = {
    PLAIN: "head after head, the shortest rows first",
    "reversed": "head after head, the longest rows first",
    "grouped heads": "X2 for one die: as *reversed*, but heads that share K and V alternate, tile by tile",
    "x2 for 8 dies": "eight kv heads side by side, each the longest rows first",
    "all heads": "X2 for more dies than heads: all kv heads side by side, the longest rows first",
    "published": "a block of neighbouring tiles for each of 8 dies",
}
# over_plain: how many times as fast as the plain order, paired, with the ends of its 95 % interval. l2_hits: percent of
# all sectors asked of L2, read_hits: of those read; l2_reads, dram_reads: MiB read.
IN_L2 = ("l2_hits", "read_hits", "l2_reads", "dram_reads")
Row = schema("orders", {"shape": str, "n": int, "kernel": str}, columns("us", "over_plain*", *IN_L2))


def point(tier, N):
    orders = tuple(name for name in ORDERS if name != "published" or N <= 8192)  # past it, no bijection
    timed = tier.point(N, True, "float16", ())
    return replace(timed, keys={"shape": tier.label, "n": N}, kernels=orders, anchor=PLAIN, chosen_by={"lengths": N})


# K and V of all heads: 67 MB for 16 heads of 8k tokens, 268 MB for 32 of 16k; 17 MB for the 4 that 32 heads share.
TIERS = (Tier(1, 16, 128, 16), Tier(1, 32, 128, 32), Tier(1, 32, 128, 4))
PUBLISHED = Tier(32, 48, 64, 48)  # at 4096 tokens, the shape at which the order was published
WHOLE = (*(point(tier, N) for tier in TIERS for N in (8192, 16384)), point(PUBLISHED, 4096))
QUICK = (point(Tier(1, 2, 16, 1), 96),)

# What was found in L2 -------------------------------------------------------------------------------------------------

PROGRAM = (sys.executable, str(REPORT / "arms" / "orders_profiled.py"))
KERNEL = "flash_attention_kernel"
METRICS = {
    "all": "lts__t_sector_hit_rate.pct",
    "read": "lts__t_sectors_op_read.sum",
    "found": "lts__t_sectors_op_read_lookup_hit.sum",
    "dram": "dram__bytes_read.sum",
}
SECTOR, MIB = 32, 2**20


def profile(path, points, options):
    """Look into the timed orders of each point with Nsight Compute, and write what it counted into their rows."""
    from grader.gpu import ncu

    if options.device == "cpu":
        return
    if (tool := ncu.find()) is None:
        print("report: Nsight Compute (ncu) is not here; the columns of L2 stay blank", file=sys.stderr)
        return
    writer = Writer(path, Row)
    for point in points:
        rows = [writer.rows.get(STUDY.blank(point, name).key) for name in point.kernels]
        if any(row is None or row.status != "ok" for row in rows):
            continue
        if not options.again and all(row.l2_hits is not None for row in rows):
            continue
        try:
            launches = counted(tool, point)
        except ncu.Failed as failure:
            print(f"report: {point.title} was not profiled: {failure}", file=sys.stderr)
            continue
        for row, launch in zip(rows, launches, strict=True):
            writer.add(replace(row, **found(launch.values)))
        print(f"profiled: {point.title}", file=sys.stderr, flush=True)
    writer.tidy()


def counted(tool, point):
    """The counters.Launches of the kernel, one for each of the point's orders."""
    from grader.gpu import ncu
    from report.measuring import counters

    launches = counters.count(tool, list(METRICS.values()), [*PROGRAM, json.dumps(asdict(point))])
    launches = [launch for launch in launches if KERNEL in launch.kernel]
    if len(launches) != len(point.kernels):
        raise ncu.Failed(f"{len(launches)} launches were profiled, and there are {len(point.kernels)} orders")
    return launches


def found(values):
    """The columns of a row from the counters of its launch; None for what this GPU does not count."""
    hits, read, of_read, dram = (values.get(METRICS[name]) for name in ("all", "read", "found", "dram"))
    return {
        "l2_hits": hits,
        "read_hits": 100 * of_read / read if read and of_read is not None else None,
        "l2_reads": None if read is None else read * SECTOR / MIB,
        "dram_reads": None if dram is None else dram / MIB,
    }


STUDY = Study(
    "orders", "Time one kernel in several orders of its programs.", Row, WHOLE, QUICK,
    ratios=(Over("over_plain", lambda order: (PLAIN,)),), choices={"lengths": "tokens, like 8k"}, finish=profile,
)  # fmt: skip
