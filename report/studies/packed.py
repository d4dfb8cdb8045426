"""Packed attention of images under masks of blocks, beside dense attention. Plain data, no torch."""

from report.measuring.rows import schema
from report.measuring.study import Over, Point, Study, columns

TOKENS = (197, 577, 784, 1025, 1920)  # images of 14 x 14, 24 x 24 and 32 x 32 patches with CLS; 28 x 28; 30 x 64
BATCHES = (1, 2, 8)
HEADS = ((12, 64), (4, 128))  # heads, head dim
BLOCKS = (128, 192, 256)
# What each pattern is, in words, and the part of all blocks that is visible where it is drawn at random.
PATTERNS = {
    "dense": "every block sees every block",
    "diagonal": "each block sees itself",
    "local": "each block sees itself and its two neighbours",
    "strided": "each block sees itself and every third block before and after it",
    "global": "each block sees itself; the first, where CLS is, sees all and is seen by all",
    "local with global": "local, and the first block sees all and is seen by all",
    "random 0.75": "three quarters of all blocks at random places, the diagonal among them",
    "random 0.5": "half of all blocks, likewise",
    "random 0.25": "a quarter of all blocks, likewise; at least the diagonal",
}
CUDNN, FLASH, VARLEN = "SDPA cuDNN", "SDPA flash", "varlen_attn"
DENSE = (CUDNN, FLASH, VARLEN)  # they compute all pairs


def arm(pattern, block):
    """The name of our kernel under a pattern in blocks of that many tokens."""
    return f"{pattern} {block}"


def parts(kernel):
    """(pattern, block) of our kernel's name; (None, None) of a peer's."""
    pattern, _, block = kernel.rpartition(" ")
    return (pattern, int(block)) if pattern in PATTERNS else (None, None)


# sparsity: the part of all pairs of tokens of an image that is hidden; block_sparsity: of all its blocks. *_us: of one
# call; host_ms: of the CPU, to launch it. tflops: of visible pairs. over_*: how many times as fast as that kernel,
# paired, with the ends of its 95 % interval; over_all_ones: as ours with every block visible, in blocks of that size.
RATIOS = (
    Over("over_cudnn", lambda kernel: (CUDNN,)),
    Over("over_varlen", lambda kernel: (VARLEN,)),
    Over("over_all_ones", lambda kernel: (arm("dense", parts(kernel)[1]),) if parts(kernel)[1] else ()),
)
Row = schema(
    "packed", {"tokens": int, "batch": int, "heads": int, "head_dim": int, "kernel": str},
    columns("us", "host_ms", *(f"{ratio.column}*" for ratio in RATIOS)), facts=("sparsity", "block_sparsity"),
)  # fmt: skip


def point(tokens, batch, heads, head_dim, blocks=BLOCKS):
    """One question: images of one size, all patterns and blocks. The dtype is float16."""
    kernels = (*DENSE, *(arm(pattern, block) for pattern in PATTERNS for block in blocks))
    keys = {"tokens": tokens, "batch": batch, "heads": heads, "head_dim": head_dim}
    return Point(
        f"{batch} x {tokens} tokens, {heads} heads of {head_dim}", keys, kernels, CUDNN,
        {"tokens": tokens, "batches": batch, "dims": head_dim}, tokens, heads, head_dim, batch,
    )  # fmt: skip


WHOLE = tuple(point(tokens, batch, *heads) for tokens in TOKENS for heads in HEADS for batch in BATCHES)
QUICK = (point(70, 2, 1, 16, (64,)),)
STUDY = Study(
    "packed", "Measure packed attention of images under masks of blocks.", Row, WHOLE, QUICK, RATIOS,
    choices={"tokens": "of an image, like 197,1920", "batches": "like 1,8", "dims": "head dims, 64 or 128"},
    budget=0.2,
)  # fmt: skip
