"""The protocol: who takes turns, when it is enough, and what is made of the samples."""

import random

import pytest

from grader.core.run.stopwatch import Stopwatch
from grader.gpu import machine, peaks, timing
from grader.gpu.timing import ArmFailed, Plan, Timing
from grader.kinds.attention.cases import Case
from grader.kinds.attention.masks import Visibility
from grader.kinds.backward.cases import BackwardCase


class Arm:
    """Takes `ms` each time, with some noise, times what `drift` says of the turn; fails from the turn `dies` on."""

    def __init__(self, ms, noise=0.0, drift=lambda turn: 1.0, dies=None, oom=False):
        self.ms, self.noise, self.drift, self.dies, self.oom = ms, noise, drift, dies, oom
        self.turns, self.random = [], random.Random(ms)

    def warm_up(self, seed):
        if self.dies == 0:
            raise ArmFailed("ran out", self.oom)

    def round(self, seed, samples):
        if self.dies and len(self.turns) >= self.dies:
            raise ArmFailed("fell over")
        self.turns.append(seed)
        factor = self.drift(len(self.turns))
        return [self.ms * factor * (1 + self.noise * self.random.random()) for _ in range(samples)]


def test_ratios_are_of_paired_rounds_so_that_drift_cancels():
    drift = {"drift": lambda turn: 1.5**turn}
    timings = timing.take_turns({"a": Arm(1, **drift), "b": Arm(5, **drift)}, Plan(max_rounds=8, budget_s=1e9))
    assert timing.ratio(timings, "a", "b") == pytest.approx((5, 5, 5))
    assert timing.ratio(timings, "b", "a").median == pytest.approx(0.2)


def test_samples_are_added_until_the_interval_is_narrow_or_the_rounds_end():
    steady = timing.take_turns({"a": Arm(1, 0.001), "b": Arm(2, 0.001)}, Plan(target=0.01))
    noisy = timing.take_turns({"a": Arm(1, 0.9), "b": Arm(2, 0.9)}, Plan(target=0.001))
    assert len(steady["b"].rounds) == Plan.min_rounds and len(noisy["b"].rounds) == Plan.max_rounds
    low, high = timing.ratio(noisy, "a", "b")[1:]
    assert low < 2 < high and high - low > 0.01


def test_the_interval_holds_the_truth_about_as_often_as_it_says():
    held = 0
    for seed in range(200):
        draw = random.Random(seed)
        known = {n: Timing([[ms * draw.lognormvariate(0, 0.1)] for _ in range(30)]) for n, ms in (("a", 1), ("b", 2))}
        _, low, high = timing.ratio(known, "a", "b")
        held += low <= 2 <= high
    assert 180 <= held <= 199


def test_a_slow_arm_leaves_early_and_the_others_go_on():
    arms = {"fast": Arm(1, 0.5), "other": Arm(1.1, 0.5), "slow": Arm(900)}
    timings = timing.take_turns(arms, Plan(target=0.0, budget_s=1.0, max_rounds=50))
    assert len(timings["slow"].samples) == 2 and len(timings["other"].samples) == 50
    assert timing.ratio(timings, "fast", "slow") is not None


def test_no_arm_is_timed_once_the_one_that_all_are_compared_with_is_done():
    arms = {"fast": Arm(100), "other": Arm(1, 0.5)}
    timings = timing.take_turns(arms, Plan(target=0.0, budget_s=0.25, max_rounds=50))
    assert len(timings["fast"].samples) == len(timings["other"].samples) == 3


def test_the_order_changes_from_round_to_round():
    order = []

    class Noting(Arm):
        def round(self, seed, samples):
            order.append(self.ms)
            return super().round(seed, samples)

    timing.take_turns({"a": Noting(1, 0.5), "b": Noting(2, 0.5)}, Plan(target=0.0, max_rounds=20))
    assert {tuple(order[i : i + 2]) for i in range(0, 40, 2)} == {(1, 2), (2, 1)}


def test_an_arm_that_fails_is_noted_and_ends_no_other():
    arms = {"a": Arm(1, 0.5), "b": Arm(3, 0.5), "dies": Arm(2, dies=3), "oom": Arm(1, dies=0, oom=True)}
    timings = timing.take_turns(arms, Plan(max_rounds=20, target=0.0))
    assert len(timings["a"].samples) == 20 and timings["a"].failure is None
    assert timings["dies"].failure == "fell over" and len(timings["dies"].samples) == 3
    assert timings["oom"].oom and timings["oom"].summary() is None and timing.ratio(timings, "a", "oom") is None


def test_arms_are_timed_where_the_one_to_compare_with_fails():
    timings = timing.take_turns({"a": Arm(1, dies=0), "b": Arm(2), "c": Arm(3)}, Plan(max_rounds=7))
    assert len(timings["b"].samples) == len(timings["c"].samples) == 7
    assert timing.ratio(timings, "b", "c").median == 1.5


def test_one_arm_alone_ends():
    assert len(timing.take_turns({"a": Arm(1)}, Plan())["a"].samples) == Plan.min_rounds


def test_a_run_is_continued_with_other_seeds():
    arms = {"a": Arm(1, 0.5), "b": Arm(2, 0.5)}
    timings = timing.take_turns(arms, Plan(max_rounds=6))
    timings = timing.take_turns(arms, Plan(max_rounds=6), timings)
    assert len(timings["a"].rounds) == 12 and len(set(arms["a"].turns)) == 12


def test_a_summary():
    known = Timing([[1.0, 2.0], None, [3.0, 4.0, 5.0]]).summary()
    assert (known.median_ms, known.min_ms, known.avg_ms, known.samples) == (3, 1, 3, 5)
    assert 1 < known.p20_ms < 3 < known.p80_ms < 5


def test_the_stopwatch_warms_up_until_it_is_stable():
    calls = []
    watch = Stopwatch("cpu")
    watch.warm_up(lambda: calls.append(sum(range(20000))), seconds=5)
    assert 6 < len(calls) <= 50 and watch.host_ms > 0
    assert watch.sample(lambda: sum(range(20000))) > 0 and watch.peak(lambda: None) is None


@pytest.mark.parametrize("visibility", [Visibility(), Visibility(True), Visibility(True, 5), Visibility(True, 5, 3)])
@pytest.mark.parametrize("size", [1, 4, 5, 33])
def test_pairs_are_those_of_the_mask(visibility, size):
    import torch

    assert visibility.pairs(size, size) == int(visibility.mask(torch.arange(size), torch.arange(size)).sum())


def test_the_shortest_time_that_can_be():
    full = Case("x", B=4, Hq=16, N=4096, D=128)
    assert full.flops == 4 * 4 * 16 * 4096**2 * 128
    assert 0.5 < peaks.least_ms(full, "NVIDIA H200") < 0.6  # 550 GFLOP at 989 TFLOP/s
    tiny = Case("x", B=4, Hq=16, N=16, D=128)
    assert peaks.least_ms(tiny, "NVIDIA H200") == pytest.approx(4 * 4 * 16 * 16 * 128 * 2 / 4.8e9 / peaks.MARGIN)
    assert peaks.least_ms(full, "a GPU of next year") is None
    backward = BackwardCase("x", B=4, Hq=16, Hkv=4, N=16, D=128)
    assert backward.flops == 5 * 2 * 4 * 16 * 128 * (16 * 17 // 2)  # half of it hidden, but for the diagonal
    rows = 4 * (16 + 4)  # q, o, do and dq; k, v, dk and dv
    assert backward.least_bytes == 4 * 16 * (rows * 128 * 2 + 16 * 4)
    assert peaks.peak("NVIDIA H100 PCIe").tflops < peaks.peak("NVIDIA H100 80GB HBM3").tflops


def test_the_facts_of_the_machine(monkeypatch):
    monkeypatch.delenv("COMMIT", raising=False)
    known = machine.facts()
    assert known["torch"] and known["python"] and set(known) >= {"gpu", "driver", "triton", "commit", "dirty"}
    monkeypatch.setenv("COMMIT", "abc")
    assert machine.facts()["commit"] == "abc" and machine.facts()["dirty"] is None
