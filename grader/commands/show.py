"""The command behind `make show`: one case in a picture and in words, passed or not."""

import os
import re
import shutil
import subprocess
import sys

from grader.core.sandbox.texts import clean
from grader.engine import grade
from grader.render import drawing, terminal
from grader.result import Outcome


def run(request, folder):
    """Run one case and draw it; returns the exit status: 0 with a picture, 1 without, 2 for a fault of ours."""
    console = terminal.make_console()
    *_, result = grade(request, 1)  # work comes after the cases that it is judged over
    terminal.show_one(console, result)
    drawings = drawing.draw_case(result.facts.get("picture") or {})
    if not drawings:
        fault = (result.facts.get("picture") or {}).get("fault")
        why = (
            "nothing came back that could be compared"
            if result.outcome is not Outcome.PASSED
            else "none is to be drawn"
        )
        why = f"the grader failed to make it: {fault}" if fault else why
        console.print(f"no picture: {why}", markup=False, soft_wrap=True)
        return 2 if fault or result.outcome is Outcome.GRADER_FAULT else 1
    if request.device == "cuda" and request.problems[0].uses_triton:
        console.print("what a kernel visits is seen in the interpreter alone: DEVICE=cpu draws that too")
    path = folder / f"show-{result.problem}-{re.sub('[^a-z0-9]+', '-', result.case.lower()).strip('-')}.png"
    return 0 if write_picture(console, result, drawings, path) else 1


def write_picture(console, result, drawings, path):
    """Write it as a PNG, say so and show it; False where that needs a package that is not there."""
    try:
        from grader.render import png
    except ModuleNotFoundError as error:
        console.print(f"no picture: {error.name} is missing (pip install {error.name})")
        return False
    png.write(result, drawings, path)
    console.print(clean(f"picture: {path}"), markup=False, soft_wrap=True)
    open_on_desktop(path)
    return True


def open_on_desktop(path):
    """Show the file in the desktop's own viewer, where a person sits at one."""
    desktop = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if sys.stdout.isatty() and desktop and shutil.which("xdg-open"):
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.Popen(["xdg-open", str(path)], start_new_session=True, **quiet)
