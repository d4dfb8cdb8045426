"""A model of a GPU with several dies: what an order of programs does to cache hits and to the time of the last program.

Modelled. Program p runs on die p % dies. A die starts its programs in their order, each in the first workgroup slot
that is free. The program of tile t of queries visits its tiles of K and V one after the other, 0 to t (causal, square
tiles; where a tile of queries is `taller` times as long as one of keys, up to its last query's). Each die has a cache
of its own that holds `capacity` of these tiles and drops the least recently used one; a tile that is there costs `hit`,
another `miss` units of time. Each program starts late by up to `jitter` units, drawn from the seed: workgroups of a
real GPU do not march in step.

Not modelled. Bandwidth that slots share, so a miss costs the same however many there are; a last-level cache behind the
dies; traffic of Q and O; a load that runs under the arithmetic, other than by `hit` and `miss`. A tile that one slot is
loading counts as a hit for the next slot that asks. The figures are the model's, not a machine's.
"""

import heapq
import random
from collections import OrderedDict
from dataclasses import dataclass


@dataclass(frozen=True)
class Machine:
    """dies, slots (workgroups that run at a time on a die), capacity (tiles of K and V in a die's cache), times."""

    dies: int = 8
    slots: int = 38
    capacity: int = 64
    hit: float = 1.0
    miss: float = 1.6
    jitter: float = 1.0


# MI300X: 8 dies of 38 compute units, one workgroup on each. A tile of 128 keys, D = 128, float16, is 64 KiB of K and V:
# 64 of them fill an L2 of 4 MB. A step is 8.4 MFLOP, 4.9 us at 40 % of a unit's 4.3 TFLOP/s. Its 64 KiB take 0.6 us
# from the L2 (2 KiB a clock and die) and 3.8 us from memory (5.3 TB/s), each shared by all units; with no overlap that
# is 5.5 and 8.7 us, 1 to 1.6.
MI300X = Machine()


@dataclass(frozen=True)
class Run:
    """What one order gave, by die: visits and hits (tiles of keys), busy (slot x time) and end (its last program's)."""

    visits: tuple[int, ...]
    hits: tuple[int, ...]
    busy: tuple[float, ...]
    end: tuple[float, ...]
    slots: int

    @property
    def hit_rate(self):
        return sum(self.hits) / sum(self.visits)

    @property
    def makespan(self):
        return max(self.end)

    @property
    def idle(self):
        """The share of all slots' time up to the last program's end in which they have nothing to do."""
        return 1 - sum(self.busy) / (self.makespan * self.slots * len(self.end))


def simulate(order, heads_per_kv=1, machine=MI300X, seed=0, taller=1):
    """The Run of an order, (head, tile) of each program; the same arguments give the same Run.

    Takes about a second for a million visits: a head of n tiles has n (n + 1) / 2.
    """
    dies = [die(order[d :: machine.dies], heads_per_kv, machine, f"{seed} {d}", taller) for d in range(machine.dies)]
    return Run(*zip(*dies, strict=True), machine.slots)


def die(programs, heads_per_kv, machine, seed, taller=1):
    """(visits, hits, busy, end) of one die."""
    count = hits = 0
    busy = end = 0.0
    for _, _, _, _, begun, cost, hit in visits(programs, heads_per_kv, machine, seed, taller=taller):
        count += 1
        hits += hit
        busy += cost
        if begun + cost > end:
            end = begun + cost
    return count, hits, busy, end


def visits(programs, heads_per_kv, machine, seed, cache=None, taller=1):
    """(slot, program, kv head, tile of keys, start, cost, hit) of each visit on one die, in the order of their starts.

    programs: (head, tile) of each that runs there; a visit names one by its place among them. cache: an OrderedDict to
    watch; after a visit its keys are the (kv head, tile of keys) held, the one that is dropped next first.
    """
    draw = random.Random(seed)  # of each die its own: dies do not hear of each other
    waiting = ((number, head, (tile + 1) * taller - 1) for number, (head, tile) in enumerate(programs))
    cache = OrderedDict() if cache is None else cache
    # (time, slot, program, kv head, next tile of keys, last tile): a slot that runs; its number settles equal times
    running = []
    for slot in range(machine.slots):
        start(running, 0.0, slot, waiting, heads_per_kv, machine.jitter * draw.random())
    while running:
        now, slot, program, kv_head, tile, last = heapq.heappop(running)
        key = kv_head, tile
        hit = key in cache
        if hit:
            cost = machine.hit
            cache.move_to_end(key)
        else:
            cost = machine.miss
            cache[key] = None
            if len(cache) > machine.capacity:
                cache.popitem(last=False)
        yield slot, program, kv_head, tile, now, cost, hit
        now += cost
        if tile < last:
            heapq.heappush(running, (now, slot, program, kv_head, tile + 1, last))
        else:
            start(running, now, slot, waiting, heads_per_kv, machine.jitter * draw.random())


def start(running, now, slot, waiting, heads_per_kv, late):
    """Give the slot the next program that waits, if there is one."""
    for program, head, last in waiting:
        heapq.heappush(running, (now + late, slot, program, head // heads_per_kv, 0, last))
        return
