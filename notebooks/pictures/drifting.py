"""Two pretended kernels on a pretended GPU that grows slower as it warms up: what pairing is for."""

import random
from collections import defaultdict

from grader.gpu.timing import Plan, Timing, take_turns


class Drifting:
    """An arm of take_turns. Each call takes `ms`, by chance some more or less, and more by the machine's drift.

    clock: the calls so far of all arms that share it, a list of (name, ms). drift: the part added over 100 calls.
    """

    def __init__(self, name, ms, clock, drift=0.2, noise=0.01, seed=0):
        self.name, self.ms, self.clock, self.drift, self.noise = name, ms, clock, drift, noise
        self.chance = random.Random(f"{name} {seed}")

    def warm_up(self, seed):
        """Nothing is compiled here."""

    def round(self, seed, samples):
        took = []
        for _ in range(samples):
            warm = 1 + self.drift * len(self.clock) / 100
            took.append(self.ms * warm * (1 + self.chance.gauss(0, self.noise)))
            self.clock.append((self.name, took[-1]))
        return took


def in_turns(times, rounds):
    """(timings, clock) of {name: ms} in the grader's order: turns that change from round to round."""
    clock = []
    arms = {name: Drifting(name, ms, clock) for name, ms in times.items()}
    return take_turns(arms, Plan(target=0.0, min_rounds=rounds, max_rounds=rounds)), clock


def one_after_the_other(times, rounds):
    """The same, all calls of the first before all calls of the second."""
    clock, timings = [], {}
    for name, ms in times.items():
        arm = Drifting(name, ms, clock)
        timings[name] = Timing([arm.round(turn, 1) for turn in range(rounds)])
    return timings, clock


def by_name(clock):
    """{name: [(number of the call, ms)]}"""
    found = defaultdict(list)
    for number, (name, ms) in enumerate(clock):
        found[name].append((number, ms))
    return dict(sorted(found.items()))
