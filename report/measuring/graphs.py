"""Short calls timed without the host: on a GPU the calls of an arm, over several sets of inputs, are one CUDA graph."""

import time

import torch

SECONDS = 0.02  # of an arm's calls in a round
CALLS = 16  # of a graph at the least: what lies between two graphs is then little beside them


class GraphArm:
    """The calls of one kernel in one form as an arm of `take_turns`: a sample is the mean of a call.

    calls: one for each set of inputs; together they read far more than L2 holds, so that no call finds its own there.
    On a GPU they are in one CUDA graph. o: what the first of them gives, on a GPU when the graph has run.
    """

    def __init__(self, calls, device):
        self.calls, self.count, self.graph = calls, 1, None
        results = [call() for call in calls]
        if device == "cuda":
            torch.cuda.synchronize()
            self.calls = calls * max(1, CALLS // len(calls))
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                results = [call() for call in self.calls]
            self.run()
            torch.cuda.synchronize()
        self.o = results[0]

    def run(self):
        if self.graph is not None:
            return self.graph.replay()
        for call in self.calls:
            call()

    def warm_up(self, seed):
        if self.graph is not None:
            self.run()
            self.count = max(1, int(1e3 * SECONDS / (self.measure() * len(self.calls))))

    def round(self, seed, samples):
        """[milliseconds of a call]."""
        if self.graph is not None:
            self.run()
        return [self.measure()]

    def measure(self):
        """Milliseconds of a call, the mean of `count` runs of all."""
        if self.graph is None:
            start = time.perf_counter()
            self.run()
            return 1e3 * (time.perf_counter() - start) / len(self.calls)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(self.count):
            self.run()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / (self.count * len(self.calls))
