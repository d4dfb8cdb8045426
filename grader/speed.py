"""Is a submission fast? It takes turns with naive PyTorch attention and the reference, each in its own process."""

from dataclasses import replace
from pathlib import Path

import torch

from grader import honesty, machine, peaks, timing
from grader.assignment import SECONDS_PER_CASE, SPEED_BARS
from grader.result import Outcome
from grader.sandbox import Child, ChildFailed
from grader.timing import ArmFailed, Plan

PLAN = Plan(target=0.02, budget_s=2.0, min_rounds=6, max_rounds=40, samples=5, against="yours")
BIG_GPU = 40 << 30  # bytes; below it the naive matrix of batch 4 does not fit

HERE = Path(__file__).parent
SOLUTIONS = HERE.parent / "solutions"


def judge(problem, path, seed):
    """(outcome, sentence, facts) for the speed of the submission at `path`.

    facts: of each arm its milliseconds, peak bytes and the milliseconds that its launch takes on the host; the ratios
    with their intervals; the fraction of the GPU's peak where that is known; the machine, its clocks, the versions.
    """
    case = problem.speed_case
    if torch.cuda.get_device_properties(0).total_memory < BIG_GPU:
        case = replace(case, B=1)
    modules = {"yours": (path, problem.entry_point), "naive PyTorch": (HERE / "naive.py", "naive_attention")}
    if (SOLUTIONS / problem.module).is_file():
        modules["reference"] = (SOLUTIONS / problem.module, problem.entry_point)
    arms = {name: ChildArm(name, module, entry_point, case) for name, (module, entry_point) in modules.items()}
    before = machine.clocks()
    try:
        timings = timing.take_turns(arms, replace(PLAN, seed=seed))
        if any(straddles(timing.ratio(timings, "yours", name), bar) for name, bar in SPEED_BARS.items()):
            timings = timing.take_turns(arms, replace(PLAN, seed=seed), timings)
    finally:
        for arm in arms.values():
            arm.close()
    if timings["yours"].failure:
        return Outcome.CRASHED, f"While it was timed: {timings['yours'].failure}", {}
    if evidence := honesty.of_timing(arms["yours"]):
        return honesty.held(evidence)
    facts = {
        "shape": case.describe(seed),
        "arms": {n: t.summary() | arms[n].facts for n, t in timings.items() if t.samples},
        "failures": {name: t.failure for name, t in timings.items() if t.failure},
        "oom": [name for name, t in timings.items() if t.oom],
        "times_as_fast": {n: timing.ratio(timings, "yours", n) for n in SPEED_BARS if n in timings},
        "least_ms": peaks.least_ms(case, machine.facts()["gpu"]),
        "flops": peaks.visible_flops(case),
        "dtype": case.dtype,
        "machine": machine.facts() | {"clocks": {"before": before, "after": machine.clocks()}},
    }
    return *verdict(facts), facts


class ChildArm:
    """One module in a process of its own, as an arm of `timing.take_turns`; started when it is first needed."""

    def __init__(self, name, module, entry_point, case):
        self.name, self.module, self.entry_point, self.case = name, module, entry_point, case
        self.child, self.facts, self.stale, self.replaced = None, {}, False, []

    def warm_up(self, seed):
        if self.child is None:
            reply = self.ask(seed, samples=0, warm_up=True)
            self.facts = {"peak_bytes": reply["peak_bytes"], "host_ms": reply["host_ms"]}

    def round(self, seed, samples):
        return self.ask(seed, samples, warm_up=False)["ms"]

    def ask(self, seed, samples, warm_up):
        case, limit = self.case, SECONDS_PER_CASE["cuda"]
        shapes = [(case.B, h, case.N, case.D) for h in (case.Hq, case.kv_heads, case.kv_heads)]
        try:
            if self.child is None:
                self.child = Child(self.module, self.entry_point, case.arguments, "cuda", limit)
            reply = self.child.loading or self.child.call(
                {
                    "op": "time", "shapes": shapes, "dtype": case.dtype, "arguments": case.arguments, "seed": seed,
                    "samples": samples, "warm_up": warm_up,
                },
                limit,
            )  # fmt: skip
        except ChildFailed as failure:
            if self.name == "yours":  # its end is the student's and goes to the caller; that of ours is noted
                raise
            raise ArmFailed(str(failure)) from None
        if reply["status"] == "raised":
            text = (reply["text"].splitlines() or [""])[0][:200]
            oom = reply["exception"] == "OutOfMemoryError"
            # Ours failed where no line of theirs was under way; but a GPU that is lost was lost by their kernel before.
            if reply["line"] is None and not reply.get("broken") and self.name == "yours":
                raise RuntimeError(f"while a submission was timed: {reply['exception']}: {text}")
            raise ArmFailed(f"{reply['exception']}: {text}", oom)
        self.stale |= reply.get("stale", False)
        self.replaced = self.replaced or reply.get("replaced") or []
        return reply

    def close(self):
        if self.child:
            self.child.close()


def straddles(ratio, bar):
    return ratio is not None and ratio.low < bar < ratio.high


def verdict(facts):
    """(outcome, sentence); a bar is compared with the end of the interval that favours the student.

    A bar whose arm could not be timed is no bar. `share` of facts is set to the part of the points that is earned.
    """
    yours, least = facts["arms"]["yours"], facts["least_ms"]
    if least and yours["median_ms"] < least:
        facts["earned"] = False
        return Outcome.NOT_RUN, (
            f"not believed: {yours['median_ms']:.3f} ms, where this GPU needs {least:.3f} ms at its peak to move the "
            "bytes and do the FLOPs. Is the work done outside of the timed call, or not at all?"
        )
    below = [n for n, bar in SPEED_BARS.items() if (r := facts["times_as_fast"].get(n)) and r.high < bar]
    facts["share"] = 1 - len(below) / len(SPEED_BARS)
    text = in_words(facts)
    if below:
        bars = " and ".join(f"{SPEED_BARS[name]:g} x {name}" for name in below)
        return Outcome.SLOW, f"Right but slow: {text}. The bar that it misses is {bars}."
    return Outcome.PASSED, text


def in_words(facts):
    """`0.660 ms (p20 0.654, p80 0.685), 42 % of the GPU's peak, peak memory 64 MiB; 40.4 x naive PyTorch (...)`"""
    yours, peak = facts["arms"]["yours"], peaks.peak(facts["machine"]["gpu"])
    text = f"{yours['median_ms']:.3f} ms (p20 {yours['p20_ms']:.3f}, p80 {yours['p80_ms']:.3f}), "
    if peak:
        fraction = facts["flops"] / yours["median_ms"] / 1e9 / peak.of(facts["dtype"])
        text += f"{fraction:.0%} of this GPU's peak, "
    text += f"peak memory {mebibytes(yours)}"
    for name, ratio in facts["times_as_fast"].items():
        if ratio:
            arm = facts["arms"][name]
            text += (
                f"; {ratio.median:.2f} x as fast as {name} ({ratio.low:.2f} to {ratio.high:.2f}; "
                f"{arm['median_ms']:.3f} ms, {mebibytes(arm)})"
            )
    for name, why in facts["failures"].items():
        text += f"; {name} " + ("ran out of memory (oom)" if name in facts["oom"] else f"could not be timed ({why})")
    return text


def mebibytes(arm):
    return f"{arm['peak_bytes'] / 2**20:.0f} MiB" if arm["peak_bytes"] else "not known"
