"""What the model of a GPU with eight dies says of orders of programs: hits, makespans, and how even the work is."""

from dataclasses import dataclass, replace
from functools import cache
from statistics import median

from report.counting.cache_model import MI300X, simulate
from report.counting.orders import head_first, identity, listed, longest_first, published

NAMES = {
    identity: "plain",
    longest_first: "reversed, longest rows first",
    published: "published: a block of tiles a die",
    head_first: "head first, longest first (lab X2)",
}
BLOCK = 128  # tokens of a tile
TILES, HEADS = 64, 32  # 8k tokens: the most that the published order is a bijection for
SEEDS = (0, 1, 2, 3, 4)
PANELS = (identity, published, head_first)
CACHE = 4 << 20  # bytes of an MI300X's L2, a die's


@dataclass(frozen=True)
class Shape:
    """A causal launch: batches, heads, tokens, head dim, tokens of a tile of queries and of keys, dies.

    Raises ValueError for sizes that the model has no words for.
    """

    B: int
    H: int
    N: int
    D: int
    tiles: tuple[int, int]
    dies: int = 8

    def __post_init__(self):
        if min(self.B, self.H, self.N, self.D, self.dies, *self.tiles) < 1:
            raise ValueError(f"sizes must be at least 1; got {self}")
        if self.tiles[0] % self.tiles[1]:
            raise ValueError(f"a tile of queries must be a multiple of a tile of keys; got {self}")
        if self.N % self.tiles[0]:
            raise ValueError(f"N must be a multiple of the tile of queries; got {self}")

    def __str__(self):
        return f"B={self.B} H={self.H} N={self.N} D={self.D}, tiles {self.tiles[0]} x {self.tiles[1]}, {self.dies} dies"

    @property
    def sizes(self):
        """What `runs` takes: a program's time in steps is its tiles of keys, and the cache holds so many in float16."""
        held = max(1, CACHE // (2 * 2 * self.tiles[1] * self.D))
        machine = replace(MI300X, dies=self.dies, capacity=held)
        return self.N // self.tiles[0], self.B * self.H, 1, machine, self.tiles[0] // self.tiles[1], (0,)


# The shape at which the order of `orders.published` was published, with its figures.
PUBLISHED_SHAPE = Shape(B=32, H=48, N=4096, D=64, tiles=(128, 64))


@cache
def runs(order, tiles=TILES, heads=HEADS, heads_per_kv=1, machine=MI300X, taller=1, seeds=SEEDS):
    """The Run of an order for each seed."""
    places = listed(order, tiles, heads, machine.dies, heads_per_kv)
    return [simulate(places, heads_per_kv, machine, seed, taller) for seed in seeds]


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


def complete(order, tiles, heads, dies=8):
    return len(set(listed(order, tiles, heads, dies))) == tiles * heads


def spread():
    """The largest difference between two seeds, in % of the median, of any makespan in the first table."""
    return max(
        100 * (max(times) - min(times)) / median(times)
        for times in ([run.makespan for run in runs(order)] for order in NAMES)
    )
