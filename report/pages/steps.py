"""From P4 to the fast form, one idea at a time: STEPS.md out of steps.csv and the sweep. No torch.

The rows of steps.csv are medians of single runs in which all forms and cuDNN took turns; a ratio is within its run.
Those of ideas.csv compare a form with an idea and without it, those of flash_attention_4.csv two of ours with a peer's,
again in one run: medians of paired ratios and their 95 % bootstrap intervals over the rounds. block_sparse_pivot.csv is
the study of that name with two kernels alone.
"""

import csv
from statistics import geometric_mean

from report.pages import measured
from report.pages.tables import table
from report.pages.template import render
from report.places import PUBLISHED

PAGE = "STEPS.md"
LONG = "B=4 H=16 D=128 N=16384"
WHOLE = "all of it"  # the form before against the form after
TURNS = ("ABCDEF", "GHIJKLMNO")  # runs: to many tiles a program, to a pivot that stays
AWAITED = ("B=4 H=16 D=128 N=4096", "causal")  # measured beside FlashAttention-4 in another form than the committed
GOAL = 1.5  # times FlexAttention


def files(folder=PUBLISHED):
    """{path: text} of the page; raises BadTable or OSError."""
    known = {(r["run"], r["shape"], r["mask"], r["form"]): r for r in read(folder / "steps.csv")}
    ideas = read(folder / "ideas.csv")
    facts = {
        name: made([row for row in ideas if row["run"] in runs])
        for runs, names in zip(TURNS, (("one_by_one", "together"), ("pivot_ideas", "pivot_together")), strict=True)
        for name, made in zip(names, (one_by_one, together), strict=True)
    }
    facts |= beside(read(folder / "flash_attention_4.csv"))
    facts |= over_flex(read(folder / "block_sparse_pivot.csv"), read(folder / "block_sparse.csv"))
    (awaited,) = (
        float(row["speed"])
        for row in ideas
        if (row["idea"], row["shape"], row["mask"]) == ("tiles awaited before the softmax", *AWAITED)
    )
    facts["awaited"] = 100 * (awaited - 1)
    facts["rounds"] = f"{min(int(r['rounds']) for r in ideas)} to {max(int(r['rounds']) for r in ideas)}"
    return {PAGE: page(known, measured.load(folder).rows, facts)}


def read(path):
    """A list of rows, each a dict of words."""
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def interval(row, name):
    """`1.05 (1.04 to 1.06)`, or blank where it was not measured."""
    if not row[name]:
        return ""
    return f"{float(row[name]):.2f} ({float(row[f'{name}_low']):.2f} to {float(row[f'{name}_high']):.2f})"


def one_by_one(ideas):
    """A line for each idea and shape."""
    rows = [[r["idea"], r["shape"], r["mask"], interval(r, "speed")] for r in ideas if r["idea"] != WHOLE]
    return table(["idea", "shape", "mask", "with it, over without"], rows, left=3)


def together(ideas):
    """A line for each shape: the form before all of them and after."""
    rows = [
        [r["shape"], r["mask"], r["without_us"], r["with_us"], interval(r, "speed"), interval(r, "over_cudnn")]
        for r in ideas
        if r["idea"] == WHOLE
    ]
    return table(["shape", "mask", "before, us", "after, us", "after over before", "after over cuDNN"], rows, left=2)


def beside(peer):
    """Facts: a line for each shape, both forms beside FlashAttention-4's, and what the lines come to."""
    rows = [
        [r["shape"], r["mask"], r["peer_us"], r["before_us"], r["now_us"], interval(r, "before"), interval(r, "now")]
        for r in peer
    ]
    head = ["shape", "mask", "FlashAttention-4, us", "before, us", "now, us", "before, over it", "now, over it"]
    long = [row for row in peer if not row["mask"].startswith("window")]
    means = {f"mean_{name}": geometric_mean(float(row[name]) for row in long) for name in ("before", "now")}
    return {"beside": table(head, rows, left=2), "least": min(float(row["now"]) for row in peer), **means}


def over_flex(now, published):
    """Facts of the block-sparse form beside FlexAttention: with a pivot that stays, and as the study was published."""
    asked = {(row["pattern"], row["n"], row["block"]) for row in now}
    before = [r for r in published if r["kernel"] == "fast" and (r["pattern"], r["n"], r["block"]) in asked]
    facts = {"flex_rows": len(now), "flex_goal": GOAL}
    for name, rows in (("before", before), ("now", now)):
        times = [float(row["over_flex"]) for row in rows]
        facts |= {f"flex_mean_{name}": geometric_mean(times), f"flex_least_{name}": min(times),
                  f"flex_enough_{name}": sum(each >= GOAL for each in times)}  # fmt: skip
    short = {row["pattern"] for row in now if float(row["over_flex"]) < GOAL}
    return facts | {"flex_short": ", ".join(sorted(short))}


def page(known, sweep, facts):
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
        **facts,
    )
