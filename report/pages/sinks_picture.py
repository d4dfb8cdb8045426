"""The picture of the study of sinks: the loss of each arm by position, and where the training ended."""

from report.pages.drawing import INK, OURS_DARK, OURS_LIGHT, SOFT, Look, line, name_ends, new_figure, panel, token_ticks

LOOKS = {
    "full attention": Look("", "#8b8378", "v", (0, (4, 2)), 1.5, 3),
    "window": Look("", INK, "X", "-", 1.8, 3),
    "window, 1 sink": Look("", OURS_LIGHT, "s", (0, (1, 1.2)), 1.4, 5),
    "window, 4 sinks": Look("", OURS_DARK, "o", "-", 2.2, 6),
    "window, 16 sinks": Look("", OURS_LIGHT, "^", (0, (5, 1.5)), 1.6, 5),
    "window, 4 far sinks": Look("", "#bcbcbc", "x", (0, (1, 1.5)), 1.2, 2),
    "window, learned logit": Look("", "#a08a6c", "D", "-", 1.6, 3),
}


NEAR = ("window", "window, 1 sink", "window, 4 sinks", "window, 16 sinks", "window, learned logit")


def picture(arms, trained, width=9.5):
    """All arms on the left; on the right those of a window and near sinks, past the training alone."""
    figure = new_figure(width, 4.6, "A small model past its training: the loss by position")
    axes = panel(figure, (0.07, 0.12, 0.3, 0.75), "", "position, bytes", "loss, nats a byte", y_log=False)
    draw(axes, arms, [name for name in LOOKS if name not in NEAR or name == "window"])
    axes.axvline(trained, color=SOFT, linewidth=0.8, linestyle=(0, (2, 2)))
    end = trained, axes.get_ylim()[1]
    axes.annotate(
        "training's length", end, (-4, 0), textcoords="offset points", size=8, color=SOFT, va="top", ha="right"
    )
    axes = panel(figure, (0.56, 0.12, 0.26, 0.75), "", "position, bytes", "", y_log=False)
    draw(axes, arms, NEAR, trained)
    return figure


def draw(axes, arms, names, after=0):
    """The arms of these names from positions after `after` on, each with its name at its end."""
    ends = []
    for name in names:
        points = [point for point in arms[name] if point.end > after]
        xs, ys = [point.end for point in points], [point.loss for point in points]
        line(axes, name, xs, ys, look=LOOKS[name])
        ends.append((xs[-1], ys[-1], name, LOOKS[name]))
    token_ticks(axes, xs)
    name_ends(axes, ends)
