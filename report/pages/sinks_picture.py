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


def picture(arms, trained, width=9.5):
    figure = new_figure(width, 4.6, "A small model past its training: the loss by position")
    axes = panel(figure, (0.07, 0.12, 0.7, 0.75), "", "position, bytes", "loss, nats a byte", y_log=False)
    ends = []
    for name, look in LOOKS.items():
        points = arms[name]
        xs, ys = [point.end for point in points], [point.loss for point in points]
        line(axes, name, xs, ys, look=look)
        ends.append((xs[-1], ys[-1], name, look))
    axes.axvline(trained, color=SOFT, linewidth=0.8, linestyle=(0, (2, 2)))
    axes.text(trained, axes.get_ylim()[1], " length of the training", size=8.5, color=SOFT, va="top")
    token_ticks(axes, [point.end for point in arms["window"]])
    name_ends(axes, ends)
    return figure
