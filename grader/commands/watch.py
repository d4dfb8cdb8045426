"""The command behind `make watch`: grade, and grade again whenever one of the modules is saved."""

import argparse
import time

from grader.commands import grade
from grader.commands.make_request import begin, build_request
from grader.engine.request import Request
from grader.render import terminal

LOOK_SECONDS = 0.3  # between two looks at the files
add_arguments = grade.add_arguments


def main(arguments: argparse.Namespace) -> int:
    """Grade until Ctrl-C, which is no failure."""
    request, console = build_request(arguments, arguments.case), terminal.make_console()
    begin(request, arguments.out)
    names = ", ".join(dict.fromkeys(problem.module for problem in request.problems))
    try:
        while True:
            before = find_states(request)
            grade.run(request, arguments.out, arguments.verbose)
            console.print(f"watching {names}: save it to have it graded again; Ctrl-C ends", markup=False)
            while find_states(request) == before:
                time.sleep(LOOK_SECONDS)
            console.print(f"\n{time.strftime('%H:%M:%S')} saved", markup=False)
    except KeyboardInterrupt:
        console.print()
        return 0


def find_states(request: Request) -> list[tuple[int, int] | None]:
    """What tells whether a module was saved: when it changed, and how long it is; None where it is missing."""
    paths = [request.submission / problem.module for problem in request.problems]
    return [(path.stat().st_mtime_ns, path.stat().st_size) if path.is_file() else None for path in paths]
