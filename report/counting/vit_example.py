"""A vision transformer's attention over blocks: images of several sizes in one packed batch, six patterns.

    python -m report vit_example                three images, 12 heads of 64 on a GPU, 2 of them without
    python -m report vit_example --heads 12     all of them there too, in a minute or two

An image of 14 x 14, 24 x 24 or 32 x 32 patches has 197, 577 or 1025 tokens, the first of them CLS. A pattern is a grid
of blocks of each image; in those with CLS the block that holds it sees all and is seen by all. For each pattern this
prints the map of the middle image, the tiles that a head visits of all there are, what is hidden, the error against
dense attention in float64, and on a GPU the time beside that of the dense pattern, the two taking turns.
"""

import argparse
import statistics
import sys
import time

import torch

from grader.core import in_process
from grader.core.run.stopwatch import Stopwatch
from grader.kinds.attention import oracle
from grader.kinds.block_sparse import patterns
from report.counting import masks
from report.places import load

HEADS, HEAD_DIM = 12, 64
HEADS_INTERPRETED = 2
ROUNDS = 20
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


def prepared(packed, pattern, options, qkv):
    """(grids, TileLists) of a pattern: what depends on the mask and the lengths alone, made once for all layers."""
    found = [PATTERNS[pattern](-(-tokens // options.block), options.block) for tokens in options.images]
    cu_seqlens = torch.tensor([0, *options.images]).cumsum(0).int().to(qkv.device)
    block = (options.block, options.block)
    tile = (options.tile, options.tile) if options.tile else packed.choose_tile(block, HEAD_DIM)
    mask = masks.base_mask(found).to(qkv.device)
    return found, packed.tile_lists(cu_seqlens, cu_seqlens, qkv.shape[2], mask, block, tile=tile)


def work(lists, grids, images):
    """What a head visits and what is hidden, as a line."""
    visited = int((lists.bounds[0, :, 2] - lists.bounds[0, :, 0]).sum())
    everything = sum((-(-tokens // lists.tile[0])) * (-(-tokens // lists.tile[1])) for tokens in images)
    pairs, blocks = [tokens**2 for tokens in images], [one.table.numel() for one in grids]
    hidden = sum(masks.sparsity(one, n) * of for one, n, of in zip(grids, images, pairs, strict=True)) / sum(pairs)
    empty = 1 - sum(masks.density(one) * of for one, of in zip(grids, blocks, strict=True)) / sum(blocks)
    said = f"hidden: {100 * hidden:.0f} % of all pairs of tokens, {100 * empty:.0f} % of all blocks"
    return f"{visited} of {everything} tiles visited by each head; {said}"


def compare(lists, grids, qkv, o, lse):
    """(the largest error of o, whether o and lse are within what a careful kernel may be off by)."""
    error = excess = 0.0
    ends = lists.cu_seqlens_q.tolist()
    for visibility, begin, end in zip(grids, ends, ends[1:], strict=False):
        image = [x[begin:end].transpose(0, 1)[None] for x in (*qkv.unbind(1), o)]
        expected = oracle.expect(*image[:3], visibility)
        off = (image[3].double() - expected.o).abs()
        off_lse = (lse[:, begin:end].double() - expected.lse[0]).abs()
        error = max(error, float(off.max()))
        excess = max(excess, float((off - expected.allowed_o).max()), float((off_lse - expected.allowed_lse[0]).max()))
    return error, excess <= 0


def timed(call, dense):
    """`0.021 ms (0.020 to 0.022), 2.1 times as fast as dense`: medians, after a warm-up, of turns on a cold L2."""
    stopwatch = Stopwatch("cuda")
    for one in (call, dense):
        stopwatch.warm_up(one, seconds=0.2)
    rounds = [(stopwatch.sample(call), stopwatch.sample(dense)) for _ in range(ROUNDS)]
    ms = sorted(ours for ours, _ in rounds)
    ratio = statistics.median(theirs / ours for ours, theirs in rounds)
    fast, slow = ms[ROUNDS // 5], ms[-ROUNDS // 5]
    return f"{statistics.median(ms):.3f} ms ({fast:.3f} to {slow:.3f}), {ratio:.2f} times as fast as dense"


def text(blocks):
    """A line a row of blocks: `F F . . F`."""
    return "\n".join("    " + " ".join(" F"[kind == patterns.FULL] for kind in row).rstrip() for row in blocks.kinds)


def parse(arguments):
    parser = argparse.ArgumentParser("python -m report vit_example", description=__doc__.partition("\n")[0])
    parser.add_argument("--images", default="197,577,1025", help="tokens of each image, CLS included")
    parser.add_argument("--heads", type=int, help=f"{HEADS}; {HEADS_INTERPRETED} without a GPU")
    parser.add_argument("--block", type=int, default=64, help="tokens of a block of the pattern")
    parser.add_argument("--tile", type=int, help="tokens of a tile of the kernel, both ways (default: what suits it)")
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
        in_process.begin()
    packed = load("packed_block_sparse.py")
    heads = options.heads or (HEADS if device == "cuda" else HEADS_INTERPRETED)
    torch.manual_seed(0)
    qkv = torch.randn(sum(options.images), 3, heads, HEAD_DIM).half().to(device)
    where = torch.cuda.get_device_name() if device == "cuda" else "the CPU"
    print(f"images of {', '.join(map(str, options.images))} tokens, {heads} heads of {HEAD_DIM}, on {where}")
    asked = [options.only] if options.only else list(PATTERNS)
    if device == "cpu":
        seconds = SECONDS * len(asked) * heads * sum(tokens**2 for tokens in options.images)
        print(f"{len(asked)} patterns, some {max(1, round(seconds))} s in all", flush=True)
    try:
        return 0 if all([show(packed, pattern, options, qkv) for pattern in asked]) else 1
    except ValueError as problem:
        print(problem, file=sys.stderr)
        return 2


def show(packed, pattern, options, qkv):
    """Print what there is to say of a pattern; whether its result is right."""
    found, lists = prepared(packed, pattern, options, qkv)
    middle, started = len(options.images) // 2, time.perf_counter()
    print(f"\n{pattern}: blocks of {options.block}, image of {options.images[middle]} tokens")
    print(text(found[middle]), flush=True)
    o, lse = packed.attend(*qkv.unbind(1), lists)
    error, within = compare(lists, found, qkv, o, lse)
    print(f"  {work(lists, found, options.images)}")
    verdict = "within" if within else "MORE THAN"
    print(f"  largest error against float64 {error:.1e}, {verdict} what a careful kernel may be off by")
    if qkv.is_cuda:
        _, dense = prepared(packed, "dense", options, qkv)
        said = timed(lambda: packed.attend(*qkv.unbind(1), lists), lambda: packed.attend(*qkv.unbind(1), dense))
    else:
        said = f"{time.perf_counter() - started:.1f} s"
    print(f"  {said}", flush=True)
    return within
