"""Timing: what is made of the samples; on a GPU, that the arms really take turns."""

import pytest

from grader import timing
from grader.assignment import PROBLEMS, SPEED_BAR, Case
from grader.grading import ProblemGrader, Request
from grader.result import Outcome
from grader.sandbox import ChildFailed
from grader.tests.support import SOLUTIONS

MS = [[1.0, 1.1, 0.9]] * 5


def facts(times):
    return {
        "arms": {name: timing.summary(rounds, 1 << 20) for name, rounds in times.items()},
        "times_faster": {name: timing.speed_up(times, name) for name in times if name != "yours"},
        "failures": {},
    }


def test_ratios_are_of_paired_rounds():
    drifting = {"yours": [[1.0], [2.0], [4.0], [8.0]], "naive PyTorch": [[5.0], [10.0], [20.0], [40.0]]}
    assert timing.speed_up(drifting, "naive PyTorch") == {"median": 5.0, "p20": 5.0, "p80": 5.0}


def test_fast_passes_and_slow_says_how_slow():
    outcome, sentence = timing.verdict(facts({"yours": MS, "naive PyTorch": [[9.0] * 3] * 5}))
    assert outcome is Outcome.PASSED and "9.00 x as fast as naive PyTorch" in sentence
    outcome, sentence = timing.verdict(facts({"yours": MS, "naive PyTorch": MS}))
    assert outcome is Outcome.SLOW and f"The bar is {SPEED_BAR:g} x naive PyTorch" in sentence


def test_without_the_naive_arm_nobody_is_slow():
    known = facts({"yours": MS, "reference": MS})
    known["failures"] = {"naive PyTorch": "OutOfMemoryError: CUDA out of memory"}
    outcome, sentence = timing.verdict(known)
    assert outcome is Outcome.PASSED and "naive PyTorch could not be timed (OutOfMemoryError" in sentence


class FakeArm:
    """An arm that dies on its second call if its module is named so."""

    def __init__(self, module, *_):
        self.module, self.calls = module, 0

    def call(self, request, seconds):
        self.calls += 1
        if self.module == "dies" and self.calls > 1:
            raise ChildFailed("died", "the process was killed by SIGKILL")
        return {"status": "returned", "ms": [1.0] * 5, "peak_bytes": 1}

    def close(self):
        pass


def run_fake_arms(monkeypatch, **modules):
    monkeypatch.setattr(timing, "Child", FakeArm)
    return timing.run_arms({name.replace("_", " "): (m, "f") for name, m in modules.items()}, Case("x"), 0)


def test_an_arm_of_ours_that_dies_is_not_the_students_fault(monkeypatch):
    rounds, _, failures = run_fake_arms(monkeypatch, yours="lives", naive_PyTorch="dies")
    assert len(rounds["yours"]) == timing.ROUNDS and "SIGKILL" in failures["naive PyTorch"]
    with pytest.raises(timing.ArmFailed):
        run_fake_arms(monkeypatch, yours="lives", reference="dies")
    with pytest.raises(ChildFailed):
        run_fake_arms(monkeypatch, yours="dies", reference="lives")


def test_a_fault_of_ours_does_not_take_the_points_for_speed(tmp_path):
    kept = []
    request = Request(tmp_path, (PROBLEMS["p3"],), None, "cuda", 0)
    grader = ProblemGrader(request, PROBLEMS["p3"], kept.append)
    grader.speed([Outcome.PASSED, Outcome.GRADER_FAULT])
    grader.speed([Outcome.WRONG, Outcome.GRADER_FAULT])
    assert [result.outcome for result in kept] == [Outcome.GRADER_FAULT, Outcome.NOT_RUN]


@pytest.mark.gpu
def test_two_equal_arms_are_equally_fast():
    problem = PROBLEMS["p4"]
    module = (SOLUTIONS / problem.module, problem.entry_point)
    case = Case("x", B=1, Hq=4, N=2048, D=64, causal=True)
    rounds, peaks, failures = timing.run_arms({"yours": module, "reference": module}, case, 0)
    assert not failures and peaks["yours"] == peaks["reference"] > 0
    assert 0.8 < timing.speed_up(rounds, "reference")["median"] < 1.25
