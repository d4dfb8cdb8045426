"""Which pictures a sweep has the rows for, and their drawing. No torch.

The same CSV and the same matplotlib give the same bytes.
"""

from dataclasses import dataclass

from report.pages import measured
from report.pages.measured import mask, shape
from report.studies.sweep import OURS


@dataclass(frozen=True)
class Plan:
    """One picture to draw: what it shows in words, the function of `curves` or `heatmap`, its arguments."""

    words: str
    draw: str
    arguments: tuple = ()


def plans(sweep):
    """{path: Plan} of every picture that this sweep has the rows for."""
    dtypes = measured.dtypes(sweep.rows)
    first = dtypes[0]
    done = [row for row in sweep.rows if row.median_ms is not None]
    main = [row for row in done if row.dtype == first]
    square = [row for row in main if mask(row) != "window"]
    found = {}
    for dtype in dtypes:
        kernel = next((name for name in ("fast", *OURS) if any(
            row.dtype == dtype and row.kernel == name and mask(row) != "window" for row in done
        )), None)  # fmt: skip
        if kernel:
            named = "fast kernel" if kernel == "fast" else kernel
            words = f"how many times faster our {named} is than each other, {dtype}"
            found[f"speedups-{dtype}"] = Plan(words, "speedups", (dtype, kernel))
    for tier in dict.fromkeys(row.tier for row in square):
        name = tier.lower().replace("=", "").replace("/", "-").replace(" ", "-")
        found[name] = Plan(f"time and TFLOP/s against N, {tier}, {first}", "tier", (tier, first))
    if square:
        last = list(dict.fromkeys(row.tier for row in square))[-1]  # what the goals of the sweep are about
        full = [row.tier for row in sweep.rows if row.status == "oom" and row.dtype == first]
        full = full[0] if full and any(row.tier == full[0] for row in square) else last
        found["scaling"] = Plan(f"how the time grows with N, {last}, {first}", "scaling", (last, first))
        found["memory"] = Plan(f"peak memory against N, {full}, {first}", "memory", (full, first))
    if any(mask(row) == "window" for row in main):
        shapes = " and ".join(dict.fromkeys(shape(row) for row in main if mask(row) == "window"))
        found["windows"] = Plan(f"time against the window, {shapes}, {first}", "windows", (first,))
    return {f"figures/{name}.svg": plan for name, plan in found.items()}


def figure(sweep, plan):
    """The drawn matplotlib Figure of one Plan."""
    from report.pages import curves, heatmap
    from report.pages.drawing import house_style

    with house_style():
        return (getattr(curves, plan.draw, None) or getattr(heatmap, plan.draw))(sweep, *plan.arguments)


def drawn(sweep):
    """{path: SVG} of every picture of the sweep."""
    from report.pages.drawing import svg

    return {name: svg(figure(sweep, plan)) for name, plan in plans(sweep).items()}
