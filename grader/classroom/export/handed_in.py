"""The texts of a class's modules: what was handed in, and what all students were given."""

from grader.course import skeletons
from grader.course.labs import EVERY


def texts(graded, out):
    """{module: {submission id: its text}} of all that was handed in for points; what cannot be read has none."""
    found = {EVERY[id].module: {} for id in graded.problems if EVERY[id].points}
    for row in graded.submissions:
        for module in found if row.handed_in and row.folder else ():
            path = out / row.folder / module
            if path.is_file():
                found[module][row.id] = path.read_text(encoding="utf-8", errors="replace")
    return found


def given(graded):
    """{module: [the skeleton's text, the solution's]}; problems/ may have been edited, so the skeleton is made anew."""
    found = {}
    for module in (EVERY[id].module for id in graded.problems):
        solution = (skeletons.SOLUTIONS / module).read_text(encoding="utf-8")
        found[module] = [skeletons.skeleton(solution, module), solution]
    return found
