"""What a GPU is given of a launch: the IR compiled by Triton's later stages, and its arguments. No GPU is needed."""

import contextlib

import pytest
import torch
from triton.compiler import CompiledKernel
from triton.tools.tensor_descriptor import TensorDescriptor

from grader.core.protocol.program import launches_in, read
from grader.core.run.compiled import CompiledKernels
from grader.core.run.replay import Replay, place_inputs
from grader.core.sandbox.submission import Submission
from grader.core.worker import without_gpu
from grader.gpu.gpus import GPUS
from grader.registry import PROBLEMS
from grader.tests.support import honest, solution

FORMS = {"pointers": ("p4", solution("p4")), "host descriptors": ("p3", honest("p3_host_descriptors_4d"))}


def program_of(problem, source, folder, gpu):
    """The program of the smallest case, recorded for a GPU."""
    path = folder / PROBLEMS[problem].module
    path.write_text(source, "utf-8")
    kind = PROBLEMS[problem].kind
    case = next(case for case in PROBLEMS[problem].cases if case.D == 64 and case.dtype == "float16")
    call, _ = kind.request(PROBLEMS[problem], case, kind.inputs(case, 0), "cuda")
    with contextlib.closing(Submission(path, PROBLEMS[problem], "cuda", 60.0, gpu)) as submission:
        return read(submission.record(call).program), call


@pytest.mark.parametrize("form", FORMS)
def test_a_launch_has_the_arguments_of_its_ir(form, tmp_path, monkeypatch):
    problem, source = FORMS[form]
    program, call = program_of(problem, source, tmp_path, GPUS["sm_90"])
    launched = []

    def launcher(kernel, grid):
        return lambda *given: launched.append((kernel, grid, given))

    monkeypatch.setattr(CompiledKernel, "__getitem__", launcher)
    monkeypatch.chdir(tmp_path)
    kernels = CompiledKernels(program.kernels, {}, {})
    flats, _ = place_inputs(call.inputs, None, "cpu")
    with without_gpu.active_driver(without_gpu.Driver(GPUS["sm_90"])), torch.no_grad():
        Replay(program, "cpu", kernels.launch).run(flats)
    ((kernel, grid, given),) = launched
    forms = list(kernel.src.signature.values())
    (step,) = launches_in(program.steps)  # Triton's launcher makes the sizes and strides of a descriptor itself
    own = [name for name in step.names if ".shape." not in name and ".strides." not in name]
    assert len(forms) == len(given) == len(own) and len(grid) == 3
    for words, value in zip(forms, given, strict=True):
        assert words.startswith("*fp16") == isinstance(value, torch.Tensor)
        assert words.startswith("tensordesc<fp16[") == isinstance(value, TensorDescriptor)
    assert "wgmma" in kernel.asm["ptx"] and "tt.divisibility = 16" in kernel.src.text
    assert any(words[0] in "*t" for words in forms)
