"""From P4 to the fast form, one idea at a time: STEPS.md out of two studies and what was measured by hand. No torch.

The study `steps` has the forms whose code is in the tree. The rows of ideas.csv compare a form with an idea and without
it, those of flash_attention_4.csv two of ours with a peer's, each in one run: medians of paired ratios and their 95 %
bootstrap intervals over the rounds.
"""

from statistics import geometric_mean

from report.measuring.rows import BadTable
from report.pages.measured import load, load_study, read_words, times_over
from report.pages.tables import number, table, times
from report.pages.template import render
from report.places import PUBLISHED
from report.studies import block_sparse, steps

PAGES = "STEPS.md", "STEPS_ROWS.md"
FIGURE = "figures/steps.svg"
WHOLE = "all of it"  # the form before against the form after
TURNS = ("ABCDEF", "GHIJKLMNO")  # runs: to many tiles a program, to a pivot that stays
NAMES = ("one_by_one", "together", "ideas", "whole"), ("pivot_ideas", "pivot_together", "pivot", "pivot_whole")
AWAITED = ("B=4 H=16 D=128 N=4096", "causal")  # measured beside FlashAttention-4 in another form than the committed
TWO_GAIN, THREE_LOSE = ("B=4 H=16 D=128 N=16384", "full"), ("B=8 H=12 D=64 N=16384", "causal")
GOAL = 1.5  # times FlexAttention
LADDER = {
    steps.POINTERS: "P4: pointers",
    steps.DESCRIPTORS: "tensor descriptors, two programs on a multiprocessor",
    steps.ONE: "the fast kernel: a producer and one consumer, two programs",
    steps.TWO: "two consumers, 128 keys in a tile, one program",
    steps.THREE: "three consumers, 64 keys: the form for long rows",
}


def files(folder=PUBLISHED):
    """{path: text} of the page; raises BadTable or OSError."""
    ideas = read_words(folder / "ideas.csv")
    makers = one_by_one, together, each_idea, in_all
    facts = {
        name: made([row for row in ideas if row["run"] in runs])
        for runs, names in zip(TURNS, NAMES, strict=True)
        for name, made in zip(names, makers, strict=True)
    }
    facts |= beside(read_words(folder / "flash_attention_4.csv"))
    facts |= over_flex(load_study(block_sparse.STUDY, folder)[0])
    facts["awaited"] = gains(ideas, "tiles awaited before the softmax")[AWAITED]
    facts["first_wait"] = first_wait(gains(ideas, "the softmax before the wait for p @ v"))
    facts["rounds"] = f"{min(int(r['rounds']) for r in ideas)} to {max(int(r['rounds']) for r in ideas)}"
    rows, machine = load_study(steps.STUDY, folder)
    if not rows:
        raise BadTable(f"{folder / steps.STUDY.csv} holds no rows yet; `python -m report steps` measures them")
    facts |= in_tree(rows) | {"machine": machine, "swept": in_sweep(folder)}
    return {page: render(page, **facts) for page in PAGES} | {FIGURE: drawn(rows)}


def in_sweep(folder):
    """`1.16 (1.16 to 1.17)`: the fast form over cuDNN in the sweep, at the ladder's shape under a causal mask."""
    shape = steps.LONG.label, 16384, True, "float16"
    found = {
        row.kernel: row
        for row in load(folder).rows
        if (row.tier, row.q_len, row.causal, row.dtype) == shape and row.kernel in ("SDPA cuDNN", "fast")
    }
    return times(times_over(found["SDPA cuDNN"], found["fast"]))


def interval(row, name, digits=2):
    """`1.05 (1.04 to 1.06)`, or blank where it was not measured."""
    if not row[name]:
        return ""
    middle, low, high = (f"{float(row[end]):.{digits}f}" for end in (name, f"{name}_low", f"{name}_high"))
    return f"{middle} ({low} to {high})"


def gains(ideas, name):
    """{(shape, mask): by how many % an idea makes the kernel faster}"""
    return {(row["shape"], row["mask"]): 100 * (float(row["speed"]) - 1) for row in ideas if row["idea"] == name}


def first_wait(found):
    """What two consumers gain without a mask, what three lose under a causal one, and the most of the other rows."""
    two, three = (found.pop(key) for key in (TWO_GAIN, THREE_LOSE))
    return {"two": two, "three": -three, "rest": max(map(abs, found.values()))}


def one_by_one(ideas):
    """A line for each idea and shape."""
    rows = [[r["idea"], r["shape"], r["mask"], interval(r, "speed")] for r in ideas if r["idea"] != WHOLE]
    return table(["idea", "shape", "mask", "with it, over without"], rows, left=3)


def each_idea(ideas):
    """A line for each idea: the geometric mean over its shapes, the worst and the best."""
    names = dict.fromkeys(row["idea"] for row in ideas if row["idea"] != WHOLE)
    found = {name: [float(row["speed"]) for row in ideas if row["idea"] == name] for name in names}
    rows = [
        [name, str(len(each)), *(f"{value:.2f}" for value in (geometric_mean(each), min(each), max(each)))]
        for name, each in found.items()
    ]
    return table(["idea", "shapes", "with it, over without", "worst", "best"], rows)


def in_all(ideas):
    """`1.07 times as fast over 17 shapes (0.96 to 1.29)`."""
    found = [float(row["speed"]) for row in ideas if row["idea"] == WHOLE and row["speed"]]
    return f"{geometric_mean(found):.2f} times as fast over {len(found)} shapes ({min(found):.2f} to {max(found):.2f})"


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


def over_flex(rows):
    """Facts of the block-sparse form beside FlexAttention, over the masks of its study."""
    ours = [row for row in rows if row.kernel == "fast" and row.pattern in block_sparse.PATTERNS and row.over_flex]
    found = [row.over_flex for row in ours]
    short = [
        f"{row.pattern}, {row.n} tokens in blocks of {row.block} ({row.over_flex:.3f})"
        for row in ours
        if row.over_flex < GOAL
    ]
    return {
        "flex_rows": len(ours), "flex_goal": GOAL, "flex_mean": geometric_mean(found),
        "flex_enough": sum(each >= GOAL for each in found), "flex_short": ";\n".join(short),
    }  # fmt: skip


# The study `steps` ---------------------------------------------------------------------------------------------------


def in_tree(rows):
    """Facts of the study: a table of the ladder, one of consumers and one of windows."""
    found = {(row.shape, row.mask, row.kernel): row for row in rows}
    asked = [
        (point, [found[point.keys["shape"], point.keys["mask"], name] for name in point.kernels])
        for point in steps.WHOLE
    ]
    (_, causal), (_, full), *others = asked
    (last,) = (row for row in causal if row.kernel == steps.THREE)
    return {
        "ladder": ladder(causal, full),
        "last": times(last.ratio("over_cudnn")),
        "fastest": fastest([row for point, rows in others if not point.window for row in rows]),
        "consumers": consumers([row for point, rows in others if not point.window for row in rows]),
        "windows": windows([row for point, rows in others if point.window for row in rows]),
    }


def drawn(rows):
    """The picture of the ladder, as SVG."""
    from report.pages import drawing, steps_picture  # matplotlib is slow to import

    found = {(row.mask, row.kernel): row.ratio("over_cudnn") for row in rows if row.shape == rows[0].shape}
    masks = {mask: [found[mask, kernel].middle for kernel in LADDER] for mask in ("causal", "full")}
    return drawing.svg(steps_picture.picture(list(LADDER.values()), masks, rows[0].shape))


def ladder(causal, full):
    head = [f"{mask}, over {base}" for mask in ("causal", "full") for base in ("cuDNN", "the one before")]
    lines = [
        [LADDER[a.kernel], *(times(row.ratio(over)) for row in (a, b) for over in ("over_cudnn", "over_before"))]
        for a, b in zip(causal, full, strict=True)
        if a.kernel in LADDER
    ]
    return table([causal[0].shape, *head], lines)


def consumers(rows):
    lines = [[*timed(row), "" if row.kernel == steps.CUDNN else times(row.ratio("over_cudnn"))] for row in rows]
    return table(["shape", "mask", "form", "us", "over cuDNN"], lines, left=3)


def fastest(rows):
    """The fastest form of each shape."""
    ours = [row for row in rows if row.kernel != steps.CUDNN]
    shapes = dict.fromkeys((row.shape, row.mask) for row in ours)
    best = [min((row for row in ours if (row.shape, row.mask) == key), key=lambda row: row.median_us) for key in shapes]
    return consumers(best)


def windows(rows):
    """Heads packed are compared with heads apart, and sinks with heads packed without any."""
    lines = []
    for row in rows:
        over = times(row.ratio("over_before"))
        lines.append([*timed(row), *((over, "") if row.kernel == steps.PACKED else ("", over))])
    return table(["shape", "mask", "form", "us", "over heads apart", "over the form without sinks"], lines, left=3)


def timed(row):
    return [row.shape, row.mask, row.kernel, number(row.median_us)]
