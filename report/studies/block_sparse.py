"""Block-sparse attention: masks, densities and the making of maps, at two sizes of tiles. Plain data, no torch."""

from report.measuring.rows import schema
from report.measuring.study import Over, Point, Study, columns

PATTERNS = ("documents", "interleaved", "causal", "random FP", "random FCP")
PUBLISHED = ("random FP published", "random FCP published")  # the same blocks, which hide less
FULL_MAP, BY_DENSITY = "full map", "by density"
MAPS = ("map of documents", "map of causal", "map of window")
STEPS = ("simple", "prefetch", "row_pairs", "longest_first")
FLEX, CUDNN, MASKED, DENSE = "FlexAttention", "cuDNN dense", "SDPA with a mask", "fast_attention dense"
WITHOUT_MASK = (CUDNN, DENSE)  # they compute all pairs
KERNELS = (*STEPS, "fast", FLEX, CUDNN, MASKED, DENSE)
DENSITIES = ("1", "0.75", "0.5", "0.25", "0.1", "0.05")
SCALED = ("longest_first", "fast")  # timed at each density
LAB_BUILDER, FLEX_BUILDER, GPU_BUILDER = "tiles_of_predicate", "create_block_mask compiled", "tiles_on_gpu"
FAST_BUILDER = "tiles_on_gpu and the fast form's lists"
BUILDERS = (LAB_BUILDER, FLEX_BUILDER, GPU_BUILDER, FAST_BUILDER)
MASK_UP_TO = 4096  # tokens: what a mask of N x N booleans is asked for


def over(base, by_density=False):
    """What a ratio is taken to: `base`, or by density the same kernel at density 1."""

    def others(kernel):
        plain, _, density = kernel.partition(" at ")
        return ((f"{plain} at 1",) if by_density else ()) if density else (base,)

    return others


# block: tokens of a tile, both ways. sparsity: the part of all pairs that the mask hides; density: of all tiles, those
# that hold visible pairs. *_us: of one call. tflops: of visible pairs alone; of all pairs for the kernels without a
# mask. over_*: how many times as fast as that kernel, paired, with the ends of its 95 % interval; over_dense: as
# fast_attention.py without a mask, or by density as this kernel at density 1.
RATIOS = (
    Over("over_flex", over(FLEX)),
    Over("over_cudnn", over(CUDNN)),
    Over("over_dense", over(DENSE, by_density=True)),
)
Row = schema(
    "block_sparse", {"pattern": str, "n": int, "block": int, "kernel": str},
    columns("us", *(f"{ratio.column}*" for ratio in RATIOS)), facts=("sparsity", "density"),
)  # fmt: skip


def asked_of(pattern, n):
    """(part of the study, kernels, the one that all are compared with precisely) of a pattern at n tokens."""
    if pattern == FULL_MAP:
        return "full", ("longest_first", "fast", CUDNN, DENSE), DENSE
    if pattern == BY_DENSITY:
        return "density", tuple(f"{name} at {density}" for name in SCALED for density in DENSITIES), "fast at 1"
    if pattern in MAPS:
        return "maps", BUILDERS, FLEX_BUILDER
    part = "published" if pattern in PUBLISHED else "patterns"
    return part, tuple(name for name in KERNELS if name != MASKED or n <= MASK_UP_TO), FLEX


def point(pattern, n, block, heads=8, head_dim=64):
    """One question: a pattern, its tokens and its tiles. B is 1, the dtype float16."""
    part, kernels, anchor = asked_of(pattern, n)
    return Point(
        f"{pattern} N={n} block={block}", {"pattern": pattern, "n": n, "block": block}, kernels, anchor,
        {"parts": part, "patterns": pattern, "lengths": n}, n, heads, head_dim, pattern=pattern, block=block,
    )  # fmt: skip


def points(lengths, blocks, **shape):
    """Every point of these lengths and blocks; what is asked at one length only, at the longest."""
    longest = max(lengths)
    asked = [(pattern, n) for n in lengths for pattern in PATTERNS + PUBLISHED]
    asked += [(FULL_MAP, n) for n in lengths if n >= 2048 or n == longest]
    asked += [(pattern, longest) for pattern in (BY_DENSITY, *MAPS)]
    return tuple(point(pattern, n, block, **shape) for pattern, n in asked for block in blocks)


WHOLE = points((512, 1024, 2048, 4096, 8192, 16384), (64, 128))
QUICK = points((64, 128), (32,), heads=1, head_dim=16)
STUDY = Study(
    "block_sparse", "Measure block-sparse attention.", Row, WHOLE, QUICK, RATIOS,
    choices={
        "parts": "of patterns, published, full, density, maps", "patterns": 'like "documents,random FP"',
        "lengths": "tokens, like 512,16k",
    },
    budget=0.2,
)  # fmt: skip
