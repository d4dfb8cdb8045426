"""What is measured of program orders on a GPU: points and the rows of orders.csv, as plain data. No torch."""

from dataclasses import dataclass
from typing import ClassVar

from report.shapes import Point, Tier

FILE, MACHINE = "orders.csv", "orders.json"
PLAIN = "plain"
# What each order is, in words; the published one is a bijection at 64 tiles, and not at 128.
ORDERS = {
    PLAIN: "head after head, the shortest rows first",
    "reversed": "head after head, the longest rows first",
    "grouped heads": "x2 for one die: the same, heads that share K and V take turns",
    "x2 for 8 dies": "eight kv heads side by side, each the longest rows first",
    "all heads": "x2 for more dies than heads: all kv heads side by side, the longest rows first",
    "published": "a block of neighbouring tiles for each of 8 dies",
}


@dataclass(frozen=True)
class OrderRow:
    """One order at one shape. over_plain: how many times as fast as the plain order, paired, with the ends of its 95 %
    interval. l2_hits: percent of all sectors asked of L2, read_hits: of those read; l2_reads, dram_reads: MiB read.
    None is a blank field: a number that was not measured is never 0.
    """

    MEASURED: ClassVar[str] = "median_us"
    COMMAND: ClassVar[str] = "python -m report.orders_gpu"

    shape: str
    n: int
    kernel: str
    median_us: float | None = None
    p20_us: float | None = None
    p80_us: float | None = None
    samples: int | None = None
    tflops: float | None = None
    over_plain: float | None = None
    over_plain_low: float | None = None
    over_plain_high: float | None = None
    l2_hits: float | None = None
    read_hits: float | None = None
    l2_reads: float | None = None
    dram_reads: float | None = None
    status: str = "ok"
    reason: str = ""

    @property
    def key(self):
        return self.shape, self.n, self.kernel


@dataclass(frozen=True)
class OrderPoint(Point):
    """A point of the sweep whose kernels are orders."""

    def row(self, kernel):
        return OrderRow(self.tier.label, self.N, kernel)

    @property
    def kernels(self):
        return [name for name in ORDERS if name != "published" or self.N == 8192]


def points(tiers, lengths):
    return [OrderPoint(tier, n, True, "float16") for tier in tiers for n in lengths]


# K and V of all heads: 67 MB for 16 heads of 8k tokens, 268 MB for 32 of 16k; 17 MB for the 4 that 32 heads share.
WHOLE = points((Tier(1, 16, 128, 16), Tier(1, 32, 128, 32), Tier(1, 32, 128, 4)), (8192, 16384))
QUICK = points((Tier(1, 2, 16, 1),), (96,))


def restored(point):
    """The OrderPoint of what dataclasses.asdict made of one."""
    return OrderPoint(**{**point, "tier": Tier(**point["tier"])})
