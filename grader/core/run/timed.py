"""In the runner, on a GPU: a program, or a function of ours, timed call by call on fresh inputs."""

import importlib.util
from functools import partial

import torch

from grader.core.inside import replies
from grader.core.run.allocations import POISON, Allocations
from grader.core.run.replay import Place, Replay, launch, tune
from grader.core.run.stopwatch import Stopwatch


class Timed:
    """What is timed and its inputs, kept between rounds. program: checked, or None for a module of ours.

    function: the call on the inputs as they are; what it needs to be ready is made by `fill`, outside of what is timed.
    """

    def __init__(self, runner, request, program=None):
        self.device = device = "cuda" if runner.setup["device"] == "cuda" else "cpu"
        self.inputs = {
            each["name"]: torch.empty(each["shape"], device=device, dtype=getattr(torch, each["dtype"]))
            for each in request["inputs"]
        }
        self.arguments, self.derived = request["arguments"], request["derived"]
        self.derive = self.derived and load("derived.py", self.derived["function"])
        self.generator, self.watch, self.function = torch.Generator(device=device), Stopwatch(device), None
        if program is None:
            call = partial(load("ours.py", request["ours"]), *self.inputs.values(), **self.arguments)
            self.prepare = call if request["prepares"] else lambda: call
        else:
            replay = Replay(program, runner.make_kernels(program), device, launch, tune)
            places = {n: Place(t.untyped_storage(), 0, t.untyped_storage().nbytes()) for n, t in self.inputs.items()}
            self.prepare = lambda: replay.call
            self.fill(0)
            replay.run(places)
            self.prepare = partial(begin_anew, replay, places)

    def fill(self, seed):
        """Fresh inputs: normal numbers, and what a function of ours makes of them."""
        self.function = None  # it may hold what belongs to the inputs before
        makes = self.derived["makes"] if self.derived else ()
        self.generator.manual_seed(seed)
        for name, tensor in self.inputs.items():
            if name not in makes:
                tensor.normal_(generator=self.generator)
        if self.derived:
            made = self.derive(*(self.inputs[name] for name in self.derived["takes"]), **self.arguments)
            for name, tensor in zip(makes, made, strict=True):
                self.inputs[name].copy_(tensor)
        self.function = self.prepare()

    def measure(self, request):
        """Milliseconds of `samples` calls, each on its own inputs; the first request warms up and tells the memory.

        synchronised_ms: of one more call that began when nothing else ran. checked: the number of the sample, if any,
        of whose inputs and outputs the ranges `check`, as Kind.parts has them, are written to outputs.bin.
        """
        watch, returned = self.watch, []

        def call():
            returned[:] = [self.function()]

        times, peak, synchronised = [], None, None
        with torch.no_grad():
            self.fill(request["seed"])
            if request["warm_up"]:
                watch.warm_up(call)
                peak = watch.peak(call)
            checked, reply = request.get("checked"), {}
            for i in range(request["samples"]):
                returned.clear()
                self.fill(request["seed"] + 1 + i)
                times.append(watch.sample(call))
                if i == checked:
                    reply = self.check(request, returned, request["seed"] + 1 + i)
            if request["samples"]:
                synchronised = watch.sample(call, alone=True)
        return reply | {"ms": times, "peak_bytes": peak, "host_ms": watch.host_ms, "synchronised_ms": synchronised}

    def check(self, request, returned, seed):
        """A sample's outputs with its inputs, for the grader to compare; and the fences of a call with canaries.

        The inputs are drawn once more: what the call may have written there is not what it was given.
        """
        (out,), n = returned, len(self.inputs)
        outputs = list(out) if isinstance(out, tuple | list) else [out]
        outputs = [[cut(*each) for each in zip(outputs, ranges[n:], strict=False)] for ranges in request["check"]]
        self.fill(seed)
        inputs = [[*map(cut, self.inputs.values(), ranges[:n])] for ranges in request["check"]]
        parts = [part for pair in zip(inputs, outputs, strict=True) for each in pair for part in each]
        fenced = Allocations()
        with fenced:
            self.function()
        if self.device == "cuda":
            torch.cuda.synchronize()
        return {"outputs": replies.write_outputs(parts, self.device), "broken_fences": fenced.broken_fences()}


def begin_anew(replay, places):
    """The call of a program that knows of no call before: its workspaces are made anew, on memory that was wiped."""
    replay.places = {}
    wipe_free_memory()
    replay.begin(places)
    return replay.call


def wipe_free_memory():
    """Fill what PyTorch's allocator keeps for later: a kernel could find there what it left in an earlier call."""
    if not torch.cuda.is_initialized():
        return
    for segment in torch.cuda.memory_snapshot():
        for block in segment["blocks"]:
            if block["state"] == "inactive":
                torch.as_tensor(Bytes(block["address"], block["size"]), device="cuda").fill_(POISON)


class Bytes:
    """Memory of a GPU, as torch.as_tensor takes it."""

    def __init__(self, address, size):
        self.__cuda_array_interface__ = {
            "shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3,
        }  # fmt: skip


def cut(returned, ranges):
    """A copy of a tensor's part, [[start, stop], ...] of its first dims; what is no tensor stays what it is."""
    if not isinstance(returned, torch.Tensor):
        return returned
    return returned[tuple(slice(*each) for each in ranges[: returned.dim()])].clone()


def load(file, function):
    """A function of a file of the grader's own, which lies in the current folder."""
    spec = importlib.util.spec_from_file_location(file.removesuffix(".py"), file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, function)
