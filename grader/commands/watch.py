"""The command behind `make watch`: grade, and grade again whenever one of the modules is saved.

The case that failed first is graded before all others, alone, and nothing else until it passes.
"""

import argparse
import time
from dataclasses import replace

from grader.commands import grade
from grader.commands.make_request import begin, build_request
from grader.engine.request import Request
from grader.render import terminal
from grader.result import Aspect, Outcome, Result

LOOK_SECONDS = 0.3  # between two looks at the files
add_arguments = grade.add_arguments


def main(arguments: argparse.Namespace) -> int:
    """Grade until Ctrl-C, which is no failure."""
    request, console = build_request(arguments, arguments.case), terminal.make_console()
    begin(request, arguments.out)
    names = ", ".join(dict.fromkeys(problem.module for problem in request.problems))
    failed: Request | None = None
    try:
        while True:
            before = find_states(request)
            if failed and failed.names != request.names:
                failed = find_failed(request, grade.run(failed, arguments.out, arguments.verbose))
            else:
                failed = None
            failed = failed or find_failed(request, grade.run(request, arguments.out, arguments.verbose))
            first = f", first the case {', '.join(failed.names or ())!r}" if failed else ""
            console.print(f"watching {names}{first}: save it to have it graded again; Ctrl-C ends", markup=False)
            while find_states(request) == before:
                time.sleep(LOOK_SECONDS)
            console.print(f"\n{time.strftime('%H:%M:%S')} saved", markup=False)
    except KeyboardInterrupt:
        console.print()
        return 0


FINE = (Outcome.PASSED, Outcome.WASTEFUL, Outcome.NOT_RUN)


def find_failed(request: Request, results: list[Result]) -> Request | None:
    """The same request for the first case alone that is not right; None where each is."""
    for result in results:
        if result.aspect is Aspect.CORRECT and result.outcome not in FINE:
            problem = next(problem for problem in request.problems if problem.id == result.problem)
            return replace(request, problems=(problem,), names=frozenset([result.case]), targets=())
    return None


def find_states(request: Request) -> list[tuple[int, int] | None]:
    """What tells whether a module was saved: when it changed, and how long it is; None where it is missing."""
    paths = [request.submission / problem.module for problem in request.problems]
    return [(path.stat().st_mtime_ns, path.stat().st_size) if path.is_file() else None for path in paths]
