"""The lines of a solution, cut out for the report: the seven steps that all kernels of P3 to P7 share.

Cut out and never copied, so that the report shows what the course grades.
"""

import re
import textwrap

from report.places import NotThere, source
from report.studies.ladder import FAST, RUNGS

MODULES = {problem: rung.module for problem, rung in RUNGS.items() if rung.module != FAST}
# Where each step begins and ends in the kernels of P3 to P7: the first line with these words, and the next with those.
STEPS = {
    "indices": ("    q_start = ", "O += batch"),
    "running state": ("row_max = tl.full", "acc = tl.zeros"),
    "load Q": ("q_pos = q_start + tl.arange", "q = tl.load"),
    "stream K and V": ("acc = tl.zeros", "o = acc / row_sum"),
    "scores and mask": ("scores = tl.dot", "new_max ="),
    "online update": ("new_max =", "acc = tl.dot(p"),
    "finish": ("o = acc / row_sum", "tl.store("),
}
OPEN = {"stream K and V": (1, 1), "scores and mask": (0, 1)}  # lines at either end that are not of the step
SCAFFOLD = re.compile(r"^\s*(# (gap \d+|end gap)\b|#   )")  # of the exercise, not of the kernel


def lines(problem, first, last):
    """The lines from the first that holds `first` to the next that holds `last`, the exercise's marks left out."""
    text = source(MODULES[problem]).splitlines()
    begin = next((i for i, line in enumerate(text) if first in line), None)
    end = next((i for i in range(begin, len(text)) if last in text[i]), None) if begin is not None else None
    if end is None:
        raise NotThere(f"{MODULES[problem]} has no lines from {first!r} to {last!r}: mend report/write_up/excerpts.py")
    return [line for line in text[begin : end + 1] if not SCAFFOLD.match(line)]


def cut(problem, first, last):
    """The same as text, without its indentation."""
    return textwrap.dedent("\n".join(lines(problem, first, last))).strip("\n")


def step(problem, name):
    """The text of one of STEPS."""
    found = lines(problem, *STEPS[name])
    front, back = OPEN.get(name, (0, 0))
    found = found[front : len(found) - back]
    return textwrap.dedent("\n".join(line for line in found if line.strip()))


def code_of(problem, name):
    """A step without comments and line breaks: what is compared."""
    text = re.sub(r"#.*", "", step(problem, name))
    return re.sub(r"\s+", " ", text).strip()


def changed(problem, before, name):
    """Whether a step of one problem is other code than that of the one before."""
    return code_of(problem, name) != code_of(before, name)
