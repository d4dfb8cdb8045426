"""A tiny transformer's losses as a page, TRAINING.md, with its picture; no torch."""

from decimal import ROUND_CEILING, Context, Decimal

from report.pages.measured import read_both
from report.pages.tables import machine_words, number, table
from report.pages.template import render
from report.places import PUBLISHED

PAGE, PICTURE = "TRAINING.md", "figures/training.svg"
MOST = 2.0  # times as far from the nearer of the others as these are from each other
SHOWN = (0, 49, 99, 149, 199, 249, 299)


def files(folder=PUBLISHED):
    """{path: text} of the page and its picture."""
    losses, facts = load(folder)
    return {PAGE: page(losses, facts)} | ({PICTURE: drawn(losses)} if losses else {})


def load(folder):
    """({arm: [loss of each step]}, facts of the machine); ({}, {}) where nothing was measured."""
    rows, facts = read_both("training", folder)
    names = [name for name in rows[0] if name != "step"] if rows else []
    return {name: [float(row[name]) for row in rows] for name in names}, facts


def apart(losses):
    """[(how far ours is from the nearer of the others, how far these are from each other) of each step]."""
    ours, one, other = losses.values()
    return [(min(abs(a - b), abs(a - c)), abs(b - c)) for a, b, c in zip(ours, one, other, strict=True)]


def page(losses, facts):
    found = apart(losses) if losses else []
    near = sum(far <= MOST * between for far, between in found)
    late = found[len(found) // 2 :]
    over = [pair for pair in found if pair[0] > MOST * pair[1]]
    return render(
        PAGE, losses=losses, machine=machine_words(facts), picture=PICTURE,
        steps=len(found), near=near, most=MOST, table=losses_table(losses),
        largest=max((far for far, _ in found), default=0.0), between=max((each for _, each in found), default=0.0),
        over=[at_most(max(each)) for each in zip(*over, strict=True)], others=len(over),
        late=sum(far <= MOST * each for far, each in late), late_steps=len(late), ends=ends(losses),
    )  # fmt: skip


def at_most(value):
    """Two digits, rounded up: no value may lie above what the page says."""
    return f"{float(Decimal(value).normalize(Context(prec=2, rounding=ROUND_CEILING))):g}"


def ends(losses):
    return ", ".join(f"{values[-1]:.4f} ({name})" for name, values in losses.items())


def losses_table(losses):
    lines = [
        [str(step + 1), *(number(values[step]) for values in losses.values())]
        for step in SHOWN if losses and step < len(next(iter(losses.values())))
    ]  # fmt: skip
    return table(["step", *losses], lines) if lines else ""


def drawn(losses):
    """The SVG: the losses, and how far apart they are."""
    from report.pages.drawing import svg
    from report.pages.training_picture import picture

    return svg(picture(losses, apart(losses)))
