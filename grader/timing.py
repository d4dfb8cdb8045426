"""Paired timing on a GPU: each arm in a process of its own, taking turns, so that drift touches all alike."""

from dataclasses import replace
from pathlib import Path
from statistics import median, quantiles

import torch

from grader.assignment import SECONDS_PER_CASE, SPEED_BAR
from grader.result import Outcome
from grader.sandbox import Child, ChildFailed

ROUNDS = 8
SAMPLES = 5  # calls of one arm in a round
WARM_UP = 5  # calls before the first round; the first of them compiles
BIG_GPU = 40 << 30  # bytes; below it the naive matrix of batch 4 does not fit

HERE = Path(__file__).parent
SOLUTIONS = HERE.parent / "solutions"


class ArmFailed(Exception):
    """An arm could not be timed; the text says why."""


def judge(problem, path, seed):
    """(outcome, sentence, facts) for the speed of the submission at `path`.

    Compared in one run with the naive PyTorch attention and with the reference solution. facts: milliseconds (median,
    p20, p80) and peak bytes of each arm, ratios of paired medians, the machine and the versions.
    """
    case = problem.speed_case
    if torch.cuda.get_device_properties(0).total_memory < BIG_GPU:
        case = replace(case, B=1)
    modules = {"yours": (path, problem.entry_point), "naive PyTorch": (HERE / "naive.py", "naive_attention")}
    if (SOLUTIONS / problem.module).is_file():
        modules["reference"] = (SOLUTIONS / problem.module, problem.entry_point)
    rounds, peaks, failures = run_arms(modules, case, seed)
    if "yours" in failures:
        return Outcome.CRASHED, f"While it was timed: {failures['yours']}", {}
    facts = {
        "shape": case.describe(seed),
        "arms": {name: summary(times, peaks[name]) for name, times in rounds.items()},
        "failures": failures,
        "times_faster": {name: speed_up(rounds, name) for name in rounds if name != "yours"},
        "machine": machine(),
    }
    return *verdict(facts), facts


def run_arms(modules, case, seed):
    """Rounds of samples, arm after arm: ({arm: [ms of a round]}, {arm: peak bytes}, {arm: why it failed})."""
    children, rounds, peaks, failures = {}, {}, {}, {}
    shapes = [(case.B, h, case.N, case.D) for h in (case.Hq, case.kv_heads, case.kv_heads)]
    request = {"op": "time", "shapes": shapes, "dtype": case.dtype, "arguments": case.arguments, "samples": SAMPLES}
    limit = SECONDS_PER_CASE["cuda"]
    try:
        for name, (module, entry_point) in modules.items():
            try:
                children[name] = Child(module, entry_point, case.arguments, "cuda", limit)
            except ChildFailed as failure:
                note_failure(failures, name, failure)
                continue
            rounds[name], peaks[name] = [], 0
        for turn in range(ROUNDS):
            for name in list(rounds):
                warm_up = WARM_UP if turn == 0 else 1
                try:
                    reply = children[name].call({**request, "warm_up": warm_up, "seed": seed + turn}, limit)
                except ChildFailed as failure:
                    note_failure(failures, name, failure)
                    del rounds[name]
                    continue
                if reply["status"] == "raised":
                    failures[name] = f"{reply['exception']}: {reply['text'].splitlines()[0][:200]}"
                    del rounds[name]
                    continue
                rounds[name].append(reply["ms"])
                peaks[name] = max(peaks[name], reply["peak_bytes"])
    finally:
        for child in children.values():
            child.close()
    if "reference" in failures:
        raise ArmFailed(f"the reference solution could not be timed: {failures['reference']}")
    return rounds, peaks, failures


def note_failure(failures, name, failure):
    """An arm of ours that dies is noted; only the submission's own end is the student's, and goes to the caller."""
    if name == "yours":
        raise failure
    failures[name] = str(failure)


def summary(rounds, peak):
    times = [ms for samples in rounds for ms in samples]
    fifths = quantiles(times, n=5)
    return {
        "median_ms": median(times), "p20_ms": fifths[0], "p80_ms": fifths[3],
        "samples": len(times), "peak_bytes": peak,
    }  # fmt: skip


def speed_up(rounds, other):
    """How many times faster than `other`: median, p20 and p80 of the ratios of each round's medians."""
    pairs = zip(rounds[other], rounds["yours"], strict=True)
    ratios = sorted(median(theirs) / median(yours) for theirs, yours in pairs)
    fifths = quantiles(ratios, n=5)
    return {"median": median(ratios), "p20": fifths[0], "p80": fifths[3]}


def verdict(facts):
    """(outcome, sentence) from the ratios; the bar is compared with the end of the spread that favours the student."""
    yours = facts["arms"]["yours"]
    text = (
        f"{yours['median_ms']:.3f} ms (p20 {yours['p20_ms']:.3f}, p80 {yours['p80_ms']:.3f}), "
        f"peak {yours['peak_bytes'] / 2**20:.0f} MiB"
    )
    for name, ratio in facts["times_faster"].items():
        arm = facts["arms"][name]
        text += (
            f"; {ratio['median']:.2f} x as fast as {name} ({arm['median_ms']:.3f} ms, "
            f"peak {arm['peak_bytes'] / 2**20:.0f} MiB)"
        )
    for name, why in facts["failures"].items():
        text += f"; {name} could not be timed ({why})"
    naive = facts["times_faster"].get("naive PyTorch")
    if naive and naive["p80"] < SPEED_BAR:
        return Outcome.SLOW, f"Right but slow: {text}. The bar is {SPEED_BAR:g} x naive PyTorch."
    return Outcome.PASSED, text


def machine():
    import triton

    return {
        "gpu": torch.cuda.get_device_name(0),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "cuda": torch.version.cuda,
    }
