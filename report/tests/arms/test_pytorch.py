"""PyTorch's forms and P2 on the CPU, the masks that they are given, and the check that judges them."""

from dataclasses import replace

import pytest
import torch

from grader.kinds.attention.masks import Visibility
from report.arms import pytorch
from report.arms.sweep import BUILDERS, StudyArms
from report.measuring.arms import NotRun, case_of
from report.measuring.check import Check
from report.places import NotThere, load
from report.studies import sweep
from report.studies.sweep import Tier

WINDOWED = Tier(1, 4, 32, 2, window=50, sinks=4).point(300, True, "float16", ())
CAUSAL = Tier(2, 3, 32, 3).point(300, True, "float16", ())


def tensors(point):
    return StudyArms(point, "cpu").draw(torch.Generator().manual_seed(0))


def visibility(point):
    return case_of(point).visibility


POINTS = (CAUSAL, replace(CAUSAL, causal=False), replace(CAUSAL, dtype="bfloat16"))
NAMES = ("naive per head", "vectorised", "P2", "SDPA flash")


@pytest.mark.parametrize(("name", "point"), [("vectorised", WINDOWED), *((n, p) for n in NAMES for p in POINTS)])
def test_right_on_the_cpu(name, point):
    if name == "SDPA flash" and torch.backends.cpu.get_cpu_capability() == "DEFAULT":
        pytest.skip("PyTorch 2.11's own flash attention stops on a processor with AVX-512 that is told not to use it")
    q, k, v = tensors(point)
    o = StudyArms(point, "cpu").build(name).call(q, k, v)
    assert Check(q, k, v, visibility(point)).fault(o, name in StudyArms.rounds_scores) is None


@pytest.mark.thorough
def test_flex_attention_compiled():
    q, k, v = tensors(WINDOWED)
    o = pytorch.flex_compiled(WINDOWED, "cpu").call(q, k, v)
    assert Check(q, k, v, visibility(WINDOWED)).fault(o, False) is None


@pytest.mark.parametrize("point", [CAUSAL, WINDOWED, replace(WINDOWED, sinks=0)])
def test_flex_masks_are_those_of_visibility(point):
    position = torch.arange(point.N)
    mine = pytorch.flex_mask(point)(0, 0, position[:, None], position[None, :])
    assert mine.equal(visibility(point).mask(position, position))
    assert pytorch.hidden_keys(point, "cpu").equal(~mine)


@pytest.mark.parametrize(
    ("other", "rounds_scores"),
    [(Visibility(True, 49, 4), True), (Visibility(True, 51, 4), False), (Visibility(True, 50, 3), True)],
)
def test_a_mask_off_by_one_is_found(other, rounds_scores):
    q, k, v = tensors(WINDOWED)
    o = StudyArms(WINDOWED, "cpu").build("vectorised").call(q, k, v)
    assert Check(q, k, v, other).fault(o, rounds_scores).startswith("wrong: off by")


def test_the_check_sees_every_way_to_be_wrong():
    q, k, v = tensors(CAUSAL)
    check = Check(q, k, v, Visibility(True))
    o = StudyArms(CAUSAL, "cpu").build("P2").call(q, k, v)
    assert check.fault(o, False) is None
    assert "not (2, 3, 300, 32)" in check.fault(o[:1], False)
    assert "torch.float32" in check.fault(o.float(), False)
    broken = o.clone()
    broken[0, 2, 17] = float("nan")  # a head that the slice leaves out
    assert "NaN" in check.fault(broken, False)
    broken = o.clone()
    broken[1, 2, -1, 5] += 0.1
    assert "at (b, h, row, d) = (1, 2, 299, 5)" in check.fault(broken, False)


def test_what_cannot_run_says_why():
    for name, words in (("P4", "interpreter"), ("SDPA cuDNN", "GPUs only"), ("FlexAttention", "compile")):
        with pytest.raises(NotRun, match=words):
            StudyArms(CAUSAL, "cpu").build(name)
    with pytest.raises(NotThere, match=r"solutions/no_such\.py is not there"):
        load("no_such.py")


def test_the_whole_sweep():
    assert set(BUILDERS) == set(sweep.KERNELS) == {name for point in sweep.WHOLE for name in point.kernels}
    for point in sweep.WHOLE:
        assert ("P4" in point.kernels) == (point.causal and point.window is None)
        assert ("P6" in point.kernels) == (point.sinks == 0)
