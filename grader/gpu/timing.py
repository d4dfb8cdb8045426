"""Arms that take turns on one machine until their ratio is known: the protocol of the grader and of the report.

Each round gives every arm fresh inputs, in an order that changes from round to round: clocks and temperature drift by
more than kernels differ, and an arm that always follows a hot one would pay for it. A ratio is the median over the
rounds of the ratios within a round; its interval is a bootstrap over rounds (Efron and Tibshirani, "An Introduction
to the Bootstrap", 1993, section 13.3).
"""

import random
import statistics
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy

from grader.result import ArmTimes

RESAMPLES = 1000
CONFIDENCE = 0.95
CHECK_EVERY = 5  # rounds between two looks at the intervals


@dataclass(frozen=True)
class Plan:
    """How long arms take turns.

    target: the half-width of a ratio's interval, relative, at which an arm has been measured enough.
    budget_s: seconds of samples of one arm, after which it stops taking part; one round is always made.
    samples: calls of an arm in a round. against: the arm that all ratios are taken to, None for the first.
    """

    target: float = 0.01
    budget_s: float = 3.0
    min_rounds: int = 10
    max_rounds: int = 100
    samples: int = 1
    seed: int = 0
    against: str | None = None

    def seed_of(self, turn):
        """The seed of a round: each sample adds one to it, and no two share theirs."""
        return self.seed + turn * (self.samples + 1)


class ArmFailed(Exception):
    """An arm could not be timed: the text says why. oom: it ran out of memory."""

    def __init__(self, text, oom=False):
        super().__init__(text)
        self.oom = oom


@dataclass
class Timing:
    """What is known of one arm: the milliseconds of each round, None where it took no part; or why it failed."""

    rounds: list = field(default_factory=list)
    failure: str | None = None
    oom: bool = False

    @property
    def samples(self):
        return [ms for took in self.rounds if took for ms in took]

    def summary(self) -> ArmTimes | None:
        """The ArmTimes of all samples, or None without any."""
        times = self.samples
        if not times:
            return None
        p20, p80 = numpy.percentile(times, [20, 80]).tolist()
        mean, deviation, middle = statistics.fmean(times), statistics.pstdev(times), statistics.median(times)
        return ArmTimes(mean, deviation, min(times), middle, p20, p80, len(times))


class Ratio(NamedTuple):
    """How many times as fast one arm is as another: the median, and the ends of its interval."""

    median: float
    low: float
    high: float


def take_turns(arms, plan, timings=None):
    """{name: Timing} of `arms`, {name: arm}, where an arm has `warm_up(seed)` and `round(seed, samples) -> [ms]`.

    Either may raise ArmFailed, which ends that arm and no other. `timings` of the same arms are continued.
    """
    timings = timings or {name: Timing() for name in arms}
    against = plan.against or next(iter(arms))
    order, shuffle = [name for name in arms if not timings[name].failure], random.Random(plan.seed)
    for name in list(order):
        attempt(timings[name], order, name, partial(arms[name].warm_up, plan.seed))
    spent, enough = dict.fromkeys(arms, 0.0), set()
    start = max(len(timing.rounds) for timing in timings.values())
    for turn in range(start, start + plan.max_rounds):
        others = [name for name in order if name != against and name not in enough]
        if spent[against] > plan.budget_s or not (others or order == [against]):
            break
        taking_part = others + [against] * (against in order)
        shuffle.shuffle(taking_part)
        for name in taking_part:
            took = attempt(timings[name], order, name, partial(arms[name].round, plan.seed_of(turn), plan.samples))
            if took:
                timings[name].rounds += [None] * (turn - len(timings[name].rounds)) + [took]
                spent[name] += sum(took) / 1e3
        enough |= {name for name in others if spent[name] > plan.budget_s}
        made = turn - start + 1
        if made >= plan.min_rounds and made % CHECK_EVERY == 0:
            enough |= {name for name in others if narrow(timings, against, name, plan.target)}
            if not others:  # one arm alone: there is no ratio to make narrow
                break
    return timings


def attempt(timing, order, name, step):
    """What `step` returns; where it fails, the arm is out of the order and its timing says why."""
    try:
        return step()
    except ArmFailed as failure:
        timing.failure, timing.oom = str(failure), failure.oom
        order.remove(name)
        return None


def narrow(timings, a, b, target):
    known = ratio(timings, a, b)
    return known is not None and (known.high - known.low) / 2 <= target * known.median


def ratio(timings, a, b):
    """How many times as fast `a` is as `b`, in the rounds that both took part in; None where there is none."""
    if a not in timings or b not in timings:
        return None
    pairs = [(x, y) for x, y in zip(timings[a].rounds, timings[b].rounds, strict=False) if x and y]
    if not pairs:
        return None
    ratios = numpy.array([statistics.median(theirs) / statistics.median(ours) for ours, theirs in pairs])
    draws = numpy.random.default_rng(len(ratios)).integers(len(ratios), size=(RESAMPLES, len(ratios)))
    tail = 50 * (1 - CONFIDENCE)
    low, high = numpy.percentile(numpy.median(ratios[draws], axis=1), [tail, 100 - tail]).tolist()
    return Ratio(float(numpy.median(ratios)), low, high)
