"""The command behind `make hint`: hints on what fails first, one more each time it is asked; never the code.

What make grade has said is not said again.
"""

import argparse
import re
from dataclasses import replace
from pathlib import Path

from grader import registry
from grader.commands import hint_record, skeletons
from grader.commands.grade import grade_visibly
from grader.commands.make_request import add_arguments, run_one
from grader.core.sandbox.texts import clean
from grader.course.problem import COMPILES
from grader.engine.request import Request
from grader.render import terminal, text_map
from grader.result import Outcome

__all__ = ["add_arguments", "main"]
NO_NEWS = ("o visited", "o visible")  # a map with these marks alone
SILENT = (Outcome.PASSED, Outcome.NOT_RUN)
ENDED = (Outcome.CRASHED, Outcome.TIMED_OUT)  # before anything was visited as it should be


def main(arguments: argparse.Namespace) -> int:
    """Give a hint on one problem; raises BadArguments where it is not said which."""
    return run_one(arguments, arguments.case, "make hint P=6", run)


def run(request: Request, folder: Path) -> int:
    """Grade one problem and give a hint; returns the exit status: 0, or 2 for a fault of ours."""
    console, (problem,) = terminal.make_console(), request.problems
    results = grade_visibly(console, replace(request, targets=()))
    if request.targets and all(result.outcome in SILENT for result in results):
        results += grade_visibly(console, replace(request, names=frozenset({COMPILES})))
    result = next((each for each in terminal.explained_first(results) if each.outcome not in SILENT), None)
    if result is None:
        passed = any(each.outcome is Outcome.PASSED for each in results)
        say(console, f"{problem.id}: {'every case passes, no hint is needed' if passed else results[0].sentence}")
        return 0
    say(console, f'{result.problem} "{result.case}" ({result.description}): {result.outcome.value}')
    if result.outcome is Outcome.GRADER_FAULT:
        say(console, f"  {result.sentence}")
        return 2
    hints = in_words(result) + draw_right(request, problem, result)
    if not hints:
        say(console, f"  no hint says more than make grade does: {result.sentence} {result.facts.question}".rstrip())
        return 0
    step = count_step(request, result, len(hints))
    for number, (first, *rest) in enumerate(hints[:step], 1):
        say(console, f"  hint {number} of {len(hints)}: {first}")
        terminal.show_map(console, rest)
    say(console, "  one more: the same command" if step < len(hints) else "  there are no more hints")
    return 0


def say(console, words):
    console.print(clean(words), markup=False, soft_wrap=True)


def in_words(result):
    """[lines of a hint]: what was measured beside the sentence of make grade, what to read, the gap, what to try."""
    gap, problem = re.match(r"TODO (\d+): ", result.sentence), registry.EVERY[result.problem]
    hints = [[f"measured: {said}"] for said in result.facts.measured if said not in result.sentence]
    hints += [[f"read {result.facts.section}"]] if result.facts.section else []
    if result.outcome is Outcome.UNFINISHED and gap:  # a student may number gaps of their own
        hints += skeletons.load_hints().get(problem.module, {}).get(gap[1], [])
    if result.outcome is Outcome.CRASHED and result.aspect.concerns_case:
        hints += [[f"put a print before that line, look at shapes and dtypes, and call make try P={problem.number}"]]
    return hints


def draw_right(request, problem, result):
    """[lines of a hint]: a map of what a right kernel visits in the case that failed; [] where it shows nothing."""
    kind, cases = problem.kind, request.cases(problem)
    if result.outcome in ENDED or not cases:
        return []
    case = next((case for case in cases if case.name == result.case), kind.long_case(cases) or cases[0])
    right, lines = kind.right_picture(case, result.facts.picture) or {}, []
    if "visits" in right:
        lines = ["the tiles that a right kernel visits, and where it needs a mask", *text_map.draw_visits(right)]
    elif "shown" in right:
        lines = ["what each query sees", *text_map.draw_mask(right)]
    return [lines] if lines and lines[-1] not in NO_NEWS else []


def count_step(request, result, most):
    """How many hints to give on what fails: one more than last time on this case, its causes or else its words.

    All, where the folder cannot keep how many there were.
    """
    said = re.sub(r"-?\d+(\.\d+)?(e[-+]?\d+)?", "#", (result.facts.measured or [result.sentence])[0])
    kinds = sorted(cause.kind for cause in result.facts.causes) or [said]
    try:
        failure = f"{result.case}, {result.outcome.value}: {'; '.join(kinds)}"
        return hint_record.count_one(request.submission, result.problem, failure)
    except OSError:
        return most
