"""In the runner, interpreted: a trial at start-up. A Triton that cannot be watched is named, and judges nobody."""

import time

import torch
import triton
import triton.language as tl

from grader.core.protocol.reports import KernelCosts
from grader.core.run.allocations import Allocations
from grader.core.run.trace import Trace

ROWS, COLUMNS, DEPTH = 32, 24, 16  # two programs; two tiles of columns, the second of them cut short


@triton.jit
def counts_kernel(A, B, O, columns, BLOCK: tl.constexpr, DEPTH: tl.constexpr):  # type: ignore[no-untyped-def]
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    d = tl.arange(0, DEPTH)
    a = tl.load(A + rows[:, None] * DEPTH + d[None, :])
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, columns, BLOCK):
        here = start + tl.arange(0, BLOCK)
        b = tl.load(B + here[:, None] * DEPTH + d[None, :], mask=here[:, None] < columns, other=0.0)
        products = tl.dot(a, tl.trans(b))
        total += tl.sum(tl.where(here[None, :] < columns, tl.exp2(products), 0.0), 1)
    tl.store(O + rows, total)
    tl.load(A + rows * DEPTH + DEPTH)  # the last row reads one element past the end


def time_trial() -> float:
    """Seconds that the trial kernel takes here when nothing disturbs it: the least of a few runs."""
    times = []
    for _ in range(4):
        started = time.perf_counter()
        check_tracing()
        times.append(time.perf_counter() - started)
    return min(times)


def check_tracing() -> str | None:
    """None where Triton's interpreter computes and is watched as the grader needs it, else a sentence."""
    a, b = torch.ones(ROWS, DEPTH, dtype=torch.float16), torch.zeros(COLUMNS, DEPTH, dtype=torch.float16)
    b[3] = 0.25
    about = f"triton {triton.__version__} is not one that the grader can watch"
    try:
        with Allocations() as allocations, Trace({"a": a, "b": b}, allocations, __file__) as trace:
            o = torch.empty(ROWS)
            counts_kernel[(ROWS // 16,)](a, b, o, COLUMNS, 16, DEPTH)
    except Exception as error:
        return f"{about}: its trial kernel fails ({error})"
    report = trace.report()
    seen = {
        "the result": o.tolist(),
        "the counts": report.kernels.get("counts_kernel"),
        "the first addresses": [(table.argument, len(table.programs)) for table in report.addresses],
        "the lanes outside": [(fault.kind, fault.argument, fault.lanes) for fault in report.faults],
    }
    wanted = {
        "the result": [COLUMNS - 1 + 2.0 ** (0.25 * DEPTH)] * ROWS,
        "the counts": KernelCosts(
            loaded={"A": 2 * (ROWS * DEPTH + ROWS - 1), "B": 2 * 2 * COLUMNS * DEPTH}, stored={"O": 4 * ROWS},
            loads={"A": 4, "B": 4}, stores={"O": 2}, launches=1, programs=2, dot_flops=2 * 2 * 2 * 16 * 16 * DEPTH,
            exponentials=2 * 2 * 16 * 16,
        ),
        "the first addresses": [("A", 2), ("B", 2), ("O", 2)],
        "the lanes outside": [("out-of-bounds load", "A", 1)],
    }  # fmt: skip
    for what, value in wanted.items():
        if seen[what] != value:
            return (
                f"{about}: {what} of its trial kernel should be {value} and came out as {seen[what]}; "
                "docs/instructors.md names the versions that were tried"
            )
    return None
