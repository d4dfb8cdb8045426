"""The class's distribution of points as a drawing.Drawing: the same shapes, colours and words as report.html."""

import math

from grader.render.drawing import Drawing, Label, names_of_axes

BINS = 20
PLOT = (44, 16, 280, 150)  # x, y, width, height in pixels: it fits a phone at full size
TICKS = 4  # lines of the scale of submissions, at most


def draw(totals, most):
    """How many submissions earned how many points; totals: Fractions from 0 to `most`."""
    counts = [0] * BINS
    for total in totals:
        counts[min(BINS - 1, max(0, math.floor(total * BINS / most)))] += 1
    x, y, width, height = PLOT
    step = nice_step(max(counts))
    top = max(step, -(-max(counts) // step) * step)
    bar = width / BINS
    boxes = [
        (x + i * bar, y + height * (1 - count / top), bar, height * count / top)
        for i, count in enumerate(counts)
        if count
    ]
    ranges = [
        f"{float(most) * i / BINS:g} to {float(most) * (i + 1) / BINS:g}: {count}"
        for i, count in enumerate(counts)
        if count
    ]
    drawing = Drawing("Points of the submissions", f"Submissions by points: {', '.join(ranges)}.", PLOT, bordered=True)
    drawing.layers = {"seen": boxes}
    drawing.labels = [Label(x - 5, y + height * (1 - n / top) + 4, str(n), "end") for n in range(0, top + 1, step)]
    for part in range(0, 101, 25):
        drawing.labels.append(Label(x + width * part / 100, y + height + 14, f"{float(most) * part / 100:g}"))
    drawing.labels += names_of_axes(
        PLOT, f"points of {float(most):g}, in steps of {float(most) / BINS:g}", "submissions"
    )
    return drawing


def nice_step(largest):
    """1, 2, 5, 10, 20 ...: the first that cuts `largest` into at most TICKS parts."""
    step = 1
    while largest > TICKS * step:
        step = step * 5 // 2 if str(step)[0] == "2" else step * 2
    return step
