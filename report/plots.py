"""The measured sweep as pictures: python -m report.plots [folder] draws figures/*.svg. No torch.

Without a folder: of report/results/h200, into report/figures/. With one: of that folder's sweep.csv, into its figures/.
The same CSV and the same matplotlib give the same bytes. Exit status 2, with one sentence, where nothing can be drawn.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from report import measured
from report.measured import mask, shape
from report.table import BadTable

FIGURES = "figures"
# Drawn beside these, by report.orders, report.sparse_page and report.write_up.
OTHERS = (
    "orders.svg", "block-sparse-64.svg", "block-sparse-128.svg", "block-sparse-density.svg",
    "report-ladder.svg", "report-phases.svg", "report-one-program.svg", "report-tiles.svg",
)  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """One picture to draw: what it shows in words, the function of report.curves or report.heatmap, its arguments."""

    words: str
    draw: str
    arguments: tuple = ()


def plans(sweep):
    """{file name: Plan} of every picture that this sweep has the rows for."""
    dtypes = measured.dtypes(sweep.rows)
    done = [row for row in sweep.rows if row.median_ms is not None]
    main = [row for row in done if row.dtype == dtypes[0]]
    square = [row for row in main if mask(row) != "window"]
    found = {}
    for dtype in dtypes:
        if any(row.dtype == dtype and row.ours is not None and mask(row) != "window" for row in done):
            words = f"how many times faster our fast kernel is than each other, {dtype}"
            found[f"speedups-{dtype}.svg"] = Plan(words, "speedups", (dtype,))
    for tier in dict.fromkeys(row.tier for row in square):
        name = tier.lower().replace("=", "").replace("/", "-").replace(" ", "-")
        found[f"{name}.svg"] = Plan(f"time and TFLOP/s against N, {tier}, {dtypes[0]}", "tier", (tier, dtypes[0]))
    if square:
        last = list(dict.fromkeys(row.tier for row in square))[-1]  # what the goals of the sweep are about
        full = [row.tier for row in sweep.rows if row.status == "oom" and row.dtype == dtypes[0]]
        full = full[0] if full and any(row.tier == full[0] for row in square) else last
        found["scaling.svg"] = Plan(f"how the time grows with N, {last}, {dtypes[0]}", "scaling", (last, dtypes[0]))
        found["memory.svg"] = Plan(f"peak memory against N, {full}, {dtypes[0]}", "memory", (full, dtypes[0]))
    if any(mask(row) == "window" for row in main):
        shapes = " and ".join(dict.fromkeys(shape(row) for row in main if mask(row) == "window"))
        found["windows.svg"] = Plan(f"time against the window, {shapes}, {dtypes[0]}", "windows", (dtypes[0],))
    return found


def figure(sweep, plan):
    """The drawn matplotlib Figure of one Plan."""
    from report import curves, heatmap
    from report.drawing import house_style

    with house_style():
        return (getattr(curves, plan.draw, None) or getattr(heatmap, plan.draw))(sweep, *plan.arguments)


def draw(sweep, folder):
    """Write every picture of the sweep into the folder; returns their names. Pictures that are no more planned go."""
    from report.drawing import save

    folder.mkdir(parents=True, exist_ok=True)
    planned = plans(sweep)
    for name, plan in planned.items():
        save(figure(sweep, plan), folder / name)
    for stale in folder.glob("*.svg"):
        if stale.name not in (*planned, *OTHERS):
            stale.unlink()
    return list(planned)


def main(argv=None):

    parser = argparse.ArgumentParser(prog="python -m report.plots", description="Draw the pictures of a sweep.")
    parser.add_argument(
        "folder", nargs="?", type=Path, help="of sweep.csv and machine.json (default: the published one)"
    )
    source, target = measured.places(parser.parse_args(argv).folder)
    target = target / FIGURES
    try:
        names = draw(measured.load(source), target)
    except BadTable as error:
        print(f"report: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        print(f"report: {error.name} is missing, and it draws the pictures; pip install {error.name}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"report: the pictures cannot be written to {target}: {error.strerror}", file=sys.stderr)
        return 2
    print(f"written: {len(names)} pictures in {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
