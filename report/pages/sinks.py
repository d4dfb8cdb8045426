"""Losses by position with and without sinks as a page, SINKS.md, with its picture; no torch."""

from dataclasses import dataclass

from report.pages.measured import length, read_both
from report.pages.tables import machine_words, table
from report.pages.template import render
from report.places import PUBLISHED
from report.studies.sinks import FULL, LEARNED

PAGE, PICTURE = "SINKS.md", "figures/sinks.svg"
SURE = 2.0  # standard errors


@dataclass(frozen=True)
class Point:
    """Of one arm and one range of positions, in nats a byte: the mean loss, how far under the window's, errors."""

    start: int
    end: int
    loss: float
    error: float
    less: float
    less_error: float

    @property
    def better(self):
        return self.less > SURE * self.less_error

    @property
    def worse(self):
        return self.less < -SURE * self.less_error


def files(folder=PUBLISHED):
    """{path: text} of the page and its picture."""
    arms, facts = load(folder)
    return {PAGE: page(arms, facts)} | ({PICTURE: drawn(arms, facts)} if arms else {})


def load(folder):
    """({arm: [Point]}, facts); ({}, {}) where nothing was measured."""
    (rows, facts), arms = read_both("sinks", folder), {}
    for row in rows:
        values = [float(row[name]) for name in ("loss", "error", "less", "less_error")]
        arms.setdefault(row["arm"], []).append(Point(int(row["start"]), int(row["end"]), *values))
    return arms, facts


def page(arms, facts):
    if not arms:
        return render(PAGE, arms=arms)
    trained = facts["models"][FULL]["trained"]
    tokens = trained["plan"]["tokens"]
    return render(
        PAGE, arms=arms, machine=machine_words(facts), picture=PICTURE,
        facts=facts, trained=trained, learned=facts["models"][LEARNED]["trained"], tokens=tokens,
        table=losses_table(arms), last={name: points[-1] for name, points in arms.items()},
        inside={name: within(points, tokens) for name, points in arms.items()}, shares=shares(facts["models"][FULL]),
        logit_shares=shares(facts["models"][LEARNED], "learned_logit"), even=f"{1 / (0.75 * tokens):.2%}",
        bytes=trained["plan"]["steps"] * trained["plan"]["batch"] * tokens,
    )  # fmt: skip


def within(points, tokens):
    """The last Point inside the length of the training."""
    return [point for point in points if point.end <= tokens][-1]


def shares(model, name="first_token"):
    """`0.5 %, 12 %`: of each layer."""
    return ", ".join(f"{share:.2%}" if share < 0.01 else f"{share:.0%}" for share in model[name])


def losses_table(arms):
    head = ["positions up to", *(length(point.end) for point in next(iter(arms.values())))]
    return table(head, [[name, *(f"{point.loss:.3f}" for point in points)] for name, points in arms.items()])


def drawn(arms, facts):
    """The SVG: the loss of each arm by position."""
    from report.pages.drawing import house_style, svg
    from report.pages.sinks_picture import picture

    with house_style():
        figure = picture(arms, facts["models"][FULL]["trained"]["plan"]["tokens"])
    return svg(figure)
