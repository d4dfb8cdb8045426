"""The command behind `make show`: one case in a picture and in words, passed or not."""

import argparse
import os
import sys
import webbrowser
from pathlib import Path

from rich.console import Console

from grader.commands.arguments import BadArguments
from grader.commands.make_request import add_arguments, name_file, run_one
from grader.core.sandbox.texts import clean
from grader.engine.grading import grade
from grader.engine.request import Request
from grader.render import drawing, terminal
from grader.result import Outcome, Result

__all__ = ["add_arguments", "main"]
EXAMPLE = 'make show P=6 CASE="ragged tail"'


def main(arguments: argparse.Namespace) -> int:
    """Draw one case of one problem; raises BadArguments where another number of them is asked for."""
    if arguments.case is None:
        raise BadArguments(f"a picture is of one problem and one case: give both, like {EXAMPLE}")
    return run_one(arguments, arguments.case, EXAMPLE, run)


def run(request: Request, folder: Path) -> int:
    """Run one case and draw it; returns the exit status: 0 with a picture, 1 without, 2 for a fault of ours."""
    console = terminal.make_console()
    *_, result = grade(request, 1)  # work comes after the cases that it is judged over
    terminal.show_one(console, result)
    drawings = drawing.draw_case(result.facts.picture)
    if not drawings:
        fault = result.facts.picture.get("fault")
        why = f"the grader failed to make it: {fault}" if fault else "nothing came back that could be drawn"
        console.print(f"no picture: {why}", markup=False, soft_wrap=True)
        return 2 if fault or result.outcome is Outcome.GRADER_FAULT else 1
    if request.device == "cuda" and request.problems[0].uses_triton:
        console.print("what a kernel visits is seen on the CPU alone: DEVICE=cpu draws that too")
    path = folder / f"{name_file('show', result.problem, result.case)}.png"
    return 0 if write_picture(console, result, drawings, path) else 1


def write_picture(console: Console, result: Result, drawings: list[drawing.Drawing], path: Path) -> bool:
    """Write it as a PNG, say so and show it; False where that needs a package that is not there."""
    try:
        from grader.render import png
    except ModuleNotFoundError as error:
        console.print(f"no picture: {error.name} is missing (pip install {error.name})")
        return False
    png.write(result, drawings, path)
    console.print(clean(f"picture: {path}"), markup=False, soft_wrap=True)
    if sys.stdout.isatty() and (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        webbrowser.open(path.resolve().as_uri())  # a person sits at a desktop
    return True
