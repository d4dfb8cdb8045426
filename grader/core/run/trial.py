"""In the runner, interpreted: a trial at start-up. A Triton that cannot be watched is named, and judges nobody."""

import time

import torch
import triton
import triton.language as tl

from grader.core.run.allocations import Allocations
from grader.core.run.trace import Trace

ROWS, KEYS, D = 32, 24, 16  # two programs; two tiles of keys, the second of them cut short


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
