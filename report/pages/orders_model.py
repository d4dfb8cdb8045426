"""What the model of a GPU with eight dies says of orders of programs: hits, makespans, and how even the work is."""

from functools import cache

from grader.kinds.program_order.cache_model import MI300X, simulate
from grader.kinds.program_order.orders import head_first, identity, listed, longest_first, published

NAMES = {
    identity: "plain",
    longest_first: "reversed, longest rows first",
    published: "published: a block of tiles a die",
    head_first: "head first, longest rows first (x2)",
}
BLOCK = 128  # tokens of a tile
TILES, HEADS = 64, 32  # 8k tokens: the most that the published order is a bijection for
SEEDS = range(5)
PANELS = (identity, published, head_first)


@cache
def runs(order, tiles=TILES, heads=HEADS, heads_per_kv=1, machine=MI300X):
    """The Run of an order for each seed."""
    places = listed(order, tiles, heads, machine.dies, heads_per_kv)
    return [simulate(places, heads_per_kv, machine, seed) for seed in SEEDS]


def median(values):
    return sorted(values)[len(values) // 2]


def figures(order, *sizes):
    """(hits in %, makespan, speed relative to the plain order, idle in %, work of the fullest die over the mean)."""
    of = runs(order, *sizes)
    makespan = median([run.makespan for run in of])
    speed = median([run.makespan for run in runs(identity, *sizes)]) / makespan
    visits = of[0].visits
    return (
        100 * median([run.hit_rate for run in of]),
        makespan,
        speed,
        100 * median([run.idle for run in of]),
        max(visits) * len(visits) / sum(visits),
    )


def complete(order, tiles, heads):
    return len(set(listed(order, tiles, heads))) == tiles * heads


def spread():
    """The largest difference between two seeds, in % of the median, of any makespan in the first table."""
    return max(
        100 * (max(times) - min(times)) / median(times)
        for times in ([run.makespan for run in runs(order)] for order in NAMES)
    )
