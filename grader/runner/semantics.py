"""In the runner, interpreted: Triton's interpreter patched to compute what compiled Triton computes, and tried.

The patches lie in modules of their own. Two small kernels run at start-up: in a triton where a patch does not take
hold, or which cannot be watched, the grader says so instead of judging; it is never a wrong verdict.
"""

import time
import warnings
from trace import Trace

import bfloat16
import blocks
import speedups
import torch
import triton
import triton.language as tl
from allocations import Allocations
from patches import ADVICE, Incompatible

ROWS, KEYS, D = 32, 24, 16  # two programs; two tiles of keys, the second of them cut short


def enable(fast=True):
    """Put the patches in place; raises Incompatible, with a sentence, where they do not fit this triton."""
    for module in (speedups, bfloat16, blocks) if fast else (bfloat16, blocks):
        module.enable()
    check_results()


@triton.jit
def results_kernel(X, O):
    """Writes [x + x / 256 + x / 256, the same summed in a tree, max(x, 2), x where 0 < x and not x > 3] for each x."""
    i = tl.arange(0, 4)
    x = tl.load(X + i)
    small = tl.load(X + 4 + i)
    tl.store(O + i, x + small + small)
    tl.store(O + 4 + i, tl.sum(tl.join(x, small), 1))
    tl.store(O + 8 + i, max(x, 2.0))
    tl.store(O + 12 + i, tl.where((x > 0.0) and not (x > 3.0), x, 0.0))


def check_results():
    """Raise Incompatible where one of the patches does not take hold."""
    x = torch.tensor([1.0, -1.0, 3.0, 5.0], dtype=torch.bfloat16)
    small, nothing = x / 256, torch.zeros_like(x)
    out = torch.empty(16, dtype=torch.bfloat16)
    wanted = {
        "sums of bfloat16": x + small + small,
        "tl.sum of bfloat16": x + small,
        "max of blocks": x.clamp(min=2.0),
        "`and` and `not` of blocks": torch.where((x > 0) & (x <= 3), x, nothing),
    }
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # triton would have `max` written as tl.maximum
            results_kernel[(1,)](torch.cat([x, small]), out)
    except Exception as error:
        raise Incompatible(f"A kernel fails in triton {triton.__version__}: {error}. {ADVICE}") from error
    pairs = zip(wanted.items(), out.view(4, 4), strict=True)
    wrong = [name for (name, want), got in pairs if not torch.equal(got, want)]
    if wrong:
        raise Incompatible(f"triton {triton.__version__}'s interpreter has its own {' and '.join(wrong)}. {ADVICE}")


# A kernel whose every count is known ----------------------------------------------------------------------------------


@triton.jit
def counts_kernel(Q, K, O, keys, BLOCK: tl.constexpr, D: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    d = tl.arange(0, D)
    q = tl.load(Q + rows[:, None] * D + d[None, :])
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, keys, BLOCK):
        k_rows = start + tl.arange(0, BLOCK)
        k = tl.load(K + k_rows[:, None] * D + d[None, :], mask=k_rows[:, None] < keys, other=0.0)
        scores = tl.dot(q, tl.trans(k))
        total += tl.sum(tl.where(k_rows[None, :] < keys, tl.exp2(scores), 0.0), 1)
    tl.store(O + rows, total)
    tl.load(Q + rows * D + D)  # the last row reads one element past the end


def time_trial():
    """Seconds that the trial kernel takes here when nothing disturbs it: the least of a few runs."""
    times = []
    for _ in range(4):
        started = time.perf_counter()
        check_tracing()
        times.append(time.perf_counter() - started)
    return min(times)


def check_tracing():
    """None where Triton's interpreter computes and is watched as the grader needs it, else a sentence."""
    q, k = torch.ones(1, 1, ROWS, D, dtype=torch.float16), torch.zeros(1, 1, KEYS, D, dtype=torch.float16)
    k[0, 0, 3] = 0.25
    about = f"triton {triton.__version__} is not one that the grader can watch"
    try:
        with Allocations() as watch, Trace({"q": q, "k": k, "v": k.clone()}, watch, __file__) as trace:
            o = torch.empty(ROWS)
            counts_kernel[(ROWS // 16,)](q, k, o, KEYS, 16, D)
    except Exception as error:
        return f"{about}: its trial kernel fails ({error})"
    report = trace.report()
    seen = {
        "the result": o.tolist(),
        "the counts": report["totals"].get("counts_kernel"),
        "the tiles visited": [(record["q"], record["tiles"]) for record in report["visits"] if record["tiles"]],
        "the lanes outside": [(fault["kind"], fault["argument"], fault["lanes"]) for fault in report["faults"]],
    }
    wanted = {
        "the result": [KEYS - 1 + 2.0 ** (0.25 * D)] * ROWS,
        "the counts": {
            "launches": 1, "programs": 2,
            "loaded": {"Q": 2 * (ROWS * D + ROWS - 1), "K": 2 * 2 * KEYS * D}, "stored": {"O": 4 * ROWS},
            "loads": {"Q": 4, "K": 4}, "stores": {"O": 2},
            "dot_flops": 2 * 2 * 2 * 16 * 16 * D, "exponentials": 2 * 2 * 16 * 16,
        },
        "the tiles visited": [([start, start + 15], [[0, 15], [16, KEYS - 1]]) for start in (0, 16)],
        "the lanes outside": [("out-of-bounds load", "Q", 1)],
    }  # fmt: skip
    for what, value in wanted.items():
        if seen[what] != value:
            return (
                f"{about}: {what} of its trial kernel should be {value} and came out as {seen[what]}; "
                "docs/instructors.md names the versions that were tried"
            )
    return None
