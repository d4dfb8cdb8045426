"""A figure as a notebook shows it: a PNG with words for those who cannot see it."""

import io

from matplotlib.backends.backend_agg import FigureCanvasAgg

from report.drawing import house_style

DOTS = 150  # per inch: sharp at twice the width of a page


def png(figure, words):
    """The figure as an image no wider than the page; words: what it shows, in a sentence."""
    from IPython.display import Image  # not where the pictures' tests run

    drawn = io.BytesIO()
    with house_style():
        FigureCanvasAgg(figure).print_figure(drawn, dpi=DOTS, format="png", metadata={"Software": None})
    return Image(drawn.getvalue(), alt=words, width=round(figure.get_size_inches()[0] * 92))
