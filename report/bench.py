"""The child of the sweep: measures all kernels of one point in turns. `python -m report.bench cuda` or `cpu`.

Requests come as JSON lines on standard input, replies go as JSON lines to what was standard output; what kernels and
libraries print goes to standard error. Before each step of a kernel the child says which kernel is in hand: if it dies,
the sweep knows whose row that is.
"""

import contextlib
import json
import os
import queue
import sys
import threading
import time
import warnings
from dataclasses import asdict, replace

import torch
from grader.child.stopwatch import Stopwatch

from grader import timing
from report import kernels, table
from report.check import Check
from report.shapes import Point, Tier

SLOW_MS = 300.0  # a call that takes longer is warmed up once and sampled in SLOW_ROUNDS rounds
SLOW_ROUNDS = 2
MIN_ROUNDS = 5
MAX_ROUNDS = 100
TARGET = 0.01  # half the width of the interval, relative to the time
CHECK_SEED = 1
TIMING_SEED = 1000
CPU_OUT_OF_MEMORY = ("can't allocate memory", "not enough memory")
# Dense matrix products of 16-bit floats, TFLOP/s, without sparsity. Source: NVIDIA's data sheets.
PEAK_TFLOPS = {"H200": 989.4, "H100 80GB HBM3": 989.4, "A100": 312.0, "L40S": 362.0}


class Failed(Exception):
    """A kernel that has no time at this point. status: as in table.STATUSES; the text is the reason."""

    def __init__(self, status, reason):
        super().__init__(reason)
        self.status = status


class Arm:
    """A kernel that is ready, as timing.take_turns wants it."""

    def __init__(self, bench, name, built):
        self.bench, self.name, self.built = bench, name, built
        self.slow, self.peak_bytes, self.host_ms = False, None, None

    def round(self, seed, samples):
        """The times in ms of `samples` calls on inputs of that seed; raises timing.ArmFailed."""
        try:
            with self.bench.step(self.name), self.built.around():
                call = self.bound(seed)
                return [self.bench.stopwatch.sample(call) for _ in range(samples)]
        except Failed as failed:
            failure = timing.ArmFailed(str(failed))
            failure.oom = failed.status == "oom"
            raise failure from None

    def bound(self, seed):
        q, k, v = self.bench.inputs(seed)
        return lambda: self.built.call(q, k, v)


class Bench:
    """One point: its inputs, what is right there, its kernels made ready and timed. say(**event) reports."""

    def __init__(self, point, device, say):
        self.point, self.device, self.say = point, device, say
        self.stopwatch = Stopwatch(device)
        self.seed, self.tensors = None, None
        self.check = None

    def inputs(self, seed):
        """q, k, v of that seed; all arms of a round share them."""
        if seed != self.seed:
            tier, N = self.point.tier, self.point.N
            generator = torch.Generator(self.device).manual_seed(seed)
            self.tensors = None
            self.tensors = tuple(
                torch.randn(
                    tier.B, heads, N, tier.D,
                    dtype=getattr(torch, self.point.dtype), device=self.device, generator=generator,
                )
                for heads in (tier.H, tier.kv_heads, tier.kv_heads)
            )  # fmt: skip
            self.seed = seed
        return self.tensors

    @contextlib.contextmanager
    def step(self, name):
        """A step of kernel `name`: whatever it raises is Failed; a GPU that it leaves unusable ends the process."""
        self.say(event="doing", kernel=name)
        try:
            yield
            self.synchronise()
        except Failed:
            raise
        except kernels.NotRun as error:
            raise Failed("not run", str(error)) from None
        except Exception as error:
            failed = Failed("oom" if out_of_memory(error) else "failed", in_a_sentence(error))
            error.__traceback__ = None  # its frames hold tensors
            try:
                self.synchronise()
            except Exception:
                self.say(event="dying", kernel=name, reason=str(failed))
                os._exit(1)
            raise failed from None

    def synchronise(self):
        if self.device == "cuda":
            torch.cuda.synchronize()

    def ready(self, name):
        """The kernel built, called once, compared with what is right, and warmed up: an Arm; raises Failed."""
        with self.step(name), warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            arm = Arm(self, name, kernels.build(name, self.point, self.device))
            with arm.built.around():
                self.first_calls(arm, warned)
        return arm

    def first_calls(self, arm, warned):
        call = arm.bound(CHECK_SEED)
        try:
            o, ms = self.measure_once(arm, call)
        except RuntimeError as error:  # SDPA says "no available kernel", and the reasons in warnings
            if "No available kernel" not in str(error):
                raise
            why = [str(w.message).split(" (Triggered internally")[0] for w in warned]
            raise Failed("failed", " ".join([str(error), *dict.fromkeys(why)])[:300]) from None
        if fault := self.check.fault(o, arm.name in kernels.ROUNDS_SCORES):
            raise Failed("failed", fault)
        del o
        if ms > SLOW_MS and arm.name in kernels.COMPILED:  # that was the compiler, perhaps
            _, ms = self.measure_once(arm, call)
        arm.slow = ms > SLOW_MS
        if not arm.slow:
            self.stopwatch.warm_up(call)
            arm.peak_bytes, arm.host_ms = self.stopwatch.peak(call), self.stopwatch.host_ms(call)

    def measure_once(self, arm, call):
        """(o, ms) of one call, which also serves as the measure of memory and of the host's time."""
        kept = []

        def keep():
            started = time.perf_counter()
            o = call()
            arm.host_ms = (time.perf_counter() - started) * 1e3
            self.synchronise()
            kept[:] = o, (time.perf_counter() - started) * 1e3

        arm.peak_bytes = self.stopwatch.peak(keep)
        return kept

    def run(self, names, companions, budget):
        """Measure `names`, their rows reported as they are known; companions are timed for the ratios alone."""
        started = time.perf_counter()
        self.check = Check(*self.inputs(CHECK_SEED), kernels.visibility(self.point))
        arms = {}
        for name in (name for name in table.KERNELS if name in {*names, *companions}):
            try:
                arms[name] = self.ready(name)
            except Failed as failed:
                self.report(name, names, table.not_measured(self.point.row(name), failed.status, str(failed)))
        self.check = None
        quick = {name: arm for name, arm in arms.items() if not arm.slow}
        slow = {name: arm for name, arm in arms.items() if arm.slow or name in (*table.BASELINES[:2], "fast")}
        if quick:
            self.time(quick, names, MIN_ROUNDS, MAX_ROUNDS, budget * len(quick), list(quick))
        if len(quick) < len(arms):
            self.time(slow, names, SLOW_ROUNDS, SLOW_ROUNDS, budget, [name for name in arms if arms[name].slow])
        self.say(event="done", seconds=time.perf_counter() - started)

    def time(self, arms, names, min_rounds, max_rounds, budget, reported):
        """Time `arms` in turns and report the rows of `reported`."""
        plan = timing.Plan(
            target=TARGET, budget_s=budget, min_rounds=min_rounds, max_rounds=max_rounds, samples=1, seed=TIMING_SEED
        )
        timings = timing.take_turns(arms, plan)
        for name in reported:
            self.report(name, names, self.row(name, arms[name], timings))

    def row(self, name, arm, timings):
        row, timed = self.point.row(name), timings[name]
        if timed.failure is not None:
            return table.not_measured(row, "oom" if timed.oom else "failed", str(timed.failure))
        summary = timed.summary()
        tier = self.point.tier
        flops = 4.0 * tier.B * tier.H * tier.D * visible_pairs(self.point, self.device)
        tflops = flops / (summary["median_ms"] * 1e-3) / 1e12
        peak = peak_tflops(self.device)
        return replace(
            row,
            **{column: summary[column] for column in table.COLUMNS if column in summary},
            **self.ratios(name, timings),
            host_ms=arm.host_ms,
            tflops=tflops,
            fraction_of_peak=tflops / peak if peak else None,
            peak_mib=None if arm.peak_bytes is None else arm.peak_bytes / 2**20,
        )

    def ratios(self, name, timings):
        """The columns speedup* and ours*; blank where there is nothing to compare with."""
        found = {}
        base = next((b for b in ("vectorised", "naive per head") if measured(timings, b)), None)
        for column, fast, slow in (("speedup", name, base), ("ours", "fast", name)):
            if fast == slow:
                ends = 1.0, 1.0, 1.0
            elif measured(timings, fast) and measured(timings, slow) and (ratio := timing.ratio(timings, fast, slow)):
                ends = ratio.median, ratio.low, ratio.high
            else:
                continue
            found |= zip((column, f"{column}_low", f"{column}_high"), ends, strict=True)
        return found

    def report(self, name, names, row):
        if name in names:
            self.say(event="row", row=asdict(row))

    def prepare(self, names):
        """Fill the caches of the compilers: each compiled kernel once at the true shape, whatever becomes of it."""
        for name in (name for name in names if name in kernels.COMPILED):
            with contextlib.suppress(Failed), self.step(name):
                built = kernels.build(name, self.point, self.device)
                with built.around():
                    built.call(*self.inputs(CHECK_SEED))
        self.say(event="done")


def measured(timings, name):
    return name in timings and timings[name].failure is None


def visible_pairs(point, device):
    """Pairs of query and key of one head that the mask leaves, counted."""
    position = torch.arange(point.N, device=device)
    visible = kernels.visibility(point)
    return sum(int(visible.mask(rows, position).sum()) for rows in position.split(512))


def peak_tflops(device):
    """The GPU's dense peak for 16-bit floats, or None where it is not known."""
    name = torch.cuda.get_device_name() if device == "cuda" else ""
    return next((peak for words, peak in PEAK_TFLOPS.items() if words in name), None)


def out_of_memory(error):
    words = str(error)
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(w in words for w in CPU_OUT_OF_MEMORY)


def in_a_sentence(error):
    """`RuntimeError: the first line of what it said`."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["(without words)"]
    return f"{type(error).__name__}: {lines[0][:300]}"


def machine(device):
    """The facts kept with the numbers."""
    if device == "cuda":
        return timing.machine()
    import platform

    return {
        "gpu": None, "cpu": platform.processor() or platform.machine(), "torch": torch.__version__,
        "triton": None, "python": platform.python_version(),
    }  # fmt: skip


def requests():
    """The requests on standard input; where the sweep is gone, so is this process, at once."""
    arrived = queue.Queue()

    def listen():
        for line in sys.stdin:
            arrived.put(json.loads(line))
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    while True:
        yield arrived.get()


def main(device):
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever prints does so on standard error
    sys.stdout = sys.stderr

    def say(**event):
        channel.write(json.dumps(event) + "\n")
        channel.flush()

    if device == "cuda" and not torch.cuda.is_available():
        say(event="broken", reason="PyTorch sees no GPU here")
        return
    torch.set_grad_enabled(False)
    say(event="ready", machine=machine(device))
    for request in requests():
        op = request["op"]
        if op == "machine":
            say(event="machine", machine=machine(device))
            continue
        if request.get("share") and device == "cuda":
            torch.cuda.set_per_process_memory_fraction(request["share"])
        point = Point(**{**request["point"], "tier": Tier(**request["point"]["tier"])})
        torch._dynamo.reset()
        if device == "cuda":
            torch.cuda.empty_cache()
        try:
            bench = Bench(point, device, say)
            if op == "prepare":
                bench.prepare(request["kernels"])
            else:
                bench.run(request["kernels"], request["companions"], request["budget"])
        except Exception as error:  # ours: no kernel was in hand
            say(event="fault", reason=in_a_sentence(error))


if __name__ == "__main__":
    main(sys.argv[1])
