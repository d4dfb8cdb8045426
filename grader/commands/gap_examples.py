"""The hints on each gap of a solution, which `make skeletons` keeps beside the skeletons for `make hint`.

A skeleton's reader may have no solution. So the first numbers that a gap makes, its shapes and the names of its
operations are written down, from a call of the reference that `make try` repeats.
"""

import ast
import contextlib
import io
import re
import tempfile
import textwrap
from pathlib import Path

import numpy
import torch

from grader.commands import try_module
from grader.core import in_process
from grader.core.machine.observer import Observer
from grader.course import course
from grader.course.gaps import find_gaps, skeleton

CORNER = slice(4)  # the rows and columns that are shown of a tile
CALLED = re.compile(r"(?:\b(?:tl|torch|math)|(?<=[\w)\]]))\.\w+(?=\()")  # `torch.exp`, and `.log` of a tensor


def make_hints(problem):
    """{number of a gap: the lines of each hint} of one problem, whose solution runs in this process."""
    kind, gaps, prints = problem.kind, {}, Prints()
    source = (course.current().solutions / problem.module).read_text(encoding="utf-8")
    lines, given = source.splitlines(), set(re.findall(r"\w+", skeleton(source, problem.module)))
    for gap in reversed(find_gaps(lines, problem.module)):
        tree = ast.parse(textwrap.dedent("\n".join(lines[gap.start : gap.end])))
        made = {name: made for name, made in names_of(tree).items() if name in given}  # others are the reference's own
        gaps[gap.number] = made, list(dict.fromkeys(CALLED.findall(ast.unparse(tree))))
        lines.insert(gap.end - 1, f"{gap.indent}record_gap({gap.number}{''.join(f', {name}={name}' for name in made)})")
    sizes = kind.example_sizes(problem)
    case = kind.small_case(problem, sizes)
    command = " ".join([f"make try P={problem.number}", *(f"{name.upper()}={text}" for name, text in sizes.items())])
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        path = Path(folder, problem.module)
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        with try_module.loaded(problem, path, "cpu") as function, in_process.machine([prints], one_by_one=True):
            function.__globals__["record_gap"], more = prints.recorder(), kind.objects(case, function.__globals__)
            function(*(each.tensor for each in kind.inputs(case, 0)), **case.arguments, **more)
    return {str(n): in_words(f"gap {n}", command, *gaps[n], prints.runs.get(n, {})) for n in sorted(gaps)}


def names_of(tree):
    """{name: whether the code assigns it} of a gap's variables, without those that it assigns below an `if` alone."""
    found = {}
    for statement in tree.body:
        nodes = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
        stored = {node.id for node in nodes if isinstance(node.ctx, ast.Store)}
        unsure = stored if hasattr(statement, "body") and not getattr(statement, "orelse", None) else set()
        for name in (node.id for node in nodes if not (node.id.isupper() or "stride" in node.id)):
            if name in found or name not in unsure:
                found[name] = found.get(name, False) or name in stored
    return found


class Prints(Observer):
    """Keeps the values of one run of each gap, {name: array} in `runs`; a print carries those of a kernel."""

    operations = ("tt.print",)

    def __init__(self):
        self.runs, self.most = {}, {}

    def keep(self, number, values):
        """Keep the first run of a gap, or a later one with more different single numbers."""
        single = len({value.item() for value in values.values() if not value.ndim} - {0})
        if single > self.most.get(number, -1):
            self.most[number], self.runs[number] = single, values

    def recorder(self):
        """What a gap calls with its number and its values."""
        tl = in_process.tl

        def record_gap(number, _semantic=None, **values):
            if _semantic is None:
                plain = {name: x for name, x in values.items() if isinstance(x, torch.Tensor | bool | int | float)}
                return self.keep(number, {name: torch.as_tensor(x).clone().numpy() for name, x in plain.items()})
            blocks = {name: x for name, x in values.items() if isinstance(x, tl.tensor) and not x.dtype.is_ptr()}
            blocks |= {name: x for name, x in values.items() if isinstance(x, tl.constexpr)}
            tl.device_print(" ".join([str(number.value), *blocks]), *blocks.values(), _semantic=_semantic)

        record_gap.__triton_builtin__ = True  # Triton's front end calls it
        return record_gap

    def after(self, operation, frame):
        number, *names = operation.attributes["text"].strip('": ').split()
        printed = zip(names, operation.operands, operation.types, strict=True)
        self.keep(int(number), {name: frame[value].whole(1, kind.shape)[0].numpy() for name, value, kind in printed})


def in_words(gap, command, made, operations, values):
    """[the lines of each hint] on a gap. made: {name: whether the gap assigns it}; values: {name: array} of one run."""
    values = {name: values[name] for name in made if name in values}
    single = [f"{name} = {corner(value)}" for name, value in values.items() if not (value.ndim or made[name])]
    numbers = [f"{name} = {corner(value, len(name) + 3)}" for name, value in values.items() if made[name]]
    shapes = [f"{name} {value.shape}" for name, value in values.items() if value.ndim]
    where = f", where {', '.join(single)}" if single else ""
    first = f"the first numbers that {gap} makes in `{command}`{where}:"
    *most, last = operations or ["operators alone, no function"]
    hints = [[first, *"\n".join(numbers).splitlines()]] if numbers else []
    hints += [[f"shapes in {gap}: {', '.join(shapes)}"]] if shapes else []
    return [*hints, [f"{gap} needs {', '.join(most) + ' and ' if most else ''}{last}"]]


def corner(value, indent=0):
    """The first rows and columns of the first matrix; indent: of the rows after the first."""
    value = value[(0,) * (value.ndim - 2)][(CORNER,) * min(value.ndim, 2)]
    return numpy.array2string(value, precision=4, floatmode="fixed", suppress_small=True, prefix=" " * indent)
