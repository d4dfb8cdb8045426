"""A vision transformer's attention over blocks: images of several sizes in one packed batch, six patterns.

    python -m report vit_example                three images, 12 heads of 64 on a GPU, in the interpreter 2 of them
    python -m report vit_example --heads 12     all of them there too, in a minute or two

An image of 14 x 14, 24 x 24 or 32 x 32 patches has 197, 577 or 1025 tokens, the first of them CLS. A pattern is a grid
of blocks of each image; in those with CLS the block that holds it sees all and is seen by all. For each pattern this
prints the map of the middle image, the tiles that a head visits of all there are, and the error against dense attention
in float64.
"""

import argparse
import os
import sys
import time

import torch

from grader.kinds.block_sparse import patterns
from grader.reference import oracle
from report.places import load

HEADS, HEAD_DIM = 12, 64
HEADS_INTERPRETED = 2
PATTERNS = {
    "diagonal": lambda count, block: patterns.local(count, block, radius=0),
    "local": patterns.local,
    "local with CLS": lambda count, block: patterns.local_and_global(count, block, radius=1, everywhere=1),
    "local with CLS and global": lambda count, block: patterns.local_and_global(count, block, radius=1, everywhere=2),
    "strided with CLS": lambda count, block: seen_by_cls(patterns.strided(count, block, radius=0, stride=3)),
    "dense": patterns.dense,
}
SECONDS = 1e-6  # on a CPU for each head, pattern and pair of tokens of one image, most of it for the error


def seen_by_cls(blocks):
    """The same grid, in which the first block, where CLS is, sees all and is seen by all."""
    first, *rest = blocks.kinds
    kinds = ((patterns.FULL,) * len(first), *((patterns.FULL, *row[1:]) for row in rest))
    return patterns.Blocks(kinds, blocks.block)


def grids(pattern, images, block):
    """The pattern of each image."""
    return [PATTERNS[pattern](-(-tokens // block), block) for tokens in images]


def run(packed, visibilities, images, heads, block, tile, qkv):
    """One pattern: the tiles that a head visits, all tiles of a head, the error, is it allowed, seconds."""
    q, k, v = qkv.unbind(1)
    cu_seqlens = torch.tensor([0, *images]).cumsum(0).int().to(qkv.device)
    mask = patterns.base_mask(visibilities).to(qkv.device)
    lists = packed.tile_lists(cu_seqlens, cu_seqlens, heads, mask, (block, block), tile=(tile, tile))
    visited = int((lists.bounds[0, :, 2] - lists.bounds[0, :, 0]).sum())
    everything = sum((-(-tokens // tile)) ** 2 for tokens in images)
    started = time.perf_counter()
    o, lse = packed.attend(q, k, v, lists)
    if qkv.is_cuda:
        torch.cuda.synchronize()
    seconds = time.perf_counter() - started
    error = excess = 0.0
    for visibility, begin, end in zip(visibilities, cu_seqlens.tolist(), cu_seqlens.tolist()[1:], strict=False):
        image = [x[begin:end].transpose(0, 1)[None].cpu() for x in (q, k, v, o)]
        expected = oracle.expect(*image[:3], visibility)
        off = (image[3].double() - expected.o).abs()
        off_lse = (lse[:, begin:end].cpu().double() - expected.lse[0]).abs()
        error = max(error, float(off.max()))
        excess = max(excess, float((off - expected.allowed_o).max()), float((off_lse - expected.allowed_lse[0]).max()))
    return visited, everything, error, excess <= 0, seconds


def text(blocks):
    """A line a row of blocks: `F F . . F`."""
    return "\n".join("    " + " ".join(" F"[kind == patterns.FULL] for kind in row).rstrip() for row in blocks.kinds)


def parse(arguments):
    parser = argparse.ArgumentParser("python -m report vit_example", description=__doc__.partition("\n")[0])
    parser.add_argument("--images", default="197,577,1025", help="tokens of each image, CLS included")
    parser.add_argument("--heads", type=int, help=f"{HEADS}; {HEADS_INTERPRETED} in the interpreter")
    parser.add_argument("--block", type=int, default=64, help="tokens of a block of the pattern")
    parser.add_argument("--tile", type=int, default=64, help="tokens of a tile of the kernel")
    parser.add_argument("--only", choices=PATTERNS, help="one pattern")
    options = parser.parse_args(arguments)
    try:
        options.images = [int(tokens) for tokens in options.images.split(",")]
    except ValueError:
        parser.error(f"--images are numbers of tokens between commas; got {options.images!r}")
    sizes = {"images": min(options.images), "heads": options.heads, "block": options.block}
    for name, least in sizes.items():
        if least is not None and least < 1:
            parser.error(f"--{name} must be at least 1; got {least}")
    return options


def main(arguments):
    options = parse(arguments)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        os.environ.setdefault("TRITON_INTERPRET", "1")  # Triton reads it when it is imported, by this module
    packed = load("packed_block_sparse.py")
    heads = options.heads or (HEADS if device == "cuda" else HEADS_INTERPRETED)
    torch.manual_seed(0)
    qkv = torch.randn(sum(options.images), 3, heads, HEAD_DIM).half().to(device)
    where = torch.cuda.get_device_name() if device == "cuda" else "the CPU, in Triton's interpreter"
    print(f"images of {', '.join(map(str, options.images))} tokens, {heads} heads of {HEAD_DIM}, on {where}")
    shape = options.images, heads, options.block, options.tile
    right, asked = True, [options.only] if options.only else list(PATTERNS)
    if device == "cpu":
        seconds = SECONDS * len(asked) * heads * sum(tokens**2 for tokens in options.images)
        print(f"{len(asked)} patterns, some {max(1, round(seconds))} s in all", flush=True)
    for pattern in asked:
        visibilities, middle = grids(pattern, options.images, options.block), len(options.images) // 2
        print(f"\n{pattern}: blocks of {options.block}, image of {options.images[middle]} tokens")
        print(text(visibilities[middle]), flush=True)
        try:
            visited, everything, error, within, seconds = run(packed, visibilities, *shape, qkv)
        except ValueError as problem:
            print(problem, file=sys.stderr)
            return 2
        print(f"  {visited} of {everything} tiles visited by each head, density {visited / everything:.3f}")
        verdict = "within" if within else "MORE THAN"
        print(f"  largest error against float64 {error:.1e}, {verdict} what a careful kernel may be off by")
        took = f"{seconds:.1f} s" if device == "cpu" else f"first call {1e3 * seconds:.1f} ms, compiling included"
        print(f"  {took}", flush=True)
        right &= within
    return 0 if right else 1
