"""What notebook 03 draws of kernels that ran: loads in order, lanes that run out, writers, P3's tiles and lines."""

import inspect
from dataclasses import replace
from html import escape

import numpy as np
from matplotlib.patches import Patch, Rectangle

from grader.course.gaps import skeleton
from notebooks.pictures.first_triton_kernel import BLANK, DARK, PALE, WRONG, axes_at, cell, legend
from notebooks.pictures.png import PAGE, png
from report.counting import traced
from report.pages.drawing import SOFT, house_style, new_figure


def spills(steps, shape, block, names):
    """What loads of whole tiles without a mask read of a matrix of that shape: a panel for each step."""
    rows, columns = shape
    side = 0.12
    with house_style():
        figure = new_figure(PAGE, 3.35, f"Tiles of {block[0]} x {block[1]} without a mask, on rows of {columns}")
        for place, (step, name) in enumerate(zip(steps, names, strict=True)):
            axes = axes_at(figure, 0.35 + place * 3.55, 0.72, columns * side, rows * side)
            axes.set(xlim=(0, columns), ylim=(rows, 0))
            lanes = step.elements.reshape(block)
            meant, spilled = set(lanes[:, :columns].flat), set(lanes[:, columns:].flat)
            for element in range(rows * columns):
                colour = WRONG if element in spilled else PALE[0] if element in meant else BLANK
                cell(axes, element % columns, element // columns, colour, linewidth=0.4, edgecolor="#dfe3e8")
            outside = int((lanes >= rows * columns).sum())
            axes.set_title(name + (f": {outside} lanes past the end of x" if outside else ""), size=9)
        words = f"read as columns {columns} to {block[1] - 1} of the row above"
        handles = [Patch(facecolor=PALE[0], label=f"read as columns 0 to {columns - 1}"),
                   Patch(facecolor=WRONG, label=words)]  # fmt: skip
        legend(figure, handles)
    return png(figure, "Two matrices: the lanes past the last column read the first elements of the next row")


def in_order(steps, names, title, words, per=1):
    """Which elements of each argument each step touches, steps from left to right, coloured by program.

    names: {argument: what its panel says}. per: elements that are drawn as one, such as those of a token.
    """
    steps = [(at, replace(step, elements=step.elements // per)) for at, step in enumerate(steps)]
    sizes = {name: max(int(step.elements.max()) + 1 for _, step in steps if step.argument == name) for name in names}
    heights = [1.9, 0.7, 0.7] if len(names) == 3 else [0.75] * len(names)
    with house_style():
        figure = new_figure(PAGE, sum(heights) + 0.2 * len(names) + 0.75, title)
        top = 0.5
        for (name, said), height in zip(names.items(), heights, strict=True):
            axes = axes_at(figure, 1.35, top, PAGE - 1.6, height)
            axes.set(xlim=(-0.6, steps[-1][0] + 0.6), ylim=(sizes[name] * 1.04, -sizes[name] * 0.04), facecolor=BLANK)
            axes.set_ylabel(said, rotation=0, ha="right", va="center", size=8.5, labelpad=30)
            axes.set_yticks([0, sizes[name] - 1])
            axes.tick_params(length=2, labelsize=7.5)
            for at, step in steps:
                if step.argument == name:
                    for first, last in runs(step.elements):
                        axes.add_patch(Rectangle((at - 0.42, first - 0.1), 0.84, last - first + 0.8 + sizes[name] / 150,
                                                 color=DARK[step.program % 6], linewidth=0))  # fmt: skip
            top += height + 0.2
        axes.set_xlabel("loads and stores, one program after the other", color=SOFT)
        for program in sorted({step.program for _, step in steps}):
            mine = [at for at, step in steps if step.program == program]
            figure.text((1.35 + (PAGE - 1.6) * (sum(mine) / len(mine) + 0.6) / (steps[-1][0] + 1.2)) / PAGE,
                        1 - 0.46 / figure.get_size_inches()[1], f"program {program}", color=DARK[program % 6], size=8.5,
                        ha="center", weight="bold")  # fmt: skip
    return png(figure, words)


def runs(elements):
    """[(first, last), ...] of the stretches of neighbours among elements."""
    elements = np.unique(elements)
    breaks = np.flatnonzero(np.diff(elements) > 1) + 1
    return [(int(part[0]), int(part[-1])) for part in np.split(elements, breaks)]


def writers(seen, argument="OUT"):
    """{element: programs that stored it, in order}."""
    found = {}
    for step in seen.of(argument):
        for element in step.elements.tolist():
            found.setdefault(element, []).append(step.program)
    return found


def owners(several, names):
    """Which program stores which sum, a panel for each launch; red where more than one does."""
    with house_style():
        figure = new_figure(PAGE, 3.45, "Who writes which sum")
        for place, (seen, name) in enumerate(zip(several, names, strict=True)):
            found = writers(seen)
            programs = max(max(who) for who in found.values()) + 1
            axes = axes_at(figure, 0.6 + place * 3.5, 0.75, 3.15, 1.85)
            axes.set(xlim=(0, len(found)), ylim=(programs, 0), facecolor=BLANK, xlabel="sum")
            axes.set_title(name, size=9)
            axes.set_xticks([0.5, len(found) - 0.5], [0, len(found) - 1], size=7.5)
            axes.set_yticks([0.5, programs - 0.5], [0, programs - 1], size=7.5)
            axes.tick_params(length=0)
            for element, who in found.items():
                for program in who:
                    cell(axes, element, program, WRONG if len(who) > 1 else PALE[program % 6], linewidth=0.5)
            if place == 0:
                axes.set_ylabel("program", labelpad=2)
        handles = [Patch(facecolor=PALE[0], label="one writer, in its program's colour"),
                   Patch(facecolor=WRONG, label="several: a race")]  # fmt: skip
        legend(figure, handles, 0.06)
    return png(figure, "Left: each sum is written by one program. Right: each is written by four")


# P3 ------------------------------------------------------------------------------------------------------------------


def tiles_of_p3(result, program):
    """The tiles of keys that each tile of queries visited, as observers saw them; one program's numbered in order."""
    picture = result.facts.picture["visits"]["bands"]
    last = max(tile[1] for band in picture for tile in band["tiles"]) + 1
    with house_style():
        figure = new_figure(4.7, 4.35, "The tiles that P3's programs visited")
        axes = axes_at(figure, 1.15, 0.55, 3.3, 3.3)
        axes.set(xlim=(0, last), ylim=(last, 0), xlabel="key")
        axes.set_xticks([0, last])
        axes.tick_params(length=2, labelsize=7.5)
        for number, band in enumerate(picture):
            (first, end), tiles = band["q"], band["tiles"]
            axes.text(-last * 0.02, (first + end + 1) / 2, f"program {number}", ha="right", va="center", size=8.5,
                      color=DARK[number % 6] if number == program else SOFT,
                      weight="bold" if number == program else "normal")  # fmt: skip
            for order, (key, key_end, *_) in enumerate(tiles):
                colour = PALE[number % 6] if number == program else "#e3e6ea"
                text = order + 1 if number == program else ""
                cell(axes, key, first, colour, text, wide=key_end + 1 - key, high=end + 1 - first)
    return png(figure, "A square of tiles; one program's row of tiles is numbered from left to right")


def line_of(text, part):
    """The one line of `text` that contains `part`; raises ValueError where there is none, or several."""
    lines = [line.strip() for line in text.splitlines() if part in line]
    if len(lines) != 1:
        raise ValueError(f"{len(lines)} lines contain {part!r}, not one")
    return lines[0].split("  # ")[0]


def beside(pairs, kernel, problem="p3"):
    """Lines of two kernels that do the same, as a table; P3's gaps are those of the student's file.

    pairs: [(what they do, part of a line of the kernel, part of a line of the problem's skeleton), ...], "" for none.
    """
    from IPython.display import HTML  # not where the pictures' tests run

    row_sum, p3 = inspect.getsource(kernel.fn), skeleton(traced.source_of(problem), problem)
    rows = []
    for does, ours, theirs in pairs:
        rows.append(f'<tr><th colspan="2" style="text-align:left">{escape(does)}</th></tr>')
        for name, text, part in (("row sum", row_sum, ours), ("P3", p3, theirs)):
            code = f"<code>{escape(line_of(text, part))}</code>" if part else "(nothing)"
            rows.append(f'<tr><td style="text-align:left">{name}</td><td style="text-align:left">{code}</td></tr>')
    return HTML(f"<table>{''.join(rows)}</table>")
