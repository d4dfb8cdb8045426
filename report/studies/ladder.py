"""The ladder: the seven problems and our fast form of P3 to P7, in turns on the same inputs. Plain data, no torch."""

from dataclasses import dataclass

from report.measuring.rows import schema
from report.measuring.study import Over, Point, Study, columns


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

# *_ms: of one call. tflops: of visible pairs alone. peak_mib: beyond the inputs. over_*: how many times as fast as P1,
# as P3, and as the rung before, paired in one run, with the ends of its 95 % interval.
RATIOS = (
    Over("over_naive", lambda name: (NAIVE,)),
    Over("over_full", lambda name: (FULL,)),
    Over("over_before", lambda name: (BEFORE[name],) if name in BEFORE else ()),
)
Row = schema(
    "ladder", {"shape": str, "n": int, "kernel": str},
    columns("ms", "peak_mib", *(f"{over.column}*" for over in RATIOS)),
)  # fmt: skip


def point(N, B=2, H=16, kv_heads=4, D=128, window=1024, sinks=4):
    """One length: all rungs on the same inputs, those that share K and V reading the first kv_heads of them."""
    shape = f"B={B} H={H} Hkv={kv_heads} D={D} window={window} sinks={sinks}"
    return Point(
        f"{shape} N={N} float16", {"shape": shape, "n": N}, tuple(RUNGS), FULL, {"lengths": N}, N, H, D, B, kv_heads,
        window=window, sinks=sinks,
    )  # fmt: skip


WHOLE = tuple(map(point, (2048, 8192)))
QUICK = (point(96, B=1, H=2, kv_heads=1, D=16, window=40),)
STUDY = Study(
    "ladder", "Time the seven problems beside each other.", Row, WHOLE, QUICK, RATIOS, {"lengths": "tokens, like 2k"}
)
