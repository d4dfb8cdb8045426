"""What is measured of the seven problems together: rungs and the rows of ladder.csv, as plain data. No torch."""

from dataclasses import dataclass
from typing import ClassVar

FILE, MACHINE = "ladder.csv", "ladder.json"


@dataclass(frozen=True)
class Rung:
    """One kernel of the ladder: its module in solutions/, its mask, and whether query heads share K and V."""

    module: str
    causal: bool = False
    shared: bool = False
    windowed: bool = False
    sinks: bool = False
    entry: str = "flash_attention_forward"


NAIVE, FULL = "P1", "P3"
FAST = "fast_attention.py"
RUNGS = {
    "P1": Rung("p1_naive_attention.py", entry="naive_attention"),
    "P2": Rung("p2_online_softmax.py"),
    "P3": Rung("p3_flash_attention.py"),
    "P4": Rung("p4_causal.py", causal=True),
    "P5": Rung("p5_gqa.py", causal=True, shared=True),
    "P6": Rung("p6_sliding_window.py", causal=True, shared=True, windowed=True),
    "P7": Rung("p7_sinks_and_window.py", causal=True, shared=True, windowed=True, sinks=True),
    "fast as P3": Rung(FAST),
    "fast as P4": Rung(FAST, causal=True),
    "fast as P5": Rung(FAST, causal=True, shared=True),
    "fast as P6": Rung(FAST, causal=True, shared=True, windowed=True),
    "fast as P7": Rung(FAST, causal=True, shared=True, windowed=True, sinks=True),
}
BEFORE = {"P2": "P1", "P3": "P2", "P4": "P3", "P5": "P4", "P6": "P5", "P7": "P6"}
BEFORE |= {name: name.rpartition(" ")[2] for name in RUNGS if name.startswith("fast")}


@dataclass(frozen=True)
class LadderRow:
    """One rung at one length. None is a blank field: a number that was not measured is never 0.

    *_ms: of one call. tflops: of visible pairs alone. peak_mib: beyond the inputs. over_*: how many times as fast as
    P1, as P3, and as the rung before, paired in one run, with the ends of its 95 % interval.
    """

    MEASURED: ClassVar[str] = "median_ms"
    COMMAND: ClassVar[str] = "python -m report.ladder"

    shape: str
    n: int
    kernel: str
    median_ms: float | None = None
    p20_ms: float | None = None
    p80_ms: float | None = None
    samples: int | None = None
    tflops: float | None = None
    peak_mib: float | None = None
    over_naive: float | None = None
    over_naive_low: float | None = None
    over_naive_high: float | None = None
    over_full: float | None = None
    over_full_low: float | None = None
    over_full_high: float | None = None
    over_before: float | None = None
    over_before_low: float | None = None
    over_before_high: float | None = None
    status: str = "ok"
    reason: str = ""

    @property
    def key(self):
        return self.shape, self.n, self.kernel


@dataclass(frozen=True)
class LadderPoint:
    """One length: all rungs on the same inputs, those that share K and V reading the first kv_heads of them."""

    N: int
    B: int = 2
    H: int = 16
    kv_heads: int = 4
    D: int = 128
    window: int = 1024
    sinks: int = 4
    dtype: str = "float16"

    @property
    def shape(self):
        return f"B={self.B} H={self.H} Hkv={self.kv_heads} D={self.D} window={self.window} sinks={self.sinks}"

    @property
    def title(self):
        return f"{self.shape} N={self.N} {self.dtype}"

    def row(self, kernel):
        return LadderRow(self.shape, self.N, kernel)

    @property
    def kernels(self):
        return list(RUNGS)


WHOLE = tuple(map(LadderPoint, (2048, 8192)))
QUICK = (LadderPoint(96, B=1, H=2, kv_heads=1, D=16, window=40),)
