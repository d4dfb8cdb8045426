"""The sweep: every kernel at every shape, beside plain PyTorch and the peers. Plain data, no torch."""

from dataclasses import dataclass, replace

from report.measuring.rows import interval, schema
from report.measuring.study import Over, Point, Study

BASELINES = ("naive per head", "vectorised", "vectorised compiled")
OURS = ("P2", "P3", "P4", "P6", "P7", "fast")
PEERS = ("SDPA flash", "SDPA efficient", "SDPA cuDNN", "FlexAttention", "FlashAttention-4")
KERNELS = BASELINES + OURS + PEERS
DTYPES = ("float16", "bfloat16")

# heads, kv_heads: query heads, key/value heads. window, sinks: in tokens, None where the mask has none. *_ms: times
# of one call in ms; host_ms: of the CPU, to launch it. tflops: visible pairs of query and key only. peak_mib: MiB
# allocated during the call beside its inputs. speedup: the time of "vectorised" over this one ("naive per head" where
# that ran out of memory), `ours` this time over that of "fast"; *_low, *_high: ends of their 95 % intervals.
KEYS = {
    "kernel": str, "tier": str, "q_len": int, "k_len": int, "head_dim": int, "heads": int, "kv_heads": int,
    "batch": int, "causal": bool, "window": int | None, "sinks": int | None, "dtype": str,
}  # fmt: skip
MEASURED = (
    "avg_ms", "std_ms", "min_ms", "median_ms", "p20_ms", "p80_ms", "samples", "host_ms", "tflops", "fraction_of_peak",
    "peak_mib", *interval("speedup"), *interval("ours"),
)  # fmt: skip
Row = schema("sweep", KEYS, MEASURED)


@dataclass(frozen=True)
class Tier:
    """The shape of a model's attention: B batch, H query heads, kv_heads key/value heads, D head dim; the window."""

    B: int
    H: int
    D: int
    kv_heads: int
    window: int | None = None
    sinks: int | None = None

    @property
    def heads(self):
        """`16`, or `32/8` where key/value heads are shared."""
        return f"{self.H}" if self.kv_heads == self.H else f"{self.H}/{self.kv_heads}"

    @property
    def label(self):
        """`B=4 H=16 D=128`, `B=1 H=32/8 D=128 window=1024 sinks=4`: made from the shape, so never against it."""
        mask = "" if self.window is None else f" window={self.window} sinks={self.sinks}"
        return f"B={self.B} H={self.heads} D={self.D}{mask}"

    def point(self, N, causal, dtype, kernels):
        """The Point of this tier at N tokens."""
        windowed = self.window is not None
        mask = "" if windowed else " causal" if causal else " full"
        keys = {
            "tier": self.label, "q_len": N, "k_len": N, "head_dim": self.D, "heads": self.H,
            "kv_heads": self.kv_heads, "batch": self.B, "causal": causal, "window": self.window, "sinks": self.sinks,
            "dtype": dtype,
        }  # fmt: skip
        name = {"windows": self.window} if windowed else {"tiers": f"{self.B}x{self.heads}x{self.D}"}
        return Point(
            f"{self.label} N={N}{mask} {dtype}", keys, tuple(k for k in KERNELS if k in kernels), "fast",
            {**name, "lengths": N, "dtypes": dtype}, N, self.H, self.D, self.B, self.kv_heads, causal, self.window,
            self.sinks, dtype,
        )  # fmt: skip


def plain_points(tiers, lengths, dtypes):
    """Tiers at lengths, causal and not."""
    return tuple(
        tier.point(N, causal, dtype, {*BASELINES, "P2", "P4" if causal else "P3", "fast", *PEERS})
        for N in lengths
        for tier in tiers
        for causal in (True, False)
        for dtype in dtypes
    )


def window_points(tiers, lengths, windows, sinks, dtypes, kernels):
    """Tiers at each window, number of sinks and length."""
    return tuple(
        replace(tier, window=window, sinks=count).point(
            N, True, dtype, kernels | (WITHOUT_SINKS if count == 0 else set())
        )
        for N in lengths
        for tier in tiers
        for window in windows
        for count in sinks
        for dtype in dtypes
    )


TIERS = (Tier(1, 12, 64, 12), Tier(8, 12, 64, 12), Tier(1, 12, 128, 12), Tier(2, 24, 256, 24), Tier(4, 16, 128, 16))
WINDOWED = (Tier(1, 32, 128, 8), Tier(1, 32, 64, 8))
WINDOW_KERNELS = {"P7", "fast", "FlexAttention"}
WITHOUT_SINKS = {"P6", "FlashAttention-4"}
# Short sequences first: what is wrong shows early.
WHOLE = (
    *plain_points(TIERS, (512, 1024, 2048, 4096, 8192, 16384), DTYPES),
    *window_points(WINDOWED, (4096, 16384), (128, 1024, 4096), (0, 4, 128), DTYPES, WINDOW_KERNELS),
)
# Without a GPU nothing but the baseline would be measured at a window.
QUICK = (
    *plain_points((Tier(1, 2, 32, 2), Tier(2, 1, 16, 1)), (128, 256, 512, 1024), DTYPES[:1]),
    *window_points((Tier(1, 4, 32, 2),), (512,), (64, 256), (0, 4), DTYPES[:1], WINDOW_KERNELS | {"vectorised"}),
)

STUDY = Study(
    "sweep", "Measure every kernel at every shape.", Row, WHOLE, QUICK,
    ratios=(
        Over("speedup", lambda kernel: ("vectorised", "naive per head")),
        Over("ours", lambda kernel: ("fast",), inverse=True),
    ),
    choices={
        "tiers": "shapes BxHxD, like 4x16x128,1x12x64", "lengths": "tokens, like 512,16k", "windows": "like 128,1024",
        "dtypes": "float16, bfloat16",
    },
    budget=0.3, limit=180.0, interpreted=False, machine="machine.json",
)  # fmt: skip
