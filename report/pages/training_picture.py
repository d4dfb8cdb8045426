"""The picture of a training: three losses, and how far ours is from the others beside how far these are apart."""

from report.pages.drawing import INK, OURS_DARK, SOFT, house_style, new_figure, on_grid

COLOURS = (OURS_DARK, "#a08a6c", "#8b8378")
DASHES = ("-", (0, (4, 2)), (0, (1, 1.5)))


@house_style()
def picture(losses, apart, width=10.5):
    figure = new_figure(width, 3.9, "A tiny transformer, trained three times from the same weights")
    steps = range(1, len(apart) + 1)
    left, right = (figure.add_axes((at, 0.14, 0.41, 0.66)) for at in (0.06, 0.57))
    for (name, values), color, dashes in zip(losses.items(), COLOURS, DASHES, strict=False):
        left.plot(steps, values, color=color, linestyle=dashes, linewidth=1.6, label=name)
    left.set_title("loss")
    right.set_title("difference of losses")
    right.plot(steps, [max(far, 1e-9) for far, _ in apart], color=OURS_DARK, linewidth=1.2, label="ours to the nearer")
    between = [max(each, 1e-9) for _, each in apart]
    right.plot(steps, between, color=SOFT, linewidth=1.2, linestyle=(0, (4, 2)), label="the two of PyTorch")
    right.set_yscale("log")
    for axes in (left, right):
        axes.set_xlabel("step")
        on_grid(axes)
        axes.legend(frameon=False, fontsize=9, labelcolor=INK)
    return figure
