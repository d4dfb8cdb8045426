"""From P4 to the fast form, one idea at a time: STEPS.md out of steps.csv and the sweep. No torch.

The rows of steps.csv are medians of single runs in which all forms and cuDNN took turns; a ratio is within its run.
"""

import csv

from report.pages import measured
from report.pages.tables import table
from report.pages.template import render
from report.places import PUBLISHED

PAGE = "STEPS.md"
LONG = "B=4 H=16 D=128 N=16384"


def files(folder=PUBLISHED):
    """{path: text} of the page; raises BadTable or OSError."""
    with open(folder / "steps.csv", newline="") as file:
        known = {(r["run"], r["shape"], r["mask"], r["form"]): r for r in csv.DictReader(file)}
    return {PAGE: page(known, measured.load(folder).rows)}


def page(known, sweep):
    swept = {(r.kernel, r.tier, r.q_len, r.causal, r.window, r.sinks, r.dtype): r for r in sweep}

    def us(run, shape, mask, form):
        return float(known[run, shape, mask, form]["median_us"])

    def to_cudnn(run, form):
        found = [known[run, LONG, mask, form] for mask in ("causal", "full")]
        return [float(r["cudnn_us"]) / float(r["median_us"]) for r in found]

    def in_sweep(kernels):
        tier = "B=4 H=16 D=128"
        return [
            swept["SDPA cuDNN", tier, 16384, causal, None, None, "float16"].ours  # paired, as in BENCHMARKS.md
            / swept[kernel, tier, 16384, causal, None, None, "float16"].ours
            for kernel, causal in zip(kernels, (True, False), strict=True)
        ]

    ladder = {
        "P4 and P3: pointers": in_sweep(("P4", "P3")),
        "tensor descriptors, two programs on a multiprocessor": to_cudnn("A", "descriptors"),
        "a producer, one consumer, products under the softmax": to_cudnn("B", "one consumer"),
        "two consumers that share tiles, in step": to_cudnn("B", "two consumers in step"),
        "two consumers that share tiles, each at its own pace": to_cudnn("B", "two consumers"),
        "the same in the sweep": in_sweep(("fast", "fast")),
    }
    short, long, gqa = "B=8 H=12 D=64 N=512", "B=8 H=12 D=64 N=16384", "B=1 H=32/8 D=128 N=16384"
    with_sinks, without = (
        swept["fast", f"B=1 H=32/8 D=128 window=1024 sinks={n}", 16384, True, 1024, n, "float16"].median_ms
        for n in (4, 0)
    )
    return render(
        PAGE,
        ladder=table(
            ["B=4 H=16 N=16384 D=128", "causal", "full"],
            [[form, *(f"{speed:.2f}" for speed in speeds)] for form, speeds in ladder.items()],
        ),
        three=us("B", long, "causal", "two consumers") / us("B", long, "causal", "three consumers"),
        one=us("B", short, "causal", "one consumer"),
        two=us("B", short, "causal", "two consumers"),
        many=us("B", short, "causal", "three consumers"),
        cudnn=float(known["B", short, "causal", "one consumer"]["cudnn_us"]),
        pack128=us("C", gqa, "window 128", "heads apart") / us("C", gqa, "window 128", "heads packed"),
        pack1024=us("C", gqa, "window 1024", "heads apart") / us("C", gqa, "window 1024", "heads packed"),
        sinks_first=100 * (us("D", gqa, "window 1024", "4 sinks first") / us("D", gqa, "window 1024", "no sinks") - 1),
        sinks_now=100 * (with_sinks / without - 1),
    )
