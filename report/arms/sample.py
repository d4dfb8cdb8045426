"""Examples of masks past the ladder: maps and sparsity, and q, k, v, the mask and the right answer in files.

    python -m report sample document --segments 256,68,188
    python -m report sample random --kinds FCP --tokens 1024 --block 64 --seed 1 --out sample.pt
    python -m report sample every --out samples          every pattern, 512 to 2k tokens, blocks of 64 and 128

A file holds q, k, v (1, heads, tokens, head dim), mask (tokens, tokens) booleans, o and lse in float64; kinds (tiles,
tiles) int8 of 0 empty, 1 FULL, 2 CAUSAL, 3 PARTIAL; block, pattern, sparsity and density. torch.load reads it with
weights_only=True; `python -m report saved FILES` runs every kernel on such files.
"""

import argparse
from pathlib import Path

import torch

from grader.core.sandbox.texts import clean
from grader.kinds.attention import oracle
from grader.kinds.attention.masks import Visibility
from grader.kinds.block_sparse import patterns, tile_map
from report.counting import masks
from report.places import Refused

RANDOM = {"random": patterns.Blocks, "random-published": masks.PublishedBlocks}
PATTERNS = ("document", "interleaved", "causal", "window", *RANDOM, "local", "local-global", "strided", "dense")
KINDS = ("FP", "FCP")  # of random blocks, in `every`
TOKENS, BLOCKS = (512, 1024, 2048), (64, 128)  # likewise


def main(argv):
    options = parse(argv)
    try:
        return write_every(options) if options.pattern == "every" else show(options)
    except (OSError, RuntimeError) as error:  # torch.save raises the latter for a folder that is not there
        raise Refused(clean(f"{options.out} cannot be written: {error}")) from None


def show(options):
    """Print one pattern's map, and write its file if asked."""
    visibility, found = pattern(options)
    print(found.text())
    print(f"element sparsity {found.sparsity:.4f}, {found.density:.4f} of the tiles hold visible pairs")
    if options.out:
        torch.save(example(options, visibility, found), options.out)
        path = clean(str(options.out))
        print(f"written: {path}; torch.load({str(options.out)!r}, weights_only=True) reads it")
    return 0


def write_every(options):
    """A file of each pattern, number of tokens and block into a folder; a line for each."""
    folder = options.out or Path("samples")
    folder.mkdir(parents=True, exist_ok=True)
    asked = [(name, kinds, tokens, block) for name in PATTERNS for kinds in (KINDS if name in RANDOM else ("",))
             for tokens in TOKENS for block in BLOCKS]  # fmt: skip
    for number, (name, kinds, tokens, block) in enumerate(asked, 1):
        one = argparse.Namespace(**vars(options) | {"pattern": name, "kinds": kinds, "tokens": tokens, "block": block})
        one.segments = segments(one)
        visibility, found = pattern(one)
        path = folder / f"{named(one).replace(' ', '-')}-{tokens}-{block}.pt"
        torch.save(example(one, visibility, found), path)
        print(f"[{number}/{len(asked)}] {clean(str(path))}: sparsity {found.sparsity:.3f}", flush=True)
    print(f"python -m report saved {clean(str(folder))}/*.pt runs every kernel on them")
    return 0


def parse(argv):
    parser = argparse.ArgumentParser(prog="python -m report sample", description=__doc__.splitlines()[0])
    parser.add_argument("pattern", choices=(*PATTERNS, "every"))
    parser.add_argument("--tokens", type=int, default=None, help="512, or as many as the segments have")
    parser.add_argument("--block", type=int, default=64, help="tokens of a tile, and of a block of the block patterns")
    parser.add_argument("--segments", help="lengths for document and interleaved, text first: 133,309,70")
    parser.add_argument("--window", type=int, default=128)
    parser.add_argument("--sinks", type=int, default=0)
    parser.add_argument("--kinds", default="FP", help="of random blocks, of E, F, C and P")
    parser.add_argument("--radius", type=int, default=1, help="blocks on either side, of all local patterns")
    parser.add_argument("--everywhere", type=int, default=1, help="first blocks that see and are seen, local-global")
    parser.add_argument("--stride", type=int, default=3)
    parser.add_argument("--heads", type=int, default=2)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--dtype", choices=("float16", "bfloat16", "float32"), default="float16")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="the file, or with `every` the folder (samples)")
    options = parser.parse_args(argv)
    options.segments = segments(options)
    options.tokens = options.tokens or sum(options.segments) or 512
    for name in ("tokens", "block", "window", "heads", "head_dim", "stride"):
        if getattr(options, name) < 1:
            raise Refused(f"--{name.replace('_', '-')} must be at least 1; got {getattr(options, name)}")
    if options.pattern in ("document", "interleaved") and sum(options.segments) != options.tokens:
        raise Refused(f"--segments add up to {sum(options.segments)}, --tokens is {options.tokens}")
    return options


def segments(options):
    """The lengths of the segments, those of the studies where none are given; () for other patterns."""
    makers = {"document": masks.document_lengths, "interleaved": masks.interleaved_lengths}
    if options.pattern not in makers:
        return ()
    if not options.segments:
        return makers[options.pattern](options.tokens or 512)
    parts = options.segments.split(",")
    if not all(part.strip().isdigit() and int(part) > 0 for part in parts):
        raise Refused(f"--segments are lengths of at least 1 with commas between them; got {options.segments!r}")
    return tuple(map(int, parts))


def pattern(options):
    """(the predicate that was asked for, its TileMap)"""
    count = -(-options.tokens // options.block)
    if options.pattern in RANDOM and (not options.kinds or set(options.kinds) - set("EFCP")):
        raise Refused(f"--kinds are letters of E, F, C and P; got {options.kinds!r}")
    codes = {"E": patterns.EMPTY, "F": patterns.FULL, "C": patterns.CAUSAL, "P": patterns.PARTIAL}
    makers = {
        "document": lambda: patterns.Documents(options.segments),
        "interleaved": lambda: patterns.Interleaved(options.segments),
        "causal": lambda: Visibility(causal=True),
        "window": lambda: Visibility(True, options.window, options.sinks),
        "local": lambda: patterns.local(count, options.block, options.radius),
        "local-global": lambda: patterns.local_and_global(count, options.block, options.radius, options.everywhere),
        "strided": lambda: patterns.strided(count, options.block, options.radius, options.stride),
        "dense": lambda: patterns.dense(count, options.block),
    }
    if options.pattern in RANDOM:
        kinds = [codes[letter] for letter in options.kinds]
        visibility = patterns.random_blocks(count, options.block, kinds, options.seed, RANDOM[options.pattern])
    else:
        visibility = makers[options.pattern]()
    return visibility, tile_map.cut(visibility, options.tokens, options.tokens, options.block, options.block)


def named(options):
    """`causal`, `random FCP`, `random-published FP`"""
    return f"{options.pattern} {options.kinds}" if options.pattern in RANDOM else options.pattern


def example(options, visibility, found):
    """What a file holds: tensors, numbers and text alone. found: the TileMap of the mask."""
    generator = torch.Generator().manual_seed(options.seed)
    shape, dtype = (1, options.heads, options.tokens, options.head_dim), getattr(torch, options.dtype)
    q, k, v = (torch.randn(shape, generator=generator).to(dtype) for _ in range(3))
    o, lse, _ = oracle.attention(q, k, v, visibility.mask)
    positions = torch.arange(options.tokens)
    return {
        "q": q, "k": k, "v": v, "mask": visibility.mask(positions, positions), "o": o, "lse": lse,
        "kinds": found.kinds.to(torch.int8), "block": options.block, "pattern": named(options),
        "sparsity": found.sparsity, "density": found.density,
    }  # fmt: skip
