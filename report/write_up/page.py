"""The model report: REPORT.md and its pictures, out of text, solutions, kernels that run, and measured rows.

The text is REPORT.md.jinja; what it says in numbers is gathered in values.py.
"""

from report.pages import measured as sweeps
from report.pages.drawing import svg
from report.pages.template import render
from report.write_up import figures, measured
from report.write_up.flow import flowed
from report.write_up.values import values

PAGE = "REPORT.md"


def files():
    """{path: text} of the page and its pictures, half a minute; raises Refused where something does not agree."""
    ladder, sweep = measured.load_ladder(), sweeps.load()
    found = {f"figures/{name}": svg(figure) for name, figure in figures.drawn(ladder).items()}
    return {PAGE: page(ladder, sweep)} | found


def page(ladder, sweep):
    """The text of REPORT.md; raises BadTemplate."""
    return flowed(render(PAGE, **values(ladder, sweep)))
