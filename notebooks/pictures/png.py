"""What a cell shows: a figure as a PNG with words for those who cannot see it, or lines that stay folded."""

import io
from html import escape

from matplotlib.backends.backend_agg import FigureCanvasAgg

from report.pages.drawing import house_style

DOTS = 150  # per inch: sharp at twice the width of a page
PAGE = 7.4  # inches, the widest picture: on a phone its letters are still some six pixels high


def png(figure, words):
    """The figure as an image no wider than the page; words: what it shows, in a sentence."""
    import PIL.Image
    from IPython.display import Image  # not where the pictures' tests run

    drawn, packed = io.BytesIO(), io.BytesIO()
    with house_style():
        FigureCanvasAgg(figure).print_figure(drawn, dpi=DOTS, format="png", metadata={"Software": None})
    PIL.Image.open(drawn).convert("RGB").save(packed, "PNG", optimize=True)  # the same dots in an eighth fewer bytes
    return Image(packed.getvalue(), alt=words, width=round(figure.get_size_inches()[0] * 92))


def folded(*lines):
    """What a cell found, as lines of text behind a word to click on: the reader makes a guess before."""
    from IPython.display import HTML

    return HTML(f"<details><summary>What came out</summary><pre>{escape(chr(10).join(lines))}</pre></details>")
