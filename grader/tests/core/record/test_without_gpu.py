"""A file written for a GPU meets what it asks for, and the grader still sees the truth."""

import pytest
import torch

from grader.core.worker import without_gpu
from grader.result import Outcome
from grader.tests.support import grade_text, solution

ANSWERS = [
    "torch.cuda.is_available() and torch.cuda.device_count() == 1 and torch.cuda.current_device() == 0",
    "q.is_cuda and q.device == torch.device('cuda:0') and q.get_device() == 0",
    "torch.empty(2, device='cuda').is_cuda and torch.ones(2, device=0).cuda().sum() == 2",
    "torch.zeros(2, device=torch.device('cuda', 0)).to('cuda').to('cuda:0', torch.float64).dtype == torch.float64",
    "torch.nn.Identity().cuda().to('cuda')(q).is_cuda and torch.arange(3).pin_memory().tolist() == [0, 1, 2]",
    "torch.cuda.get_device_capability() >= (8, 0) and torch.cuda.is_bf16_supported()",
    "torch.cuda.get_device_properties(q.device).multi_processor_count > 0 and torch.cuda.get_device_name()",
    "torch.cuda.memory_allocated() == torch.cuda.max_memory_allocated() == 0",
    "[torch.cuda.synchronize(), torch.cuda.empty_cache(), torch.manual_seed(0)]",
    "torch.cuda.current_stream().cuda_stream == 0 and torch.cuda.Stream().synchronize() is None",
    "triton.runtime.driver.active.get_current_target().backend == 'cuda'",
    "triton.runtime.driver.active.utils.get_device_properties(triton.runtime.driver.active.get_current_device())",
    "triton.runtime.driver.active.get_active_torch_device() == q.device",
]
TIMED = [
    "triton.testing.do_bench(lambda: torch.ones(2, device='cuda'), warmup=1, rep=1) > 0",
    "triton.testing.do_bench(lambda: q + q, warmup=1, rep=1, return_mode='median') > 0",
]


@pytest.mark.parametrize("answers", [ANSWERS, TIMED], ids=["answers", "timed"])
def test_what_a_file_for_cuda_asks(answers, tmp_path):
    asked = "".join(f"    if not ({answer}): raise ValueError({answer!r})\n" for answer in answers)
    source = solution("p3").replace("    check_arguments(q, k, v)\n", f"    check_arguments(q, k, v)\n{asked}")
    (result,) = grade_text(tmp_path, "p3", source, names=["one token"])
    assert result.outcome is Outcome.PASSED, result.sentence


def test_the_truth_is_back_afterwards():
    before = torch.cuda.is_available(), torch.cuda.Event, torch.utils._device.DeviceContext.__init__
    with pytest.raises(KeyError), without_gpu.pass_for(without_gpu.LIKELY):
        made = torch.empty(2, device="cuda")
        assert made.is_cuda and made.device.type == "cuda"
        raise KeyError
    assert not made.is_cuda and made.device.type == "cpu"
    assert before == (torch.cuda.is_available(), torch.cuda.Event, torch.utils._device.DeviceContext.__init__)


def test_a_result_on_another_device_is_still_seen(tmp_path):
    source = solution("p3").replace("    return o\n", "    return o.to('meta')\n")
    (result,) = grade_text(tmp_path, "p3", source, names=["one token"])
    assert result.outcome is Outcome.CRASHED and "on the device meta: make it where your inputs are" in result.sentence
