"""All kernels of one point: made ready, found right, timed in turns, and put into rows.

Correct first: a kernel's output is compared with what is right before it is timed. Before each step of a kernel the
child says which kernel is in hand: if it dies, the sweep knows whose row that is.
"""

import contextlib
import math
import os
import time
import warnings
from dataclasses import asdict, replace

import torch

from grader.gpu import peaks, timing
from grader.kinds.attention.cases import Case
from grader.runner.stopwatch import Stopwatch
from report import kernels, table
from report.arms import Arm, Failed
from report.check import Check

SLOW_MS = 300.0  # a call that takes longer is warmed up once and sampled in SLOW_ROUNDS rounds
SURELY_SLOW_MS = 2000.0  # of a first call, where nothing is compiled: one such call is enough
SLOW_ROUNDS = 2
BASES = ("vectorised", "naive per head")  # speedup is over the first of them that was measured
MIN_ROUNDS = 5
TARGET = 0.01  # half the width of the interval, relative to the time
CHECK_SEED = 1
TIMING_SEED = 1000
CPU_OUT_OF_MEMORY = ("can't allocate memory", "not enough memory")


PROTOCOL = {
    "check": "a slice against float64 before any timing",
    "inputs": "fresh in each round, the same for all arms; L2 flushed before each sample",
    "ratios": "medians over rounds, 95 % bootstrap intervals",
    "target": TARGET,
    "min_rounds": MIN_ROUNDS,
    "max_rounds": timing.Plan().max_rounds,
    "slow_ms": SLOW_MS,
    "slow_rounds": SLOW_ROUNDS,
}


class Bench:
    """One point: its inputs, what is right there, its kernels made ready and timed. say(**event) reports."""

    def __init__(self, point, device, say):
        self.point, self.device, self.say = point, device, say
        self.stopwatch = Stopwatch(device)
        self.seed, self.tensors = None, None
        self.gpu = torch.cuda.get_device_name() if device == "cuda" else None
        self.check = None
        self.set_up()

    # What another measurement than the sweep may do otherwise -----------------------------------------------------

    bases = BASES
    anchor = "fast"  # the kernel that all must be compared with precisely

    def set_up(self):
        """What all kernels of the point share."""
        point = self.point
        self.case = Case(
            point.title, B=point.tier.B, Hq=point.tier.H, Hkv=point.tier.kv_heads, N=point.N, D=point.tier.D,
            dtype=point.dtype, causal=point.causal, window=point.tier.window, sinks=point.tier.sinks,
        )  # fmt: skip

    def draw(self, generator):
        """Fresh q, k, v."""
        tier, N, dtype = self.point.tier, self.point.N, getattr(torch, self.point.dtype)
        return tuple(
            torch.randn(tier.B, heads, N, tier.D, dtype=dtype, device=self.device, generator=generator)
            for heads in (tier.H, tier.kv_heads, tier.kv_heads)
        )

    def build(self, name):
        return kernels.build(name, self.point, self.device)

    def compiles(self, name):
        """Whether the first call of a kernel compiles it."""
        return name in kernels.COMPILED

    def learn_what_is_right(self):
        self.check = Check(*self.inputs(CHECK_SEED), self.case.visibility)

    def fault(self, name, result):
        """`wrong: ...` if a kernel's result is, else None."""
        return self.check.fault(result, name in kernels.ROUNDS_SCORES)

    def flops(self, name):
        return peaks.visible_flops(self.case)

    def least_ms(self, name):
        return peaks.least_ms(self.case, self.gpu)

    def filled(self, row, name, arm, timings):
        """The row with what was measured."""
        summary, peak = timings[name].summary(), peaks.peak(self.gpu)
        tflops = self.flops(name) / (summary["median_ms"] * 1e-3) / 1e12
        return replace(
            row,
            **summary,
            **self.ratios(name, timings),
            host_ms=arm.host_ms,
            tflops=tflops,
            fraction_of_peak=tflops / peak.of(self.point.dtype) if peak else None,
            peak_mib=None if arm.peak_bytes is None else arm.peak_bytes / 2**20,
        )

    # ----------------------------------------------------------------------------------------------------------------

    def inputs(self, seed):
        """q, k, v of that seed; all arms of a round share them."""
        if seed != self.seed:
            self.tensors = None
            self.tensors = self.draw(torch.Generator(self.device).manual_seed(seed))
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
                self.empty_cache()
            except Exception:
                self.say(event="dying", kernel=name, reason=str(failed))
                os._exit(1)
            raise failed from None

    def synchronise(self):
        if self.device == "cuda":
            torch.cuda.synchronize()

    def empty_cache(self):
        if self.device == "cuda":
            torch.cuda.empty_cache()

    def ready(self, name):
        """The kernel built, called once, compared with what is right, and warmed up: an Arm; raises Failed."""
        with self.step(name), warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            arm = Arm(self, name, self.build(name))
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
        if fault := self.fault(arm.name, o):
            raise Failed("failed", fault)
        del o
        arm.slow = ms > SURELY_SLOW_MS and not self.compiles(arm.name)
        if not arm.slow:  # the first call compiled or loaded code: neither its time nor its memory are the kernel's
            _, ms = self.measure_once(arm, call)
            arm.slow = ms > SLOW_MS
        arm.ms = ms

    def measure_once(self, arm, call):
        """(o, ms) of one call, from which the arm also learns its memory and the host's time."""
        kept = []

        def keep():
            started = time.perf_counter()
            o = call()
            arm.host_ms = (time.perf_counter() - started) * 1e3
            self.synchronise()
            kept[:] = o, (time.perf_counter() - started) * 1e3

        if self.device == "cuda":
            arm.peak_bytes = self.stopwatch.peak(keep)
        else:
            keep()
        return kept

    def run(self, names, companions, budget):
        """Measure `names`, their rows reported as they are known; companions are timed for the ratios alone."""
        started = time.perf_counter()
        self.learn_what_is_right()
        arms = self.all_ready(names, names)
        arms |= self.all_ready(companions, names) if arms else {}
        self.check = None
        quick, slow = (
            {
                name: arm
                for name, arm in arms.items()
                if arm.slow == slow or (slow and name in (self.anchor, *self.bases))
            }
            for slow in (False, True)
        )
        plan = timing.Plan(target=TARGET, budget_s=budget, min_rounds=MIN_ROUNDS, seed=TIMING_SEED)
        self.take_turns(quick, quick, names, plan)
        plan = replace(plan, budget_s=math.inf, max_rounds=SLOW_ROUNDS)
        self.take_turns(slow, [name for name in slow if slow[name].slow], names, plan)
        self.say(event="done", seconds=time.perf_counter() - started)

    def all_ready(self, asked, names):
        """{name: Arm} of those asked that are ready; the others have a row that says why, if they are in `names`."""
        arms = {}
        for name in asked:
            try:
                arms[name] = self.ready(name)
            except Failed as failed:
                self.report(name, names, table.not_measured(self.point.row(name), failed.status, str(failed)))
        return arms

    def take_turns(self, arms, reported, names, plan):
        """Let `arms` take turns, and report the rows of those in `reported`."""
        if not reported:
            return
        against = self.anchor if self.anchor in arms else min(arms, key=lambda name: arms[name].ms)
        timings = timing.take_turns(arms, replace(plan, against=against))
        for name in reported:
            self.report(name, names, self.row(name, arms[name], timings))

    def row(self, name, arm, timings):
        row, timed = self.point.row(name), timings[name]
        if timed.failure is not None:
            return table.not_measured(row, "oom" if timed.oom else "failed", str(timed.failure))
        ms, least = timed.summary()["median_ms"], self.least_ms(name)
        if least is not None and ms < least:
            reason = f"{ms:.4g} ms is faster than this GPU can be ({least:.4g} ms): not believed"
            return table.not_measured(row, "failed", reason)
        return self.filled(row, name, arm, timings)

    def ratios(self, name, timings):
        """The columns speedup* and ours*; blank where there is nothing to compare with."""
        found = {}
        base = next((b for b in self.bases if measured(timings, b)), None)
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
        for name in filter(self.compiles, names):
            with contextlib.suppress(Failed), self.step(name):
                built = self.build(name)
                with built.around():
                    built.call(*self.inputs(CHECK_SEED))
        self.say(event="done")


def measured(timings, name):
    return name in timings and timings[name].failure is None


def out_of_memory(error):
    words = str(error)
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(w in words for w in CPU_OUT_OF_MEMORY)


def in_a_sentence(error):
    """`RuntimeError: the first line of what it said`."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["(without words)"]
    if out_of_memory(error):
        lines[0] = lines[0].split(" GPU 0 has")[0]  # what else it says differs from run to run
    return f"{type(error).__name__}: {lines[0][:300]}"
