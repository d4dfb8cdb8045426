"""In the runner, on a GPU: a program, or a function of ours, timed call by call on fresh inputs."""

import importlib.util
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from grader.core.protocol.messages import Call, Derived, Range, Time, Timed, TimeOurs
from grader.core.protocol.program import Program
from grader.core.run.allocations import POISON, Allocations
from grader.core.run.replay import Launcher, Replay, tune
from grader.core.run.stopwatch import Stopwatch
from grader.core.worker import replies


class TimedCalls:
    """What is timed and its inputs, kept between rounds.

    prepare(inputs): returns the call on the inputs as they are; what it makes ready is outside of what is timed.
    """

    def __init__(
        self, device: str, call: Call, derived: Derived | None,
        prepare: Callable[[dict[str, torch.Tensor]], Callable[[], Any]],
    ) -> None:  # fmt: skip
        self.device, self.call, self.derived, self.prepare = device, call, derived, prepare
        self.inputs = {
            spec.name: torch.empty(spec.shape, device=device, dtype=getattr(torch, spec.dtype)) for spec in call.inputs
        }
        self.derive: Any = derived and load("derived.py", derived.function)
        self.generator, self.watch = torch.Generator(device=device), Stopwatch(device)
        self.function: Any = None  # the call, once it is prepared

    def draw(self, seed: int) -> None:
        """Fresh inputs: normal numbers, and what a function of ours makes of them."""
        self.function = None  # it may hold what belongs to the inputs before
        makes = self.derived.makes if self.derived else ()
        self.generator.manual_seed(seed)
        for name, tensor in self.inputs.items():
            if name not in makes:
                tensor.normal_(generator=self.generator)
        if self.derived:
            made = self.derive(*(self.inputs[name] for name in self.derived.takes), **self.call.arguments)
            for name, tensor in zip(makes, made, strict=True):
                self.inputs[name].copy_(tensor)

    def fill(self, seed: int) -> None:
        """Fresh inputs, and the call made ready for them."""
        self.draw(seed)
        self.function = self.prepare(self.inputs)

    def measure(self, request: Time) -> Timed:
        """The Timed of `samples` calls; the first request warms up and tells the memory."""
        watch = self.watch
        returned: list[Any] = []

        def call() -> None:
            returned[:] = [self.function()]

        timed = Timed([])
        with torch.no_grad():
            self.fill(request.seed)
            if request.warm_up:
                watch.warm_up(call)
                timed.peak_bytes = watch.peak(call)
            for i in range(request.samples):
                returned.clear()
                self.fill(request.seed + 1 + i)
                timed.ms.append(watch.sample(call))
                if i == request.checked:
                    self.check(request, returned, request.seed + 1 + i, timed)
            if request.samples:
                timed.synchronised_ms = watch.sample(call, alone=True)
        timed.host_ms = watch.host_ms
        return timed

    def check(self, request: Time, returned: list[Any], seed: int, timed: Timed) -> None:
        """Write a sample's outputs with its inputs, for the grader to compare; look at the fences of one more call.

        The inputs are drawn once more: what the call may have written there is not what it was given.
        """
        (out,), n = returned, len(self.inputs)
        outputs = list(out) if isinstance(out, tuple | list) else [out]
        outputs = [[cut(*each) for each in zip(outputs, ranges[n:], strict=False)] for ranges in request.check]
        self.fill(seed)
        inputs = [[*map(cut, self.inputs.values(), ranges[:n])] for ranges in request.check]
        parts = [part for pair in zip(inputs, outputs, strict=True) for each in pair for part in each]
        allocations = Allocations()
        with allocations:
            self.function()
        if self.device == "cuda":
            torch.cuda.synchronize()
        timed.outputs, timed.broken_fences = replies.write_outputs(parts, self.device), allocations.broken_fences()


def time_program(device: str, launch: Launcher, request: Time, program: Program) -> TimedCalls:
    """TimedCalls of a program that is checked."""
    replay = Replay(program, device, launch, tune)
    calls = TimedCalls(device, request.call, request.derived, lambda inputs: begin_anew(replay, inputs))
    calls.draw(0)
    replay.run(calls.inputs)
    return calls


def time_module(device: str, request: TimeOurs) -> TimedCalls:
    """TimedCalls of a function of ours.py."""
    function, arguments = load("ours.py", request.function), request.time.call.arguments

    def prepare(inputs: dict[str, torch.Tensor]) -> Any:
        call = partial(function, *inputs.values(), **arguments)
        return call() if request.prepares else call

    return TimedCalls(device, request.time.call, request.time.derived, prepare)


def begin_anew(replay: Replay, inputs: dict[str, torch.Tensor]) -> Callable[[], list[Any]]:
    """The call of a program that knows of no call before: its workspaces are made anew, on memory that was wiped."""
    replay.places = {}
    wipe_free_memory()
    replay.begin(inputs)
    return replay.call


def wipe_free_memory() -> None:
    """Fill what PyTorch's allocator keeps for later: a kernel could find there what it left in an earlier call."""
    if not torch.cuda.is_initialized():
        return
    for segment in torch.cuda.memory_snapshot():
        for block in segment["blocks"]:
            if block["state"] == "inactive":
                torch.as_tensor(Bytes(block["address"], block["size"]), device="cuda").fill_(POISON)


class Bytes:
    """Memory of a GPU, as torch.as_tensor takes it."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3,
        }  # fmt: skip


def cut(returned: Any, ranges: list[Range]) -> Any:
    """A copy of a tensor's part, [[start, stop], ...] of its first dims; what is no tensor stays what it is."""
    if not isinstance(returned, torch.Tensor):
        return returned
    return returned[tuple(slice(*each) for each in ranges[: returned.dim()])].clone()


def load(file: str, function: str) -> Any:
    """A function of a file of the grader's own, which lies in the current folder."""
    spec: Any = importlib.util.spec_from_file_location(file.removesuffix(".py"), file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, function)
