"""An answer that stays folded until the reader has made a guess."""

from html import escape

from IPython.display import HTML


def folded(*lines):
    """What a cell found, as lines of text behind a word to click on."""
    text = escape("\n".join(lines))
    return HTML(f"<details><summary>What came out</summary><pre>{text}</pre></details>")
