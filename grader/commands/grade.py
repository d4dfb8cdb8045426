"""The command behind `make grade`: grade, show the results, and write what is kept."""

import argparse
import os
import time
from pathlib import Path

from grader import score
from grader.commands.make_request import add_arguments as add_request_arguments
from grader.commands.make_request import begin, build_request
from grader.core.sandbox.texts import clean
from grader.diagnosis import failures
from grader.engine.grading import grade
from grader.engine.request import Request
from grader.render import gradescope, terminal
from grader.result import Outcome, Result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_request_arguments(parser)
    parser.add_argument("--verbose", action="store_true", help="show every failing case whole, not the first alone")


def main(arguments: argparse.Namespace) -> int:
    request = build_request(arguments, arguments.case)
    begin(request, arguments.out)
    return run(request, arguments.out, arguments.verbose)


def run(request: Request, folder: Path, verbose: bool = False) -> int:
    """Grade; returns the exit status: 0 all passed, 1 not all, 2 a fault of ours. verbose: as in terminal.show."""
    console = terminal.make_console()
    failures.begin(folder)
    total = sum(
        len(request.cases(p))
        + request.judges_work(p)
        + request.compiles(p)
        + bool(p.speed_case and request.names is None)
        for p in request.problems
    )
    cores = os.cpu_count() or 1
    lanes = max(1, cores // 4 if request.device == "cuda" else cores)
    started = time.perf_counter()
    with terminal.make_progress(console, total) as progress:

        def on_case(problem, name):
            progress.update(progress.task_ids[0], advance=1, description=f"{problem.id} {name}")

        def on_look(problem, words):
            progress.update(progress.task_ids[0], description=f"{problem.id} {words}")

        results = grade(request, lanes, on_case, on_look)
    seconds = time.perf_counter() - started
    if request.names is None:  # first of all: whatever cannot be shown, the results are there
        gradescope.write(results, folder / "results.json", failures.counted())
    terminal.show(console, results, request, seconds, verbose)
    lines = [f"details: {folder / 'results.json'}"] if request.names is None else []
    lines += [write_report(results, request, seconds, folder / "report.html")]
    lines += filter(None, [failures.in_words(failures.counted(), folder)])
    for line in lines:
        console.print(clean(line), markup=False, soft_wrap=True)
    if any(result.outcome is Outcome.GRADER_FAULT for result in results):
        return 2
    return 0 if score.passed(results) else 1


def write_report(results: list[Result], request: Request, seconds: float, path: Path) -> str:
    """Write the page; returns the line to print. Whatever goes wrong with it, the verdicts stand."""
    try:
        from grader.render import html

        html.write(results, request, seconds, path)
    except ModuleNotFoundError as error:
        return f"{path.name} was not written: {error.name} is missing (pip install {error.name})"
    except Exception as error:
        failures.log("the page", error)
        return f"{path.name} was not written, and that is the grader's fault: {type(error).__name__}: {error}"
    return f"pictures: {path}"
