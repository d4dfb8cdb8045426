"""In the runner, on a GPU: a program, or a function of ours, timed call by call on fresh inputs."""

import importlib.util
import time

import replies
import torch
from allocations import Allocations
from replay import Place, Replay, launch, tune
from stopwatch import Stopwatch


class Timed:
    """What is timed and its inputs, kept between rounds. program: checked, or None for a module of ours at `path`."""

    def __init__(self, runner, request, program=None):
        device = "cuda"
        dtype = getattr(torch, request["dtype"])
        self.inputs = {name: torch.empty(s, device=device, dtype=dtype) for name, s in request["shapes"].items()}
        self.generator, self.watch = torch.Generator(device=device), Stopwatch(device)
        self.seconds, self.replay = time.perf_counter(), None
        if program is None:
            function = ours(request)
            self.function = lambda: function(*self.inputs.values(), **request["arguments"])
        else:
            self.replay = Replay(program, runner.make_kernels(program), device, launch, tune)
            places = {n: Place(t.untyped_storage(), 0, t.untyped_storage().nbytes()) for n, t in self.inputs.items()}
            self.fill(0)
            self.replay.run(places)
            self.replay.begin(places)
            self.function = self.replay.call

    def fill(self, seed):
        self.generator.manual_seed(seed)
        for tensor in self.inputs.values():
            tensor.normal_(generator=self.generator)

    def measure(self, request):
        """Milliseconds of `samples` calls, each on its own inputs; the first request warms up and tells the memory.

        synchronised_ms: of one more call that began when nothing else ran. check: [[batch, head], ...] of the last
        sample's inputs and output that are written to outputs.bin, q, k, v and o of each.
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
            for i in range(request["samples"]):
                self.fill(request["seed"] + 1 + i)
                times.append(watch.sample(call))
            reply = self.checked(request["check"], returned) if request.get("check") else {}
            if request["samples"]:
                synchronised = watch.sample(call, alone=True)
        return reply | {"ms": times, "peak_bytes": peak, "host_ms": watch.host_ms, "synchronised_ms": synchronised}

    def checked(self, pairs, returned):
        """The timed output with its inputs, for the grader to compare; and the fences of a call with canaries."""
        first = lambda value: value[0] if isinstance(value, tuple | list) else value  # noqa: E731
        q, k, v = self.inputs.values()
        group, out = q.shape[1] // k.shape[1], first(first(returned))
        parts = [
            part.clone() for b, h in pairs for part in (q[b, h], k[b, h // group], v[b, h // group], out[b, h])
        ]  # fmt: skip
        fenced = Allocations()
        with fenced:
            self.function()
        torch.cuda.synchronize()
        return {"outputs": replies.write_outputs(parts, "cuda"), "broken_fences": fenced.broken_fences()}


def ours(request):
    """The entry point of a module of the grader's own, which came as ours.py."""
    spec = importlib.util.spec_from_file_location("ours", "ours.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, request["ours"])
