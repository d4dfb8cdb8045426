"""One kernel at one point, as the protocol of turns wants it; and what it means that a kernel has no time."""

import contextlib
import copy
import math

from grader.gpu import timing


class Failed(Exception):
    """A kernel that has no time at this point. status: as in table.STATUSES; the text is the reason."""

    def __init__(self, status, reason):
        super().__init__(reason)
        self.status = status


class Arm:
    """A kernel that was found right, as timing.take_turns wants it: it warms up, and takes its round."""

    def __init__(self, bench, name, built):
        self.bench, self.name, self.built = bench, name, built
        self.stopwatch = copy.copy(bench.stopwatch)  # it knows the launch overhead of one kernel
        self.slow, self.ms, self.peak_bytes, self.host_ms = False, math.inf, None, None  # ms: of one call, roughly

    def warm_up(self, seed):
        """Warm up once; a slow kernel has been called already, and is warm."""
        if self.slow or self.stopwatch.host_ms:
            return
        with self.failing_as_arm(), self.bench.step(self.name), self.built.around():
            self.stopwatch.warm_up(self.bound(seed))
        self.host_ms = self.stopwatch.host_ms

    def round(self, seed, samples):
        """The times in ms of `samples` calls on inputs of that seed."""
        with self.failing_as_arm(), self.bench.step(self.name), self.built.around():
            call = self.bound(seed)
            return [self.stopwatch.sample(call) for _ in range(samples)]

    def bound(self, seed):
        q, k, v = self.bench.inputs(seed)
        return lambda: self.built.call(q, k, v)

    @contextlib.contextmanager
    def failing_as_arm(self):
        try:
            yield
        except Failed as failed:
            raise timing.ArmFailed(str(failed), oom=failed.status == "oom") from None
