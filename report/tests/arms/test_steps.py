"""The steps to the fast form: each arm is the kernel, the form and the mask that its name says."""

import pytest
import torch

pytest.importorskip("triton.experimental.gluon.nvidia.hopper")

from kernels.tests.gluon_on_cpu import kernels
from report.arms import steps as arms
from report.measuring.arms import NotRun
from report.studies.steps import APART, FEW_SINKS, FORMS, MANY_SINKS, PACKED, TWO, WHOLE


@pytest.mark.parametrize(
    ("name", "group", "mask", "form", "heads"),
    [
        (TWO, 1, (True, None, 0), FORMS[64][TWO], 1),
        (PACKED, 4, (True, 40, 0), (64, 1, 2, 3), 4),
        (APART, 4, (True, 40, 0), (64, 1, 2, 3), 1),
    ],
)
def test_the_fast_kernel_takes_the_form_that_it_is_told(monkeypatch, name, group, mask, form, heads):
    fast, plans = kernels.import_on_cpu()["fast_attention"], []
    find_plan = fast.find_plan
    monkeypatch.setattr(arms, "load", lambda module: fast)
    monkeypatch.setattr(fast, "find_plan", lambda *given: plans.append((find_plan(*given), given[2])) or plans[-1][0])
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, count, 150, 64).half() for count in (4, 4 // group, 4 // group))
    o = kernels.run(arms.forward_of(name, 64), q, k, v, *mask)
    assert [(plan.form, 64 // rows) for plan, rows in plans] == [(form, heads)]
    i = torch.arange(150)
    seen = (i[:, None] >= i) & (i[:, None] - i < (mask[1] or 150))
    k, v = (x.repeat_interleave(group, 1).float() for x in (k, v))
    expected = torch.nn.functional.scaled_dot_product_attention(q.float(), k, v, attn_mask=seen)
    assert (o.float() - expected).abs().max() < 5e-3


def test_each_arm_has_its_mask_and_says_where_it_cannot_run(monkeypatch):
    windows = arms.StudyArms(WHOLE[-1], "cpu")
    sinks = {name: windows.work(name).sinks or 0 for name in WHOLE[-1].kernels}
    assert sinks == {PACKED: 0, APART: 0, FEW_SINKS: 4, MANY_SINKS: 40}
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    for name in WHOLE[0].kernels:
        with pytest.raises(NotRun):
            arms.StudyArms(WHOLE[0], "cpu").build(name)
