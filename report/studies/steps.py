"""The steps from P4 to the fast form: kernels and forms of one, in turns on the same inputs. Plain data, no torch."""

from dataclasses import replace

from report.measuring.rows import schema
from report.measuring.study import Over, Study, columns
from report.studies.sweep import Tier

POINTERS, DESCRIPTORS, CUDNN = "pointers", "descriptors", "cuDNN"
ONE, TWO, THREE, FOUR = "one consumer", "two consumers", "three consumers", "four consumers"
WIDE = "one consumer with 128 keys"
PACKED, APART, FEW_SINKS, MANY_SINKS = "heads packed", "heads apart", "4 sinks", "40 sinks"
SINKS = {FEW_SINKS: 4, MANY_SINKS: 40}  # more than 16 are tiles of their own
# Of the fast kernel by head dim: (BLOCK_K, CONSUMERS, STAGES, programs on a multiprocessor).
FORMS = {
    64: {ONE: (64, 1, 2, 3), WIDE: (128, 1, 2, 2), TWO: (64, 2, 3, 1), THREE: (64, 3, 3, 1), FOUR: (64, 4, 3, 1)},
    128: {ONE: (64, 1, 2, 2), TWO: (128, 2, 2, 1), THREE: (64, 3, 3, 1)},
}
BEFORE = {DESCRIPTORS: POINTERS, ONE: DESCRIPTORS, WIDE: ONE, TWO: ONE, THREE: TWO, FOUR: THREE, PACKED: APART}
BEFORE |= dict.fromkeys(SINKS, PACKED)

# over_*: how many times as fast as the arm before it, and as cuDNN's, paired, with the ends of its 95 % interval.
RATIOS = (
    Over("over_before", lambda name: (BEFORE[name],) if name in BEFORE else ()),
    Over("over_cudnn", lambda name: (CUDNN,)),
)
Row = schema(
    "steps", {"shape": str, "mask": str, "kernel": str}, columns("us", *(f"{over.column}*" for over in RATIOS))
)


def point(tier, N, causal, arms):
    """A Point whose arms are `arms`, the first of them the anchor."""
    mask = f"window {tier.window}" if tier.window else "causal" if causal else "full"
    shape = f"B={tier.B} H={tier.heads} D={tier.D} N={N}"
    return replace(
        tier.point(N, causal, "float16", ()), title=f"{shape} {mask} float16", keys={"shape": shape, "mask": mask},
        kernels=arms, anchor=arms[0], chosen_by={"lengths": N},
    )  # fmt: skip


LADDER = (CUDNN, POINTERS, DESCRIPTORS, ONE, TWO, THREE)
CONSUMERS = (CUDNN, ONE, WIDE, TWO, THREE, FOUR)
WINDOWED = (PACKED, APART, *SINKS)
LONG, SMALL, SHARED = Tier(4, 16, 128, 16), Tier(8, 12, 64, 12), Tier(1, 32, 128, 8)
FEW, FEWER = Tier(1, 8, 64, 8), Tier(1, 4, 128, 4)  # heads
WHOLE = (
    *(point(LONG, 16384, causal, LADDER) for causal in (True, False)),
    *(point(SMALL, N, True, CONSUMERS) for N in (512, 16384)),
    point(FEW, 2048, False, CONSUMERS),
    point(FEWER, 1024, False, (CUDNN, ONE, TWO, THREE)),
    *(point(replace(SHARED, window=window, sinks=0), 16384, True, WINDOWED) for window in (128, 1024)),
)
QUICK = (point(Tier(1, 1, 64, 1), 96, True, LADDER[1:3]),)
STUDY = Study(
    "steps", "Time the steps from P4 to the fast form.", Row, WHOLE, QUICK, RATIOS, {"lengths": "tokens, like 16k"}
)
