"""Launches are made once for shapes and layouts, and kept: what counts as the same, and what a call still does."""

import gc
import weakref
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("triton.experimental.gluon.nvidia.hopper")

from kernels import hopper_launch
from kernels.hopper_launch import POINTER, Launch, Launches, describe


class Kernel:
    """Passes for a Triton kernel: kernel[grid](...) compiles."""

    def __init__(self):
        self.compiled = []

    def __getitem__(self, grid):
        def compile_and_run(*arguments, **options):
            self.compiled.append((grid, arguments, options))
            return self

        return compile_and_run


class Direct:
    """Passes for what launches a compiled kernel from then on."""

    def __init__(self, *made_of):
        self.made_of, self.launched = made_of, []

    def __call__(self, tensors):
        self.launched.append(tensors)


def tensor(*shape, dtype=torch.float16):
    return torch.zeros(shape or (1, 2, 8, 16), dtype=dtype)


@pytest.fixture
def kept():
    made = []

    def prepare(*given):
        made.append(given)
        return f"launch {len(made)}"

    return Launches(prepare), made


def test_the_same_shapes_and_layouts_are_prepared_once(kept):
    launches, made = kept
    assert launches.find((tensor(), tensor()), True, None) == "launch 1"
    assert launches.find((tensor(), tensor()), True, None) == "launch 1" and len(made) == 1


@pytest.mark.parametrize(
    "other",
    [
        lambda: ((tensor(1, 2, 9, 16), tensor()), True),
        lambda: ((tensor(1, 8, 2, 16).transpose(1, 2), tensor()), True),
        lambda: ((tensor(dtype=torch.bfloat16), tensor()), True),
        lambda: ((tensor(), tensor(1, 1, 8, 16).expand(1, 2, 8, 16)), True),
        lambda: ((tensor().to("meta"), tensor()), True),
        lambda: ((tensor(), tensor()), False),
    ],
)
def test_another_shape_layout_dtype_device_or_argument_is_another_launch(kept, other, monkeypatch):
    launches, _ = kept
    monkeypatch.setattr(torch.Tensor, "data_ptr", lambda x: 0)  # one on "meta" has none
    tensors, causal = other()
    assert launches.find((tensor(), tensor()), True) == "launch 1"
    assert launches.find(tensors, causal) == "launch 2"
    assert launches.find((tensor(), tensor()), True) == "launch 1"


def test_an_address_that_the_copy_engine_cannot_read_is_asked_for_a_copy_and_not_kept(kept):
    launches, made = kept
    shifted = torch.zeros(1 + 2 * 8 * 16, dtype=torch.float16)[1:].view(1, 2, 8, 16)
    assert launches.find((shifted,)) is None and not made
    assert launches.find((tensor(),)) == "launch 1"


def test_not_more_are_kept_than_fit(kept, monkeypatch):
    launches, made = kept
    monkeypatch.setattr(Launches, "KEPT", 3)
    for n in (*range(5), 4):
        launches.find((tensor(),), n)
    assert len(launches.kept) <= 3 and len(made) == 5


@pytest.fixture
def on_one_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)  # the index of "cpu"
    monkeypatch.setattr(hopper_launch, "Direct", Direct)


def test_a_launch_compiles_once_and_then_puts_the_tensors_in(on_one_gpu):
    kernel, q = Kernel(), tensor()
    launch = Launch(kernel, (7, 1, 1), (describe(q, 1, 8), describe(q, 1, 4), POINTER), (5, "x"), {"num_warps": 4})
    first, second = (tensor(), tensor(), tensor()), (tensor(), tensor(), tensor())
    launch(*first)
    launch(*second)
    ((grid, arguments, options),) = kernel.compiled
    assert grid == (7, 1, 1) and options == {"num_warps": 4} and arguments[3:] == (5, "x")
    assert arguments[0].base is first[0] and arguments[1].base is first[1] and arguments[2] is first[2]
    assert launch.direct.launched == [second] and launch.direct.made_of[:2] == (kernel, grid)
    assert [each.block_shape for each in arguments[:2]] == [[1, 1, 8, 16], [1, 1, 4, 16]]


def test_a_launch_keeps_no_tensor_alive(on_one_gpu):
    q, other = tensor(), tensor()
    launch = Launch(Kernel(), (1, 1, 1), (describe(q, 1, 8),), (), {})
    launch(other)
    launch.kernel.compiled.clear()
    seen = weakref.ref(q), weakref.ref(other)
    del q, other
    gc.collect()
    assert [each() for each in seen] == [None, None]


def test_it_runs_on_the_device_of_its_tensors(monkeypatch):
    at, entered = SimpleNamespace(now=1), []

    class Device:
        def __init__(self, device):
            self.device = device

        def __enter__(self):
            entered.append(self.device)
            at.now = None

        def __exit__(self, *error):
            at.now = 1

    monkeypatch.setattr(hopper_launch.torch.cuda, "current_device", lambda: at.now)
    monkeypatch.setattr(hopper_launch.torch.cuda, "device", Device)
    monkeypatch.setattr(hopper_launch, "Direct", Direct)
    kernel = Kernel()
    Launch(kernel, (1, 1, 1), (describe(tensor(), 1, 8),), (), {})(tensor())
    assert entered == [torch.device("cpu")] and len(kernel.compiled) == 1 and at.now == 1


def test_o_is_described_as_contiguous_whatever_q_is():
    q = tensor(3, 8, 2, 16).transpose(1, 2)
    assert describe(q, 1, 8).strides == [256, 16, 32, 1]
    assert describe(q, 1, 8, contiguous=True).strides == [256, 128, 16, 1]
