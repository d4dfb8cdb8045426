"""An executed notebook as a page that nobody runs: figures with their words, no widgets. Standard library alone."""

import json

WIDGET = "application/vnd.jupyter.widget-view+json"


def prepared(text):
    """The text of an .ipynb with each cell's image options where the builder looks for them, and without live widgets.

    A figure's `alt` and `width` stand in its output's metadata (notebooks/pictures/png.py); the builder takes them from
    the cell's. A widget's output goes, with the text that stands for it; a picture beside it stays.
    """
    notebook = json.loads(text)
    notebook["metadata"].pop("widgets", None)
    for cell in notebook["cells"]:
        outputs = [output for output in map(without_widget, cell.get("outputs", ())) if output]
        if cell["cell_type"] == "code":
            cell["outputs"] = outputs
        options = image_options(outputs)
        if options:
            cell["metadata"]["mystnb"] = {"image": options}
    return json.dumps(notebook)


def without_widget(output):
    """The output, less its widget; None where nothing is left to see."""
    data = output.get("data", {})
    if WIDGET not in data:
        return output
    left = {kind: value for kind, value in data.items() if kind not in (WIDGET, "text/plain")}
    return output | {"data": left} if left else None


def image_options(outputs):
    """{"alt": words, "width": CSS pixels} of a cell's figures, as far as they are known; several share their words."""
    said = [output["metadata"].get("image/png", output["metadata"]) for output in outputs if output.get("metadata")]
    words = [figure["alt"] for figure in said if "alt" in figure]
    widths = [figure["width"] for figure in said if "width" in figure]
    return ({"alt": "; ".join(words)} if words else {}) | ({"width": f"{max(widths)}px"} if widths else {})
