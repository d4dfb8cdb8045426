"""One Result -> a PNG: the drawings of the report side by side, the case above them, its sentence below."""

import textwrap

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Outline
from matplotlib.patheffects import withStroke

from grader.render.drawing import KINDS

INK, SOFT, LINE, PLOT, PAGE = "#1b1f24", "#57606a", "#d0d7de", "#f6f8fa", "#ffffff"
MARGIN, GAP = 20, 28  # pixels
LINE_HEIGHT, LETTER = 18, 7.4  # of the text, in pixels
LEAST_WIDTH = 380  # of one drawing: its legend's longest line
DPI, SHARPNESS = 100, 2  # PNG pixels for each pixel of a drawing
HATCH_DENSITY = 4


def write(result, drawings, path):
    """Draw `drawings` of one case in a row; the page is light, whatever the desktop is."""
    widths = [max(LEAST_WIDTH, drawing.width) for drawing in drawings]
    width = 2 * MARGIN + sum(widths) + GAP * (len(widths) - 1)
    letters = int((width - 2 * MARGIN) / LETTER)
    head = textwrap.wrap(f'{result.problem} "{result.case}" ({result.description}): {result.outcome.value}', letters)
    sentence = textwrap.wrap(result.sentence, letters)
    titles = [textwrap.wrap(drawing.title, int(w / LETTER)) for drawing, w in zip(drawings, widths, strict=True)]
    legends = [wrapped_legend(drawing, int(w / LETTER)) for drawing, w in zip(drawings, widths, strict=True)]
    top = MARGIN + LINE_HEIGHT * (len(head) + 0.5 + max(map(len, titles)))
    heights = [d.height + LINE_HEIGHT * len(legend) for d, legend in zip(drawings, legends, strict=True)]
    height = top + max(heights) + LINE_HEIGHT * (len(sentence) + 0.5) + MARGIN

    with matplotlib.rc_context({"hatch.linewidth": 0.6, "font.family": "sans-serif"}):
        figure = Figure((width / DPI, height / DPI), dpi=DPI * SHARPNESS, facecolor=PAGE)
        axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
        axes.axis("off")
        write_lines(axes, MARGIN, MARGIN, head, weight="bold")
        left = MARGIN
        for drawing, w, title, legend in zip(drawings, widths, titles, legends, strict=True):
            write_lines(axes, left, top - LINE_HEIGHT * len(title), title)
            put(axes, drawing, left, top)
            put_legend(axes, legend, left, top + drawing.height)
            left += w + GAP
        write_lines(axes, MARGIN, top + max(heights) + LINE_HEIGHT / 2, sentence)
        FigureCanvasAgg(figure).print_png(path)


def put(axes, drawing, left, top):
    x, y, width, height = drawing.plot
    surface(axes, [(left + x, top + y, width, height)], facecolor=PLOT, edgecolor=LINE)
    for kind, boxes in drawing.layers.items():
        edge = INK if kind == "missing" else PAGE if drawing.bordered else "none"
        surface(axes, [(left + x, top + y, w, h) for x, y, w, h in boxes], **looks(kind), linewidth=0.6)
        surface(axes, [(left + x, top + y, w, h) for x, y, w, h in boxes], facecolor="none", edgecolor=edge)
    for points in drawing.outlines:
        axes.plot([left + x for x, _ in points], [top + y for _, y in points], color=INK, linewidth=1.2)
    for label in drawing.labels:
        aligned = {"start": "left", "middle": "center", "end": "right"}[label.anchor]
        rotation = 90 if label.upright else 0
        vertical = "center_baseline" if label.upright else "baseline"
        strong = (
            {"weight": "bold", "path_effects": [withStroke(linewidth=2.2, foreground=PAGE)]} if label.strong else {}
        )
        write_text(axes, left + label.x, top + label.y, label.text, color=INK if strong else SOFT, size=7.5, ha=aligned,
                   va=vertical, rotation=rotation, **strong)  # fmt: skip


def put_legend(axes, legend, left, top):
    for i, (kind, words) in enumerate(legend):
        middle = top + LINE_HEIGHT * (i + 0.5)
        if kind == "mask":
            axes.plot([left, left + 10, left + 18], [middle - 5, middle - 5, middle + 5], color=INK, linewidth=1.2)
        elif kind:
            surface(axes, [(left, middle - 6, 18, 12)], **looks(kind), linewidth=0)
            surface(axes, [(left, middle - 6, 18, 12)], facecolor="none", edgecolor=LINE)
        write_text(axes, left + 26, middle, words, size=8, va="center_baseline")


def wrapped_legend(drawing, letters):
    lines = []
    for kind, words in drawing.legend:
        first, *rest = textwrap.wrap(words, letters - 4)
        lines += [(kind, first), *(("", line) for line in rest)]
    return lines


def looks(kind):
    style = KINDS[kind]
    hatch = style.hatch * HATCH_DENSITY or None
    return {"facecolor": style.light, "edgecolor": INK if hatch else "none", "hatch": hatch}


def surface(axes, boxes, **style):
    """Boxes (x, y, width, height) as one patch."""
    paths = [Outline([(x, y), (x + w, y), (x + w, y + h), (x, y + h), (x, y)], closed=True) for x, y, w, h in boxes]
    axes.add_patch(PathPatch(Outline.make_compound_path(*paths), **{"linewidth": 0.8} | style))


def write_lines(axes, x, y, lines, **style):
    for i, line in enumerate(lines):
        write_text(axes, x, y + LINE_HEIGHT * (i + 0.75), line, size=9, **style)


def write_text(axes, x, y, text, **style):
    axes.text(x, y, text, parse_math=False, **{"color": INK} | style)
