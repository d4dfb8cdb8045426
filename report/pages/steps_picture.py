"""The picture of STEPS.md: how fast each form is beside cuDNN, from P4 on."""

from report.pages.drawing import INK, OURS_DARK, OURS_LIGHT, SOFT, house_style, new_figure, on_grid


def picture(forms, masks, shape):
    """forms: what each is called; masks: {mask: speeds over cuDNN, one for each form}."""
    with house_style():
        figure = new_figure(10.5, 3.6, f"From P4 to the fast form: speed over cuDNN, {shape}")
        axes = figure.add_axes((0.42, 0.1, 0.53, 0.76))
        for number, (mask, speeds) in enumerate(masks.items()):
            places = [place + 0.38 * (number - 0.5) for place in range(len(forms))]
            axes.barh(places, speeds, 0.34, color=(OURS_DARK, OURS_LIGHT)[number], label=mask)
            for place, speed in zip(places, speeds, strict=True):
                axes.text(speed + 0.01, place, f"{speed:.2f}", va="center", size=8.5, color=INK)
        axes.axvline(1, color=SOFT, linewidth=1, linestyle=(0, (4, 2)))
        axes.text(1, -0.62, " cuDNN", size=8.5, color=SOFT, va="bottom")
        axes.set_yticks(range(len(forms)), forms)
        axes.set_ylim(len(forms) - 0.5, -0.75)
        axes.set_xlim(0, 1.45)
        on_grid(axes, "x")
        axes.legend(frameon=False, loc="upper right", fontsize=9)
    return figure
