"""Orders of programs in the model of a GPU with several dies, at any shape: hits in its caches, time and balance.

    python -m report order_model                        the shape at which the published order was published
    python -m report order_model --B 1 --H 32 --N 8192 --D 128 --tiles 128x128

A model, no measurement: report/counting/cache_model.py says what it leaves out. Causal, float16; each head
has its own K and V. A line for each order: tiles of keys found in a die's cache, the time of the last program in steps
and beside the plain order's, slots without work, and the work of the fullest die over the mean.
"""

import argparse
import re

from report.pages.orders_model import NAMES, PUBLISHED_SHAPE, Shape, complete, figures

VISITS = 1e6  # of the model in a second, at least


def parse(arguments):
    parser = argparse.ArgumentParser("python -m report order_model", description=__doc__.partition("\n")[0])
    for name, what in (
        ("B", "batches"), ("H", "heads"), ("N", "tokens of a sequence"), ("D", "head dim"), ("dies", "dies of the GPU"),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=getattr(PUBLISHED_SHAPE, name), help=f"{what} (%(default)s)")
    parser.add_argument("--tiles", type=pair, default="128x64", help="tokens of a tile, queries x keys (%(default)s)")
    options = parser.parse_args(arguments)
    try:
        return Shape(options.B, options.H, options.N, options.D, options.tiles, options.dies)
    except ValueError as problem:
        parser.error(str(problem))


def pair(text):
    found = re.fullmatch(r"(\d+)x(\d+)", text)
    if not found:
        raise argparse.ArgumentTypeError(f"tiles are two numbers with an x between them, like 128x64; got {text!r}")
    return int(found[1]), int(found[2])


def main(arguments):
    shape = parse(arguments)
    tiles, heads, *_ = shape.sizes
    steps = heads * sum((tile + 1) * shape.tiles[0] // shape.tiles[1] for tile in range(tiles))
    print(
        f"{shape}: {tiles * heads} programs, {steps} tiles of keys; some {len(NAMES) * steps / 5e5:.0f} s", flush=True
    )
    print(f"{'order':36}{'hits, %':>9}{'steps':>9}{'speed':>8}{'idle, %':>9}{'fullest die':>13}")
    for order, name in NAMES.items():
        if not complete(order, tiles, heads, shape.dies):
            print(f"{name:36}  leaves tiles out at {tiles} tiles a head", flush=True)
            continue
        hits, makespan, speed, idle, fullest = figures(order, *shape.sizes)
        print(f"{name:36}{hits:9.1f}{makespan:9.0f}{speed:8.2f}{idle:9.0f}{fullest:13.2f}", flush=True)
    return 0
