"""Each idea can be taken out of the fast backward pass, and what is left is right: run on a CPU by test code."""

from dataclasses import replace

import pytest

from kernels.tests import test_fast_backward as fast
from kernels.tests.gluon_on_cpu import kernels
from report.arms.backward_ideas import HEAD_DIMS, WITHOUT, module_without


@pytest.mark.parametrize("idea", WITHOUT)
def test_an_idea_can_be_left_out(idea, tmp_path):
    module = fast.with_plain_kernels(kernels.import_on_cpu(*WITHOUT[idea])["fast_backward"])
    case = replace(fast.of_x3(HEAD_DIMS[idea][-1])["sinks and window"], N=200, Hq=2)
    assert not fast.wrong(fast.attention_backward(module), case)
    assert callable(module_without(idea, tmp_path).attention_backward)
