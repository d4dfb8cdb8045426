"""The command behind `make grade`: grade, show the results, and write what is kept."""

import argparse
import os
import time
from pathlib import Path

from rich.console import Console

from grader import failures, score
from grader.commands.make_request import add_arguments as add_request_arguments
from grader.commands.make_request import begin, build_request
from grader.core.sandbox.texts import clean
from grader.engine.grading import grade
from grader.engine.request import Request
from grader.render import gradescope, terminal
from grader.result import Outcome, Result

OPEN = {Outcome.PASSED, Outcome.UNFINISHED, Outcome.NOT_RUN}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_request_arguments(parser)
    parser.add_argument("--verbose", action="store_true", help="show every failing case whole, not the first alone")
    parser.add_argument("--begun", action="store_true", help="fail only where a problem that was begun does not pass")


def main(arguments: argparse.Namespace) -> int:
    request = build_request(arguments, arguments.case)
    begin(request, arguments.out)
    return find_status(run(request, arguments.out, arguments.verbose), arguments.begun)


def run(request: Request, folder: Path, verbose: bool = False) -> list[Result]:
    """Grade and print the results, which are returned. verbose: as in terminal.show."""
    console = terminal.make_console()
    failures.begin(folder)
    cores = os.cpu_count() or 1
    started = time.perf_counter()
    results = grade_visibly(console, request, max(1, cores // 2 if request.device == "cuda" else cores))
    seconds = time.perf_counter() - started
    if request.names is None:  # first of all: whatever cannot be shown, the results are there
        gradescope.write(results, folder / "results.json", failures.counted())
    terminal.show(console, results, request, seconds, verbose)
    lines = [f"details: {folder / 'results.json'}"] if request.names is None else []
    lines += [write_report(results, request, seconds, folder / "report.html")]
    lines += filter(None, [failures.in_words(failures.counted(), folder)])
    for line in lines:
        console.print(clean(line), markup=False, soft_wrap=True)
    return results


def find_status(results: list[Result], begun: bool = False) -> int:
    """The exit status: 0 all passed, 1 not all, 2 a fault of ours.

    begun: 1 only where a problem that was begun does not pass.
    """
    if any(result.outcome is Outcome.GRADER_FAULT for result in results):
        return 2
    if begun:
        sentence, failing = judge_begun(results)
        print(clean(sentence))
        return int(failing)
    return 0 if score.passed(results) else 1


def judge_begun(results: list[Result]) -> tuple[str, bool]:
    """(a sentence, whether a problem that was begun fails), for a check on each push while a student works."""
    outcomes = {id.upper(): {each.outcome for each in group} for id, group in score.by_problem(results).items()}
    if failing := [id for id, found in outcomes.items() if found - OPEN]:
        return f"To mend: {', '.join(failing)}.", True
    begun = [id for id, found in outcomes.items() if Outcome.UNFINISHED not in found]
    nothing = "Nothing is solved yet: fill in the gaps in problems/."
    return f"All that was begun passes: {', '.join(begun)}." if begun else nothing, False


def grade_visibly(console: Console, request: Request, lanes: int = 1) -> list[Result]:
    """The results of a request, while a line on the terminal says how far it is."""
    total = sum(
        len(request.cases(problem)) + request.judges_work(problem) + request.compiles(problem)
        + bool(problem.speed_case and request.names is None) for problem in request.problems
    )  # fmt: skip
    with terminal.make_progress(console, total) as progress:
        (task,) = progress.task_ids

        def on_case(problem, name):
            progress.update(task, advance=1, description=f"{problem.id} {name}")

        def on_look(problem, words):
            progress.update(task, description=f"{problem.id} {words}")

        return grade(request, lanes, on_case, on_look)


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
