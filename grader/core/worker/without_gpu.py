"""Inside the child, without a GPU: what a file written for one needs in order to run."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import DeviceContext

from grader.core.protocol.messages import Gpu

# The GPU that the machine passes for. Few multiprocessors: a persistent kernel is to go round its loop.
LIKELY = Gpu("sm_90", "the grader's machine", "cuda", 90, 32, 232448, 8)
REGISTERS = 65536  # of a multiprocessor, each of 32 bits
MEMORY = 80 << 30

IS_CUDA, DEVICE = torch.Tensor.is_cuda.__get__, torch.Tensor.device.__get__


@contextlib.contextmanager
def pass_for(gpu: Gpu) -> Iterator[None]:
    """While open, PyTorch and Triton answer as on a machine with `gpu`, and what is asked of it lies on the CPU.

    Open it around a submission's own code only: the grader is to see the truth.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(patch.multiple(torch.cuda, **cuda_functions(gpu)))
        stack.enter_context(patch.object(DeviceContext, "__init__", default_on_the_cpu))
        if "triton" in sys.modules:
            stack.enter_context(active_driver(Driver(gpu)))
        stack.enter_context(OnTheCPU())
        yield


# Tensors -----------------------------------------------------------------------------------------------------------


class OnTheCPU(TorchFunctionMode):
    """While active, tensors of the CPU pass for tensors of a GPU, and what is to be made on "cuda" is made on the CPU.

    PyTorch's own code and the grader's dispatch mode run below it, and see the devices as they are.
    """

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if name == "__get__" and func in (IS_CUDA, DEVICE):
            true = DEVICE(*args)
            pretended = torch.device("cuda", 0) if true.type == "cpu" else true
            return pretended if func == DEVICE else pretended.type == "cuda"
        if name in ("cuda", "pin_memory"):
            return args[0]
        if name == "get_device":
            return 0
        if name == "record_stream":
            return None
        if name == "to":  # the one function that takes a device by position
            args = tuple(on_the_cpu(argument) for argument in args)
        if "device" in kwargs:
            device = kwargs["device"]
            kwargs["device"] = "cpu" if isinstance(device, int) else on_the_cpu(device)
        return func(*args, **kwargs)


def on_the_cpu(argument: Any) -> Any:
    """`argument`, or the CPU where it names a CUDA device."""
    if isinstance(argument, torch.device):
        return torch.device("cpu") if argument.type == "cuda" else argument
    return "cpu" if isinstance(argument, str) and argument.startswith("cuda") else argument


def default_on_the_cpu(context: Any, device: Any, original: Callable[..., None] = DeviceContext.__init__) -> None:
    """For `torch.set_default_device("cuda")` and `with torch.device("cuda")`."""
    original(context, on_the_cpu(device))


# torch.cuda --------------------------------------------------------------------------------------------------------


class Stream:
    """A stream on which everything is done at once."""

    cuda_stream, device_index = 0, 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Callable[..., None]:  # synchronize, wait_stream, wait_event, record_event ...
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args, **kwargs: None


class Event(Stream):
    """An event that has happened once it is recorded; times are wall clock."""

    def record(self, *args: Any) -> None:
        self.at = time.perf_counter()

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: "Event") -> float:
        return 1000 * (end.at - self.at)


def cuda_functions(gpu: Gpu) -> dict[str, Any]:
    """{name in torch.cuda: its value while a GPU is pretended}; each is an object of its own, as torch.compile asks."""
    properties = torch_properties(gpu)
    returned = {
        "is_available": True, "device_count": 1, "current_device": 0, "get_device_properties": properties,
        "get_device_capability": (properties.major, properties.minor), "get_device_name": properties.name,
        "is_bf16_supported": True, "mem_get_info": (MEMORY, MEMORY), "is_current_stream_capturing": False,
        "current_stream": Stream(), "default_stream": Stream(),
    }  # fmt: skip
    returned |= dict.fromkeys(("device", "device_of", "stream"), contextlib.nullcontext())
    nothing = ("init", "set_device", "set_stream", "synchronize", "empty_cache", "reset_peak_memory_stats")
    returned |= dict.fromkeys(nothing)
    return {name: returning(value) for name, value in returned.items()} | {"Stream": Stream, "Event": Event}


def returning(value: Any) -> Callable[..., Any]:
    """A function of its own that returns `value`, whatever it is given."""
    return lambda *args, **kwargs: value


def torch_properties(gpu: Gpu) -> SimpleNamespace:
    """What torch.cuda.get_device_properties tells of `gpu`."""
    arch = gpu.arch if isinstance(gpu.arch, int) else 94
    return SimpleNamespace(
        name=gpu.name, major=arch // 10, minor=arch % 10, total_memory=MEMORY, warp_size=gpu.warp,
        multi_processor_count=gpu.processors, shared_memory_per_block=49152,
        shared_memory_per_block_optin=gpu.shared_bytes, shared_memory_per_multiprocessor=gpu.shared_bytes + 1024,
        regs_per_multiprocessor=REGISTERS, max_threads_per_multi_processor=2048, L2_cache_size=50 << 20,
        gcnArchName=str(gpu.arch), is_integrated=0, is_multi_gpu_board=0,
    )  # fmt: skip


# Triton ------------------------------------------------------------------------------------------------------------


class Driver:
    """What Triton asks of a driver, without a GPU."""

    def __init__(self, gpu: Gpu) -> None:
        from triton.backends.compiler import GPUTarget

        properties = {
            "max_shared_mem": gpu.shared_bytes, "max_num_regs": REGISTERS, "warpSize": gpu.warp,
            "multiprocessor_count": gpu.processors, "sm_clock_rate": 1_500_000, "mem_clock_rate": 1_500_000,
            "mem_bus_width": 5120,
        }  # fmt: skip
        self.utils = SimpleNamespace(get_device_properties=returning(properties))
        self.get_current_target = returning(GPUTarget(gpu.backend, gpu.arch, gpu.warp))
        self.get_current_device = self.get_current_stream = returning(0)
        self.set_current_device = self.clear_cache = returning(None)
        self.get_active_torch_device = returning(torch.device("cuda", 0))
        self.get_device_interface = returning(torch.cuda)

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        return torch.empty(1)


@contextlib.contextmanager
def active_driver(driver: Driver) -> Iterator[None]:
    from triton.runtime.driver import driver as drivers

    before = getattr(drivers, "_active", None)
    drivers.set_active(driver)
    try:
        yield
    finally:
        drivers._active = before
