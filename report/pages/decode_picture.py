"""The picture of DECODE.md: which part of a copy's bandwidth each kernel has."""

from report.pages.drawing import GRID, INK, OURS_DARK, OURS_LIGHT, SOFT, house_style, new_figure

COLOURS = {"cuDNN": "#a9a196", "X4": OURS_LIGHT, "fast": OURS_DARK}


def picture(shapes, parts):
    """parts: {kernel: % of the copy's bandwidth at each shape, 0 where not measured}."""
    with house_style():
        figure = new_figure(9.5, 4.2, "Decode beside a copy of as many bytes")
        axes = figure.add_axes((0.22, 0.12, 0.74, 0.74))
        height = 0.8 / len(parts)
        for number, (kernel, values) in enumerate(parts.items()):
            places = [place + height * (number - (len(parts) - 1) / 2) for place in range(len(shapes))]
            axes.barh(places, values, 0.9 * height, color=COLOURS[kernel], label=kernel)
            for place, value in zip(places, values, strict=True):
                if value:
                    axes.text(value + 1, place, f"{value:.0f} %", va="center", size=8.5, color=INK)
        axes.axvline(100, color=SOFT, linewidth=1, linestyle=(0, (4, 2)))
        axes.text(100, -0.62, " copy", size=8.5, color=SOFT, va="bottom")
        axes.set_xlabel("% of the copy's bandwidth")
        axes.set_yticks(range(len(shapes)), shapes)
        axes.set_ylim(len(shapes) - 0.5, -0.75)
        axes.set_xlim(0, max(118, 1.1 * max(map(max, parts.values()))))
        axes.grid(True, axis="x", color=GRID, linewidth=0.7)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=len(parts), fontsize=9)
    return figure
