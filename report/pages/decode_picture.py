"""The picture of DECODE.md: the bandwidth of each kernel, and of a copy."""

from report.pages.drawing import GRID, INK, OURS_DARK, OURS_LIGHT, house_style, new_figure, on_grid

COLOURS = {"copy": GRID, "cuDNN": "#a9a196", "X4": OURS_LIGHT, "fast": OURS_DARK}


def picture(shapes, speeds):
    """speeds: {kernel: TB/s at each shape, 0 where not measured}."""
    with house_style():
        figure = new_figure(9.5, 4.8, "Decode beside a copy of as many bytes")
        axes = figure.add_axes((0.22, 0.12, 0.74, 0.74))
        height = 0.8 / len(speeds)
        for number, (kernel, values) in enumerate(speeds.items()):
            places = [place + height * (number - (len(speeds) - 1) / 2) for place in range(len(shapes))]
            axes.barh(places, values, 0.9 * height, color=COLOURS[kernel], label=kernel)
            for place, value in zip(places, values, strict=True):
                if value:
                    axes.text(value + 0.03, place, f"{value:.2f}", va="center", size=8.5, color=INK)
        axes.set_xlabel("TB/s")
        axes.set_yticks(range(len(shapes)), shapes)
        axes.set_ylim(len(shapes) - 0.5, -0.75)
        axes.set_xlim(0, 1.08 * max(map(max, speeds.values())))
        on_grid(axes, "x")
        axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=len(speeds), fontsize=9)
    return figure
