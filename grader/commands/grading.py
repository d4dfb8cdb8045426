"""The command behind `make grade` and `make watch`: grade, show, and write what is kept."""

import os
import time

from grader import score
from grader.core.sandbox.texts import clean
from grader.diagnosis import failures
from grader.engine import grade
from grader.render import gradescope, terminal
from grader.result import Outcome

LOOK_SECONDS = 0.3  # between two looks at a file that is watched


def run(request, folder, verbose=False):
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
    lanes = max(1, min(cores // 4 if request.device == "cuda" else cores, len(request.problems)))
    started = time.perf_counter()
    with terminal.make_progress(console, total) as progress:

        def on_case(problem, name):
            progress.update(progress.task_ids[0], advance=1, description=f"{problem.id} {name}")

        def on_look(problem, words):
            progress.update(progress.task_ids[0], description=f"{problem.id} {words}")

        results = grade(request, lanes, on_case, on_look)
    seconds = time.perf_counter() - started
    if request.names is None:  # first of all: whatever cannot be shown, the results are there
        gradescope.write(results, folder / "results.json")
    terminal.show(console, results, request, seconds, verbose)
    lines = [f"details: {folder / 'results.json'}"] if request.names is None else []
    lines += [write_report(results, request, seconds, folder / "report.html")]
    lines += filter(None, [failures.in_words(failures.counted(), folder)])
    for line in lines:
        console.print(clean(line), markup=False, soft_wrap=True)
    if any(result.outcome is Outcome.GRADER_FAULT for result in results):
        return 2
    return 0 if score.passed(results) else 1


def watch(request, folder, verbose=False):
    """Grade, and grade again whenever one of the modules is saved; returns 0 at Ctrl-C."""
    console = terminal.make_console()
    names = ", ".join(problem.module for problem in request.problems)
    try:
        while True:
            before = find_states(request)
            run(request, folder, verbose)
            console.print(f"watching {names}: save it to have it graded again; Ctrl-C ends", markup=False)
            while find_states(request) == before:
                time.sleep(LOOK_SECONDS)
            console.print(f"\n{time.strftime('%H:%M:%S')} saved", markup=False)
    except KeyboardInterrupt:
        console.print()
        return 0


def find_states(request):
    """What tells whether a module was saved: when it changed, and how long it is; None where it is missing."""
    paths = [request.submission / problem.module for problem in request.problems]
    return [(path.stat().st_mtime_ns, path.stat().st_size) if path.is_file() else None for path in paths]


def write_report(results, request, seconds, path):
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
