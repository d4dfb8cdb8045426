"""Points for speed: what is made of the ratios, and whose fault a failure is."""

import math
from dataclasses import replace

import pytest

from grader.core.protocol.messages import Raised, Timed
from grader.core.sandbox.child import ChildFailed, Died
from grader.core.sandbox.submission import Answer
from grader.course.problem import SPEED_BARS
from grader.engine.grading import grade
from grader.engine.problem_grader import ProblemGrader
from grader.engine.request import Request
from grader.gpu import speed, timing
from grader.gpu.timing import ArmFailed, Plan, Ratio
from grader.kinds.attention.cases import Case
from grader.registry import EVERY, PROBLEMS
from grader.result import ArmTimes, Outcome, Speed
from grader.tests.support import SOLUTIONS


def verdict(naive=None, reference=None, ms=1.0, **more):
    ratios = {"naive PyTorch": naive, "reference": reference}
    arm = ArmTimes(ms, 0.0, ms, ms, ms, ms, 3, peak_bytes=1 << 20)
    known = {
        "shape": "N=1", "arms": {"yours": arm} | {name: arm for name, ratio in ratios.items() if ratio},
        "times_as_fast": {name: ratio and Ratio(*ratio) for name, ratio in ratios.items()},
        "failures": {}, "oom": [], "least_ms": 0.5, "flops": 1e12, "dtype": "float16", "wrapper_host_ms": None,
        "machine": {"gpu": "NVIDIA H200"},
    }  # fmt: skip
    return speed.verdict(Speed(**known | more), {})


def test_fast_passes_and_slow_says_how_slow():
    judged = verdict((9, 8.9, 9.1), (1, 0.9, 1.1))
    assert judged.outcome is Outcome.PASSED
    assert "9.00 x as fast as naive PyTorch (8.90 to 9.10" in judged.sentence
    judged = verdict((1, 0.9, 1.1), (0.1, 0.1, 0.1))
    assert judged.outcome is Outcome.SLOW and judged.facts.share == 0
    assert "2 x naive PyTorch and 0.5 x reference" in judged.sentence


def test_each_bar_is_half_of_the_points():
    judged = verdict((5, 5, 5), (0.1, 0.1, 0.1))
    assert judged.outcome is Outcome.SLOW and judged.facts.share == 0.5


def test_a_bar_inside_the_interval_is_passed():
    bar = SPEED_BARS["naive PyTorch"]
    assert verdict((bar - 0.1, bar - 0.2, bar + 0.1), (1, 1, 1)).outcome is Outcome.PASSED
    assert speed.straddles(Ratio(bar, bar - 1, bar + 1), bar) and not speed.straddles(Ratio(9, 8, 9), bar)


def test_an_arm_that_could_not_be_timed_is_no_bar():
    judged = verdict(None, (1, 1, 1), failures={"naive PyTorch": "CUDA out of memory"}, oom=["naive PyTorch"])
    assert judged.outcome is Outcome.PASSED and "naive PyTorch ran out of memory (oom)" in judged.sentence


def test_faster_than_the_machine_is_not_believed():
    judged = verdict((900, 800, 950), (30, 29, 31), ms=0.01)
    assert judged.outcome is Outcome.NOT_RUN and "not believed: 0.010 ms" in judged.sentence
    assert not judged.facts.earned
    assert verdict((9, 9, 9), (1, 1, 1), ms=0.01, least_ms=None).outcome is Outcome.PASSED


def test_the_fraction_of_the_peak_is_said_where_it_is_known():
    """Of FLOPs for a prefill, of bandwidth for a decode."""
    for id in ("p3", "x4"):
        case = EVERY[id].speed_case
        half = 2 * max(case.flops / 989e12, case.least_bytes / 4.8e12) * 1e3
        judged = verdict((9, 9, 9), (1, 1, 1), ms=half, least_ms=speed.peaks.least_ms(case, "NVIDIA H200"))
        assert "50% of this GPU's peak" in judged.sentence
    assert "peak," not in verdict((9, 9, 9), (1, 1, 1), least_ms=speed.peaks.least_ms(case, "some GPU")).sentence


class FakeChild:
    """Answers as a runner does; dies or runs out of memory on its second call if its module is named so."""

    failure = None

    def __init__(self, module, folder):
        self.module, self.folder, self.calls = module, folder, 0

    def call(self, request, seconds):
        self.calls += 1
        if self.module == "dies" and self.calls > 1:
            raise Died("the process was killed by SIGKILL")
        if self.module == "big":
            return Raised("OutOfMemoryError", "CUDA out of memory")
        time = getattr(request, "time", request)
        return Timed([1.0] * time.samples, peak_bytes=1, host_ms=0.1, synchronised_ms=1.1)

    def close(self):
        pass


class FakeSubmission:
    """A submission whose runner is a FakeChild."""

    def __init__(self, path, *_):
        self.runner = FakeChild(path, None)

    def run_again(self, request):
        return Answer(self.runner.call(request, 1))

    def run(self, request, files):
        return self.run_again(request)

    def close(self):
        pass


def run_fake_arms(monkeypatch, tmp_path, **modules):
    monkeypatch.setattr(speed.machine, "first_gpu", lambda: {})
    monkeypatch.setattr(speed, "Submission", FakeSubmission)
    monkeypatch.setattr(speed.YourArm, "check_output", lambda self, cases, reply: "")
    arms, kind = {}, PROBLEMS["p3"].kind
    for name, module in modules.items():
        (tmp_path / module).write_text("", "utf-8")
        if name == "yours":
            arms[name] = speed.YourArm(PROBLEMS["p3"], kind, module, Case("x"))
        else:
            arms[name.replace("_", " ")] = arm = speed.OurArm(kind, tmp_path / module, "f", Case("x"))
            arm.child = FakeChild(module, tmp_path)
    return timing.take_turns(arms, speed.PLAN)


def test_an_arm_of_ours_that_dies_is_not_the_students_fault(monkeypatch, tmp_path):
    timings = run_fake_arms(monkeypatch, tmp_path, yours="lives", reference="dies", naive_PyTorch="big")
    assert timings["yours"].samples and "SIGKILL" in timings["reference"].failure and timings["naive PyTorch"].oom
    with pytest.raises(ChildFailed):
        run_fake_arms(monkeypatch, tmp_path, yours="dies", reference="lives")


def test_an_interval_that_straddles_a_bar_is_measured_once_more(monkeypatch, tmp_path):
    runs = []

    def take_turns(arms, plan, timings=None):
        runs.append(timings)
        return {name: timing.Timing([[1.0]] * 3) for name in arms}

    monkeypatch.setattr(speed.torch.cuda, "get_device_properties", lambda _: type("P", (), {"total_memory": 1 << 37}))
    monkeypatch.setattr(speed.machine, "facts", lambda: {"gpu": "one that nobody knows"})
    monkeypatch.setattr(timing, "take_turns", take_turns)
    monkeypatch.setattr(speed, "SPEED_BARS", {"naive PyTorch": 2.0})
    arm = {"first": Timed([], peak_bytes=0, host_ms=0.0), "close": lambda s: 0, "wrong": "", "ask": print}
    for name in ("OurArm", "YourArm"):
        monkeypatch.setattr(speed, name, lambda *_: type("A", (), arm)())
    for ratio, expected in ((Ratio(9, 8, 10), 1), (Ratio(2, 1.9, 2.1), 2)):
        monkeypatch.setattr(timing, "ratio", lambda *_, ratio=ratio: ratio)
        runs.clear()
        speed.judge(PROBLEMS["p3"], PROBLEMS["p3"].kind, tmp_path, 0, None)
        assert len(runs) == expected


def test_a_fault_of_ours_leaves_the_points_for_speed_open(monkeypatch, tmp_path):
    monkeypatch.setattr(speed.machine, "first_gpu", lambda: None)
    request = Request(tmp_path, (PROBLEMS["p3"],), None, "cuda", 0)
    grader = ProblemGrader(request, PROBLEMS["p3"], lambda problem, name: None)
    for grader.outcomes in ([Outcome.PASSED, Outcome.GRADER_FAULT], [Outcome.WRONG, Outcome.GRADER_FAULT]):
        grader.speed()
    assert [result.outcome for result in grader.results] == [Outcome.GRADER_FAULT, Outcome.NOT_RUN]


def test_a_program_that_fails_while_it_is_timed_is_the_submissions(monkeypatch, tmp_path):
    def call(self, request, seconds):
        text = "an illegal memory access was encountered"
        return Raised("AcceleratorError", text)

    monkeypatch.setattr(FakeChild, "call", call)
    timings = run_fake_arms(monkeypatch, tmp_path, yours="lives", reference="lives")
    assert "illegal memory access" in timings["yours"].failure


@pytest.mark.gpu
@pytest.mark.parametrize("id", ["p4", "x3", "x4"])
def test_two_equal_arms_are_equally_fast(id):
    problem, kind = EVERY[id], EVERY[id].kind
    smaller = {} if id == "x4" else {"B": 1, "Hq": 4, "N": 2048, "D": 64}
    case = replace(problem.speed_case, **smaller)
    names, path = ("yours", "reference"), SOLUTIONS / problem.module
    arms = dict(zip(names, (
        speed.YourArm(problem, kind, path, case), speed.OurArm(kind, path, problem.entry_point, case),
    ), strict=True))  # fmt: skip
    try:
        timings = timing.take_turns(arms, Plan(samples=5, against="yours"))
    finally:
        for arm in arms.values():
            arm.close()
    assert not any(known.failure for known in timings.values()) and not arms["yours"].wrong
    assert arms["yours"].first.peak_bytes == arms["reference"].first.peak_bytes > 0
    assert 0.5 < timing.ratio(timings, *names).median < 2, "closer than this, other tests on this GPU decide"


@pytest.mark.gpu
def test_an_arm_that_does_not_fit_is_out_of_memory(tmp_path):
    module = tmp_path / "big.py"
    module.write_text("import torch\ndef f(q, k, v, is_causal): return torch.empty(1 << 50, device='cuda')\n", "utf-8")
    arm = speed.OurArm(PROBLEMS["p3"].kind, module, "f", Case("x"))
    with pytest.raises(ArmFailed) as failed:
        arm.warm_up(0)
    arm.close()
    assert failed.value.oom


def test_nothing_is_timed_while_anything_else_runs(monkeypatch, tmp_path):
    steps = []
    for name in ("run", "speed"):
        monkeypatch.setattr(ProblemGrader, name, lambda grader, name=name: steps.append(name))
    problems = tuple(PROBLEMS[id] for id in ("p1", "p3", "p4", "p5"))
    grade(Request(tmp_path, problems, None, "cpu", 0), lanes=3)
    assert steps == ["run"] * 4 + ["speed"] * 3


# On the CPU: no time means anything there, and all else is as on a GPU ------------------------------------------------

BACKWARD = """
import math, torch

def attention_backward(do, q, k, v, o, lse, is_causal=True, window_size=None, sink_size=0):
    group = q.shape[1] // k.shape[1]
    K, V = (each.repeat_interleave(group, 1).float() for each in (k, v))
    pos, scale = torch.arange(q.shape[2], device=q.device), 1 / math.sqrt(q.shape[3])
    age = pos[:, None] - pos[None]
    seen = (age >= 0) & ((age < window_size) | (pos[None] < sink_size))
    p = torch.exp(q.float() @ K.mT * scale - lse[..., None]).masked_fill(~seen, 0.0)
    ds = p * (do.float() @ V.mT - (do.float() * o.float()).sum(-1, keepdim=True)) * scale
    dq, dk, dv = ds @ K, ds.mT @ q.float(), p.mT @ do.float()
    dk, dv = (each.unflatten(1, (-1, group)).sum(2) for each in (dk, dv))
    return dq.to(q.dtype), dk.to(q.dtype), dv.to(q.dtype)
"""
DECODE = """
import torch

def decode_attention(q, k_cache, v_cache, lengths, block_table=None, sink_logits=None, window_size=None,
                     softmax_scale=None):
    group = q.shape[1] // k_cache.shape[1]
    K, V = (each.repeat_interleave(group, 1).float() for each in (k_cache, v_cache))
    seen = torch.arange(K.shape[2], device=q.device) < lengths[:, None, None, None]
    scores = q.float() @ K.mT / q.shape[3] ** 0.5
    return (scores.masked_fill(~seen, float("-inf")).softmax(-1) @ V).to(q.dtype)
"""
X3, X4 = (
    replace(EVERY["x3"], speed_case=replace(
        EVERY["x3"].speed_case, B=2, Hq=4, Hkv=2, N=40, D=16, window=15, sinks=3)),
    replace(EVERY["x4"], speed_case=replace(
        EVERY["x4"].speed_case, lengths=(40, 40, 40), room=40, Hq=4, Hkv=2, D=16)),
)  # fmt: skip


@pytest.fixture
def on_cpu(monkeypatch, tmp_path):
    """judge(text, problem): what is made of the speed of this text as its module, each round compared."""
    monkeypatch.setattr(speed, "DEVICE", "cpu")
    monkeypatch.setattr(speed, "PLAN", Plan(min_rounds=1, max_rounds=1, samples=2, against="yours"))
    monkeypatch.setattr(speed, "SPEED_BARS", {"naive PyTorch": 0.0, "reference": 0.0})
    monkeypatch.setattr(speed, "ALONE", math.inf)
    elsewhere = replace(speed.course.current(), folder=tmp_path)
    monkeypatch.setattr(speed.course, "current", lambda: elsewhere)
    monkeypatch.setattr(speed, "timed_case", lambda problem: problem.speed_case)
    monkeypatch.setattr(speed.machine, "first_gpu", lambda: None)
    monkeypatch.setattr(speed.random.SystemRandom, "random", lambda draw: 0.0)
    (tmp_path / "solutions").mkdir()
    for problem, text in ((X3, BACKWARD), (X4, DECODE)):
        (tmp_path / "solutions" / problem.module).write_text(text, "utf-8")

    def judge(text, problem=X3):
        (tmp_path / problem.module).write_text(text, "utf-8")
        return speed.judge(problem, problem.kind, tmp_path / problem.module, 0, None)

    return judge


def test_a_backward_pass_is_timed_beside_autograd_and_the_reference(on_cpu):
    judged = on_cpu(BACKWARD)
    outcome, sentence, found = judged.outcome, judged.sentence, judged.facts.speed
    assert outcome is Outcome.PASSED and "x as fast as autograd's backward of naive PyTorch (" in sentence, sentence
    assert set(found.arms) == set(speed.SPEED_BARS) | {"yours"} and not found.failures
    assert all(ratio for ratio in found.times_as_fast.values())


def test_a_decode_is_timed_beside_sdpa_and_the_reference(on_cpu):
    judged = on_cpu(DECODE, X4)
    assert judged.outcome is Outcome.PASSED and "x as fast as PyTorch's SDPA with K and V" in judged.sentence
    found = judged.facts.speed
    assert set(found.arms) == set(speed.SPEED_BARS) | {"yours"} and not found.failures


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("< lengths[", "< (lengths - 1)["),
        ("@ V)", "@ V.roll(1, 0))"),
        ("scores = q.float()", "scores = q.float().flip(1)"),
        ("    group", "    lengths.sub_(1)\n    group"),
    ],
)
def test_a_wrong_output_of_a_timed_decode_is_told(old, new, on_cpu):
    """Of one key less, of another sequence's values, of another head's query, and of lengths that the call changes."""
    assert old in DECODE
    judged = on_cpu(DECODE.replace(old, new, 1), X4)
    assert judged.outcome is Outcome.WRONG and "o of a timed call is wrong: " in judged.sentence, judged.sentence


def test_a_call_that_takes_long_where_none_was_before_it_is_wrong(on_cpu, monkeypatch):
    monkeypatch.setattr(speed, "ALONE", -math.inf)  # any call takes longer than so
    judged = on_cpu(BACKWARD)
    outcome, sentence = judged.outcome, judged.sentence
    assert outcome is Outcome.WRONG and "begun alone" in sentence


def test_what_an_arm_of_ours_prepares_is_not_timed(on_cpu, tmp_path):
    module = tmp_path / "slow.py"
    text = "import time\ndef f(q, k, v, **_):\n    time.sleep({})\n    return lambda: time.sleep({})\n"
    module.write_text(text.format(0.1, 0.002), "utf-8")
    arm = speed.OurArm(PROBLEMS["p3"].kind, module, "f", Case("x"), prepares=True)
    took = arm.round(0, 2)
    arm.close()
    assert len(took) == 2 and 2 <= min(took) < 90


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("ds.mT @ q.float()", "ds.mT @ q.float() * 1.01", "dk of a timed call is wrong: "),
        ("ds @ K,", "ds.roll(1, 0) @ K,", "dq of a timed call is wrong: "),
        ("    group", "    do.zero_()\n    group", "dq of a timed call is wrong: "),
        ("dk.to(q.dtype), dv", "dk, dv", "another form came back: dk is float32"),
        (", dv.to(q.dtype)", "", "another form came back: attention_backward must return dq and dk and dv"),
    ],
)
def test_a_wrong_gradient_of_a_timed_call_is_told(old, new, said, on_cpu):
    """Of heads that take another batch's weights, and of a call that overwrites what it was given, too."""
    assert old in BACKWARD
    judged = on_cpu(BACKWARD.replace(old, new, 1))
    outcome, sentence = judged.outcome, judged.sentence
    assert outcome is Outcome.WRONG and said in sentence, sentence
