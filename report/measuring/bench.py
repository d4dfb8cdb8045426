"""All arms of one point: made ready, found right, timed in turns, and put into rows.

Correct first: an arm's result is compared with what is right before it is timed. Before each step of an arm the
process says which arm is in hand: if it dies, the study knows whose row that is.
"""

import contextlib
import copy
import math
import os
import time
import warnings
from dataclasses import asdict, replace

import torch
from msgspec import structs

from grader.gpu import peaks, timing
from report.measuring.arms import NotRun
from report.measuring.rows import interval, not_measured
from report.places import NotThere

SLOW_MS = 300.0  # a call that takes longer is warmed up once and sampled in SLOW_ROUNDS rounds
SURELY_SLOW_MS = 2000.0  # of a first call, where nothing is compiled: one such call is enough
SLOW_ROUNDS = 2
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


class Failed(Exception):
    """An arm that has no time at this point. status: as in rows.STATUSES; the text is the reason."""

    def __init__(self, status, reason):
        super().__init__(reason)
        self.status = status


class Arm:
    """An arm that was found right, as timing.take_turns wants it: it warms up, and takes its round."""

    def __init__(self, bench, name, built):
        self.bench, self.name, self.built = bench, name, built
        self.stopwatch = copy.copy(bench.arms.stopwatch)  # it knows the launch overhead of one arm
        self.slow, self.ms, self.peak_bytes, self.host_ms = False, math.inf, None, None  # ms: of one call, roughly

    def warm_up(self, seed):
        """Warm up once; a slow arm has been called already, and is warm."""
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
        inputs = self.bench.inputs(seed)
        return lambda: self.built.call(*inputs)

    @contextlib.contextmanager
    def failing_as_arm(self):
        try:
            yield
        except Failed as failed:
            raise timing.ArmFailed(str(failed), oom=failed.status == "oom") from None


class Bench:
    """One point of a study: `arms` (an Arms) made ready and timed. say(**event) reports."""

    def __init__(self, study, point, arms, say):
        self.study, self.point, self.arms, self.device, self.say = study, point, arms, arms.device, say
        self.seed, self.tensors, self.checks = None, None, {}
        self.gpu = torch.cuda.get_device_name() if self.device == "cuda" else None

    def run(self, names, companions, budget):
        """Measure `names`, their rows reported as they are known; companions are timed for the ratios alone."""
        for name in (*names, *companions):
            self.say(event="doing", kernel=None)
            self.checks[name] = self.arms.check(name, *self.inputs(CHECK_SEED))
        arms = self.all_ready(names, names)
        arms |= self.all_ready(companions, names) if arms else {}
        self.checks.clear()
        self.arms.checks.clear()
        with_slow = {self.point.anchor, *self.study.bases(names)}
        quick = {name: arm for name, arm in arms.items() if not arm.slow}
        slow = {name: arm for name, arm in arms.items() if arm.slow or name in with_slow}
        plan = timing.Plan(target=TARGET, budget_s=budget, min_rounds=MIN_ROUNDS, seed=TIMING_SEED)
        self.take_turns(quick, quick, names, plan)
        plan = replace(plan, budget_s=math.inf, max_rounds=SLOW_ROUNDS)
        self.take_turns(slow, [name for name in slow if slow[name].slow], names, plan)

    def prepare(self, names):
        """Fill the caches of the compilers: each compiled arm once at the true shape, whatever becomes of it."""
        for name in filter(self.arms.compiles, names):
            with contextlib.suppress(Failed), self.step(name):
                built = self.arms.build(name)
                with built.around():
                    built.call(*self.inputs(CHECK_SEED))

    def inputs(self, seed):
        """The inputs of that seed; all arms of a round share them."""
        if seed != self.seed:
            self.tensors = None
            self.tensors = self.arms.draw(torch.Generator(self.device).manual_seed(seed))
            self.seed = seed
        return self.tensors

    @contextlib.contextmanager
    def step(self, name):
        """A step of an arm: whatever it raises is Failed; a GPU that it leaves unusable ends the process."""
        self.say(event="doing", kernel=name)
        try:
            yield
            self.synchronise()
        except Failed:
            raise
        except (NotRun, NotThere) as error:
            raise Failed("not run", str(error)) from None
        except Exception as error:
            failed = Failed("oom" if out_of_memory(error) else "failed", in_a_sentence(error))
            error.__traceback__ = None  # its frames hold tensors
            try:
                self.synchronise()
                if self.device == "cuda":
                    torch.cuda.empty_cache()
            except Exception:
                self.say(event="dying", kernel=name, reason=str(failed))
                os._exit(1)
            raise failed from None

    def synchronise(self):
        if self.device == "cuda":
            torch.cuda.synchronize()

    # Ready and right --------------------------------------------------------------------------------------------------

    def all_ready(self, asked, names):
        """{name: Arm} of those asked that are ready; the others have a row that says why, if they are in `names`."""
        arms = {}
        for name in asked:
            try:
                arms[name] = self.ready(name)
            except Failed as failed:
                self.report(name, names, not_measured(self.blank(name), failed.status, str(failed)))
        return arms

    def ready(self, name):
        """The arm built, called once, compared with what is right, and warmed up; raises Failed."""
        with self.step(name), warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            arm = Arm(self, name, self.arms.build(name))
            with arm.built.around():
                self.first_calls(arm, warned)
        return arm

    def first_calls(self, arm, warned):
        call = arm.bound(CHECK_SEED)
        try:
            result, ms = self.measure_once(arm, call)
        except RuntimeError as error:  # SDPA says "no available kernel", and the reasons in warnings
            if "No available kernel" not in str(error):
                raise
            why = [str(w.message).split(" (Triggered internally")[0] for w in warned]
            raise Failed("failed", " ".join([str(error), *dict.fromkeys(why)])[:300]) from None
        if fault := self.checks[arm.name](result):
            raise Failed("failed", fault)
        del result
        arm.slow = ms > SURELY_SLOW_MS and not self.arms.compiles(arm.name)
        if not arm.slow:  # the first call compiled or loaded code: neither its time nor its memory are the kernel's
            _, ms = self.measure_once(arm, call)
            arm.slow = ms > SLOW_MS
        arm.ms = ms

    def measure_once(self, arm, call):
        """(result, ms) of one call, from which the arm also learns its memory and the host's time."""
        kept = []

        def keep():
            started = time.perf_counter()
            result = call()
            arm.host_ms = (time.perf_counter() - started) * 1e3
            self.synchronise()
            kept[:] = result, (time.perf_counter() - started) * 1e3

        if self.device == "cuda":
            arm.peak_bytes = self.arms.stopwatch.peak(keep)
        else:
            keep()
        return kept

    # Turns and rows ---------------------------------------------------------------------------------------------------

    def take_turns(self, arms, reported, names, plan):
        """Let `arms` take turns, and report the rows of those in `reported`."""
        if not reported:
            return
        against = self.point.anchor if self.point.anchor in arms else min(arms, key=lambda name: arms[name].ms)
        timings = timing.take_turns(arms, replace(plan, against=against))
        for name in reported:
            self.report(name, names, self.measured(name, arms[name], timings))

    def blank(self, name):
        """Whether it is measured or not, a row has what is known of it."""
        return replace(self.study.blank(self.point, name), **self.arms.facts(name))

    def measured(self, name, arm, timings):
        """The row of an arm that took its turns."""
        row, timed, work = self.blank(name), timings[name], self.arms.work(name)
        if timed.failure is not None:
            return not_measured(row, "oom" if timed.oom else "failed", str(timed.failure))
        found = structs.asdict(timed.summary())
        ms, least = found["median_ms"], None if work is None else peaks.least_ms(work, self.gpu)
        if least is not None and ms < least:
            reason = f"{ms:.4g} ms is faster than this GPU can be ({least:.4g} ms): not believed"
            return not_measured(row, "failed", reason)
        found |= {f"{key[:-3]}_us": value * 1e3 for key, value in found.items() if value and key.endswith("_ms")}
        found |= self.ratios(name, timings) | {"host_ms": arm.host_ms}
        if work is not None:
            tflops, peak = work.flops / ms / 1e9, peaks.peak(self.gpu)
            found |= {"tflops": tflops, "fraction_of_peak": tflops / peak.of(work.dtype) if peak else None}
        if arm.peak_bytes is not None:
            found["peak_mib"] = arm.peak_bytes / 2**20
        return replace(row, **{column: found[column] for column in row.measured if column in found})

    def ratios(self, name, timings):
        """{column: value} of the study's ratios; blank where there is nothing to compare with."""
        done, found = {arm for arm, timed in timings.items() if timed.failure is None}, {}
        for over in self.study.ratios:
            other = next((other for other in over.others(name) if other in done), None)
            if other is None:
                continue
            pair = (other, name) if over.inverse else (name, other)
            if ends := (1.0, 1.0, 1.0) if other == name else timing.ratio(timings, *pair):
                found |= zip(interval(over.column), ends, strict=True)
        return found

    def report(self, name, names, row):
        if name in names:
            self.say(event="row", row=asdict(row))


def out_of_memory(error):
    words = str(error)
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(w in words for w in CPU_OUT_OF_MEMORY)


def in_a_sentence(error):
    """`RuntimeError: the first line of what it said`."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["(without words)"]
    if out_of_memory(error):
        lines[0] = lines[0].split(" GPU 0 has")[0]  # what else it says differs from run to run
    return f"{type(error).__name__}: {lines[0][:300]}"
