"""One example of a mask past the ladder: its map and sparsity, and q, k, v, mask and the right answer in a file.

python -m grader.commands.sample document --segments 256,68,188
python -m grader.commands.sample random --kinds FCP --tokens 1024 --block 64 --seed 1 --out sample.pt
"""

import argparse
import sys
from pathlib import Path

import torch

from grader.course.masks import Visibility
from grader.kinds.block_sparse import patterns, tile_map
from grader.reference import oracle
from grader.result import clean

BLOCK_PATTERNS = ("random", "local", "local-global", "strided", "dense")
PATTERNS = ("document", "interleaved", "causal", "window", *BLOCK_PATTERNS)


class BadArguments(Exception):
    """The text is a sentence for whoever typed the command."""


def main(argv=None):
    try:
        options = parse(argv)
        visibility = pattern(options)
        found = tile_map.cut(visibility, options.tokens, options.tokens, options.block, options.block)
        print(found.text())
        print(f"element sparsity {found.sparsity:.4f}, {found.density:.4f} of the tiles hold visible pairs")
        if options.out:
            torch.save(example(options, visibility), options.out)
            path = clean(str(options.out))
            print(f"written: {path}; torch.load({str(options.out)!r}, weights_only=True) reads it")
        return 0
    except BadArguments as error:
        sentence = str(error)
    except (OSError, RuntimeError) as error:  # torch.save raises the latter for a folder that is not there
        sentence = f"{options.out} cannot be written: {error}"
    print(clean(f"sample: {sentence}"), file=sys.stderr)
    return 2


def parse(argv):
    parser = argparse.ArgumentParser(prog="python -m grader.commands.sample", description=__doc__.splitlines()[0])
    parser.add_argument("pattern", choices=PATTERNS)
    parser.add_argument("--tokens", type=int, default=None, help="512, or as many as the segments have")
    parser.add_argument("--block", type=int, default=64, help="tokens of a tile, and of a block of the block patterns")
    parser.add_argument("--segments", help="lengths for document and interleaved, text first: 133,309,70")
    parser.add_argument("--window", type=int, default=128)
    parser.add_argument("--sinks", type=int, default=0)
    parser.add_argument("--kinds", default="FP", help="of random's blocks, of E, F, C and P")
    parser.add_argument("--radius", type=int, default=1, help="blocks on either side, of all local patterns")
    parser.add_argument("--everywhere", type=int, default=1, help="first blocks that see and are seen, local-global")
    parser.add_argument("--stride", type=int, default=3)
    parser.add_argument("--heads", type=int, default=2)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--dtype", choices=("float16", "bfloat16", "float32"), default="float16")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(argv)
    options.segments = segments(options)
    options.tokens = options.tokens or sum(options.segments) or 512
    for name in ("tokens", "block", "window", "heads", "head_dim", "stride"):
        if getattr(options, name) < 1:
            raise BadArguments(f"--{name.replace('_', '-')} must be at least 1; got {getattr(options, name)}")
    if options.pattern in ("document", "interleaved") and sum(options.segments) != options.tokens:
        raise BadArguments(f"--segments add up to {sum(options.segments)}, --tokens is {options.tokens}")
    return options


def segments(options):
    if options.pattern not in ("document", "interleaved"):
        return ()
    text = options.segments or ("256,68,188" if options.pattern == "document" else "133,309,70")
    parts = text.split(",")
    if not all(part.strip().isdigit() and int(part) > 0 for part in parts):
        raise BadArguments(f"--segments are lengths of at least 1 with commas between them; got {text!r}")
    return tuple(map(int, parts))


def pattern(options):
    """The predicate that was asked for."""
    count = -(-options.tokens // options.block)
    if options.pattern == "random" and (not options.kinds or set(options.kinds) - set("EFCP")):
        raise BadArguments(f"--kinds are letters of E, F, C and P; got {options.kinds!r}")
    codes = {"E": patterns.EMPTY, "F": patterns.FULL, "C": patterns.CAUSAL, "P": patterns.PARTIAL}
    makers = {
        "document": lambda: patterns.Documents(options.segments),
        "interleaved": lambda: patterns.Interleaved(options.segments),
        "causal": lambda: Visibility(causal=True),
        "window": lambda: Visibility(True, options.window, options.sinks),
        "random": lambda: patterns.random_blocks(
            count, options.block, [codes[letter] for letter in options.kinds], options.seed
        ),
        "local": lambda: patterns.local(count, options.block, options.radius),
        "local-global": lambda: patterns.local_and_global(count, options.block, options.radius, options.everywhere),
        "strided": lambda: patterns.strided(count, options.block, options.radius, options.stride),
        "dense": lambda: patterns.dense(count, options.block),
    }
    return makers[options.pattern]()


def example(options, visibility):
    """q, k, v (1, heads, tokens, head dim), mask (tokens, tokens), and o and lse in float64; tensors alone."""
    generator = torch.Generator().manual_seed(options.seed)
    shape, dtype = (1, options.heads, options.tokens, options.head_dim), getattr(torch, options.dtype)
    q, k, v = (torch.randn(shape, generator=generator).to(dtype) for _ in range(3))
    o, lse, _ = oracle.attention(q, k, v, visibility.mask)
    positions = torch.arange(options.tokens)
    return {"q": q, "k": k, "v": v, "mask": visibility.mask(positions, positions), "o": o, "lse": lse}


if __name__ == "__main__":
    sys.exit(main())
