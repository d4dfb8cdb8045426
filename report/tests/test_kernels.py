"""The kernels of the sweep: masks, checks, and the shapes they are asked at."""

from dataclasses import replace

import pytest
import torch

from grader.course.masks import Visibility
from report import kernels, shapes, table
from report.check import Check
from report.shapes import Point, Tier

WINDOWED = Point(Tier(1, 4, 32, 2, window=50, sinks=4), 300, True, "float16")
CAUSAL = Point(Tier(2, 3, 32, 3), 300, True, "float16")


def tensors(point):
    torch.manual_seed(0)
    tier = point.tier
    return tuple(
        torch.randn(tier.B, heads, point.N, tier.D, dtype=getattr(torch, point.dtype))
        for heads in (tier.H, tier.kv_heads, tier.kv_heads)
    )


@pytest.mark.parametrize("point", [CAUSAL, WINDOWED, replace(CAUSAL, causal=False), replace(CAUSAL, dtype="bfloat16")])
@pytest.mark.parametrize("name", ["naive per head", "vectorised", "P2", "SDPA flash"])
def test_right_on_the_cpu(name, point):
    if point.tier.window and name != "vectorised":
        pytest.skip("asked without windows only")
    q, k, v = tensors(point)
    o = kernels.build(name, point, "cpu").call(q, k, v)
    assert Check(q, k, v, kernels.visibility(point)).fault(o, name in kernels.ROUNDS_SCORES) is None


def test_flex_attention_compiled():
    q, k, v = tensors(WINDOWED)
    o = kernels.flex_compiled(WINDOWED, "cpu").call(q, k, v)
    assert Check(q, k, v, kernels.visibility(WINDOWED)).fault(o, False) is None


@pytest.mark.parametrize("point", [CAUSAL, WINDOWED, replace(WINDOWED, tier=replace(WINDOWED.tier, sinks=0))])
def test_flex_masks_are_those_of_visibility(point):
    position = torch.arange(point.N)
    mine = kernels.flex_mask(point)(0, 0, position[:, None], position[None, :])
    assert mine.equal(kernels.visibility(point).mask(position, position))
    assert kernels.hidden_keys(point, "cpu").equal(~mine)


@pytest.mark.parametrize(
    ("other", "rounds_scores"),
    [(Visibility(True, 49, 4), True), (Visibility(True, 51, 4), False), (Visibility(True, 50, 3), True)],
)
def test_a_mask_off_by_one_is_found(other, rounds_scores):
    q, k, v = tensors(WINDOWED)
    right = Check(q, k, v, other)
    o = kernels.build("vectorised", WINDOWED, "cpu").call(q, k, v)
    assert right.fault(o, rounds_scores).startswith("wrong: off by")


def test_the_check_sees_every_way_to_be_wrong():
    q, k, v = tensors(CAUSAL)
    check = Check(q, k, v, Visibility(True))
    o = kernels.build("P2", CAUSAL, "cpu").call(q, k, v)
    assert check.fault(o, False) is None
    assert "not (2, 3, 300, 32)" in check.fault(o[:1], False)
    assert "torch.float32" in check.fault(o.float(), False)
    broken = o.clone()
    broken[0, 2, 17] = float("nan")  # a head that the slice leaves out
    assert "NaN" in check.fault(broken, False)
    broken = o.clone()
    broken[1, 2, -1, 5] += 0.1
    assert "at (b, h, row, d) = (1, 2, 299, 5)" in check.fault(broken, False)


def test_what_cannot_run_says_why(tmp_path, monkeypatch):
    for name, words in (("P4", "interpreter"), ("SDPA cuDNN", "GPUs only"), ("FlexAttention", "compile")):
        with pytest.raises(kernels.NotRun, match=words):
            kernels.build(name, CAUSAL, "cpu")
    monkeypatch.setattr(kernels, "SOLUTIONS", tmp_path)
    with pytest.raises(kernels.NotRun, match=r"solutions/no_such\.py is not there"):
        kernels.load("no_such.py")


def test_the_whole_sweep():
    points = shapes.FULL.points()
    assert len(points) == len(set(points)) == 5 * 6 * 2 * 2 + 2 * 2 * 3 * 3 * 2
    assert set(kernels.BUILDERS) == set(table.KERNELS) == {n for p in points for n in shapes.FULL.kernels(p)}
    by_label = {p.tier.label: p.tier for p in points}
    assert "B=4 H=16 D=128" in by_label and "B=1 H=32/8 D=128 window=1024 sinks=4" in by_label
    rows = [p.row(name) for p in points for name in shapes.FULL.kernels(p)]
    assert len({row.key for row in rows}) == len(rows)
    for point in points:
        asked = shapes.FULL.kernels(point)
        assert ("P4" in asked) == (point.causal and point.tier.window is None)
        assert ("P6" in asked) == (point.tier.sinks == 0)
