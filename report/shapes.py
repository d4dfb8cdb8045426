"""What the sweep measures: shapes, lengths, masks and the kernels asked at each, as plain data. No torch."""

from dataclasses import dataclass, replace

from report.table import BASELINES, KERNELS, PEERS, Row

DTYPES = ("float16", "bfloat16")


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
    def name(self):
        """What the command line calls it: `4x16x128`; it has no window."""
        return f"{self.B}x{self.heads}x{self.D}"

    @property
    def label(self):
        """`B=4 H=16 D=128`, `B=1 H=32/8 D=128 window=1024 sinks=4`: made from the shape, so never against it."""
        mask = "" if self.window is None else f" window={self.window} sinks={self.sinks}"
        return f"B={self.B} H={self.heads} D={self.D}{mask}"


@dataclass(frozen=True)
class Point:
    """One question of the sweep: a tier at N tokens, its mask and dtype."""

    tier: Tier
    N: int
    causal: bool
    dtype: str

    @property
    def title(self):
        full = "" if self.tier.window else " causal" if self.causal else " full"
        return f"{self.tier.label} N={self.N}{full} {self.dtype}"

    def row(self, kernel):
        """The row of `kernel` at this point, nothing measured yet."""
        tier = self.tier
        return Row(
            kernel, tier.label, self.N, self.N, tier.D, tier.H, tier.kv_heads, tier.B,
            self.causal, tier.window, tier.sinks, self.dtype,
        )  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """Which points there are: tiers at lengths, causal and not; window shapes at each window, sinks and length."""

    tiers: tuple[Tier, ...]
    lengths: tuple[int, ...]
    window_tiers: tuple[Tier, ...]
    window_lengths: tuple[int, ...]
    windows: tuple[int, ...]
    sinks: tuple[int, ...]
    dtypes: tuple[str, ...] = DTYPES
    windows_have_baseline: bool = False  # where no GPU is, nothing else would be measured there

    def points(self):
        """Every Point, short sequences first: what is wrong shows early."""
        plain = [
            Point(tier, N, causal, dtype)
            for N in self.lengths
            for tier in self.tiers
            for causal in (True, False)
            for dtype in self.dtypes
        ]
        windowed = [
            Point(replace(tier, window=window, sinks=sinks), N, True, dtype)
            for N in self.window_lengths
            for tier in self.window_tiers
            for window in self.windows
            for sinks in self.sinks
            for dtype in self.dtypes
        ]
        return plain + windowed

    def kernels(self, point):
        """The names of the kernels asked at `point`, baselines first."""
        if point.tier.window is None:
            asked = {*BASELINES, "P2", "P4" if point.causal else "P3", "fast", *PEERS}
        else:
            asked = {"P7", "fast", "FlexAttention"} | ({"P6"} if point.tier.sinks == 0 else set())
            asked |= {"vectorised"} if self.windows_have_baseline else set()
        return [name for name in KERNELS if name in asked]


FULL = Plan(
    tiers=(Tier(1, 12, 64, 12), Tier(8, 12, 64, 12), Tier(1, 12, 128, 12), Tier(2, 24, 256, 24), Tier(4, 16, 128, 16)),
    lengths=(512, 1024, 2048, 4096, 8192, 16384),
    window_tiers=(Tier(1, 32, 128, 8), Tier(1, 32, 64, 8)),
    window_lengths=(4096, 16384),
    windows=(128, 1024, 4096),
    sinks=(0, 4, 128),
)
QUICK = Plan(
    tiers=(Tier(1, 2, 32, 2), Tier(2, 1, 16, 1)),
    lengths=(128, 256, 512, 1024),
    window_tiers=(Tier(1, 4, 32, 2),),
    window_lengths=(512,),
    windows=(64, 256),
    sinks=(0, 4),
    dtypes=("float16",),
    windows_have_baseline=True,
)
