"""What is measured of block-sparse attention: points, kernels and rows of block_sparse.csv, as plain data. No torch."""

from dataclasses import dataclass
from typing import ClassVar

FILE, MACHINE = "block_sparse.csv", "block_sparse.json"
PATTERNS = ("documents", "interleaved", "causal", "random FP", "random FCP")
FULL_MAP, BY_DENSITY = "full map", "by density"
MAPS = ("map of documents", "map of causal", "map of window")
STEPS = ("simple", "prefetch", "shared_kv", "swizzled")
FLEX, CUDNN, MASKED, DENSE = "FlexAttention", "cuDNN dense", "SDPA with a mask", "fast_attention dense"
WITHOUT_MASK = (CUDNN, DENSE)  # they compute all pairs
KERNELS = (*STEPS, "fast", FLEX, CUDNN, MASKED, DENSE)
DENSITIES = ("1", "0.75", "0.5", "0.25", "0.1", "0.05")
SCALED = ("swizzled", "fast")  # timed at each density
LAB_BUILDER, FLEX_BUILDER, GPU_BUILDER = "tiles_of_predicate", "create_block_mask compiled", "tiles_on_gpu"
FAST_BUILDER = "tiles_on_gpu and the fast form's lists"
BUILDERS = (LAB_BUILDER, FLEX_BUILDER, GPU_BUILDER, FAST_BUILDER)
MASK_UP_TO = 4096  # tokens: what a mask of N x N booleans is asked for


@dataclass(frozen=True)
class SparseRow:
    """One kernel at one point. None is a blank field: a number that was not measured is never 0.

    block: tokens of a tile, both ways. sparsity: the part of all pairs that the mask hides; density: of all tiles,
    those that hold visible pairs. *_us: of one call. tflops: of visible pairs alone; of
    all pairs for the kernels without a mask. over_*: how many times as fast as that kernel, paired, with the ends of
    its 95 % interval; over_dense: as fast_attention.py without a mask, or by density as this kernel at density 1.
    """

    MEASURED: ClassVar[str] = "median_us"
    COMMAND: ClassVar[str] = "python -m report.block_sparse"

    pattern: str
    n: int
    block: int
    kernel: str
    sparsity: float | None = None
    density: float | None = None
    median_us: float | None = None
    p20_us: float | None = None
    p80_us: float | None = None
    samples: int | None = None
    tflops: float | None = None
    over_flex: float | None = None
    over_flex_low: float | None = None
    over_flex_high: float | None = None
    over_cudnn: float | None = None
    over_cudnn_low: float | None = None
    over_cudnn_high: float | None = None
    over_dense: float | None = None
    over_dense_low: float | None = None
    over_dense_high: float | None = None
    status: str = "ok"
    reason: str = ""

    @property
    def key(self):
        return self.pattern, self.n, self.block, self.kernel


@dataclass(frozen=True)
class SparsePoint:
    """One question: a pattern, its tokens and its tiles. B is 1, the dtype float16."""

    pattern: str
    n: int
    block: int
    heads: int = 8
    head_dim: int = 64

    @property
    def title(self):
        return f"{self.pattern} N={self.n} block={self.block}"

    def row(self, kernel):
        return SparseRow(self.pattern, self.n, self.block, kernel)

    @property
    def kernels(self):
        """The names of the kernels asked here."""
        if self.pattern == FULL_MAP:
            return ["swizzled", "fast", CUDNN, DENSE]
        if self.pattern == BY_DENSITY:
            return [f"{name} at {density}" for name in SCALED for density in DENSITIES]
        if self.pattern in MAPS:
            return list(BUILDERS)
        return [name for name in KERNELS if name != MASKED or self.n <= MASK_UP_TO]


def points(lengths, blocks, longest=None, **shape):
    """Every SparsePoint of these lengths and blocks; what is asked at one length only, at the longest."""
    longest = longest or max(lengths)
    asked = [(pattern, n) for n in lengths for pattern in PATTERNS]
    asked += [(FULL_MAP, n) for n in lengths if n >= 2048 or n == longest]
    asked += [(pattern, longest) for pattern in (BY_DENSITY, *MAPS)]
    return [SparsePoint(pattern, n, block, **shape) for pattern, n in asked for block in blocks]


WHOLE = points((512, 1024, 2048, 4096, 8192, 16384), (64, 128))
QUICK = points((64, 128), (32,), heads=1, head_dim=16)
