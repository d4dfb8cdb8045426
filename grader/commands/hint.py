"""The command behind `make hint`: of what fails first the next hint, one each time it is asked; never the code.

What make grade has said is not said again.
"""

import argparse
import functools
import hashlib
import re
from dataclasses import replace
from pathlib import Path

from grader.commands import gap_examples, hint_record, show
from grader.commands.arguments import BadArguments
from grader.commands.make_request import add_arguments, begin, build_request, say_failures
from grader.core.sandbox.texts import clean
from grader.course.problem import COMPILES
from grader.engine.grading import grade
from grader.engine.request import Request
from grader.kinds import registry
from grader.render import drawing, terminal, text_map
from grader.result import Outcome

__all__ = ["add_arguments", "main"]
NO_NEWS = ("o visited", "o visible")  # a map with these marks alone
SILENT = (Outcome.PASSED, Outcome.NOT_RUN)
ENDED = (Outcome.CRASHED, Outcome.TIMED_OUT)  # before anything was visited as it should be


def main(arguments: argparse.Namespace) -> int:
    """Give a hint on one problem; raises BadArguments where it is not said which."""
    request = build_request(arguments, arguments.case)
    if not arguments.problems or len(request.problems) > 1:
        raise BadArguments("hints are on one problem: name it, like make hint P=6")
    begin(request, arguments.out)
    status = run(request, arguments.out)
    say_failures(arguments.out)
    return status


def run(request: Request, folder: Path) -> int:
    """Grade one problem and give a hint; returns the exit status: 0, or 2 for a fault of ours."""
    console, (problem,) = terminal.make_console(), request.problems
    with terminal.make_progress(console, len(request.cases(problem))) as progress:
        told = functools.partial(progress.update, progress.task_ids[0], advance=1)
        results = grade(replace(request, targets=()), 1, lambda _, name: told(description=name))
        if request.targets and all(result.outcome in SILENT for result in results):
            results += grade(replace(request, names=frozenset({COMPILES})), 1)
    failing = [result for result in terminal.explained_first(results) if result.outcome not in SILENT]
    if not failing:
        passed = any(result.outcome is Outcome.PASSED for result in results)
        console.print(f"{problem.id}: " + ("every case passes, no hint is needed" if passed else results[0].sentence))
        return 0
    result = failing[0]
    say = functools.partial(console.print, markup=False, soft_wrap=True)
    say(f'{result.problem} "{result.case}" ({result.description}): {result.outcome.value}')
    if result.outcome is Outcome.GRADER_FAULT:
        say(f"  {result.sentence}")
        return 2
    right = right_picture(request, problem, result)
    hints = in_words(result) + ([map_of(right)] if right else [])
    if not hints:
        say(f"  no hint says more than make grade does: {result.sentence}")
        return 0
    try:
        now = hint_record.next_step(request.submission, problem.id, failure_of(result, hints))
    except OSError as error:
        say(f"  it cannot be kept which hints you had: {error.strerror}; here is the first")
        now = hint_record.HintRecord(step=1, total=1)
    given = hints if now.step > len(hints) else hints[now.step - 1 : now.step]
    if now.step > len(hints):
        say("  there are no more hints; all of them again:" if len(hints) > 1 else "  there is no other hint:")
    for number, lines in enumerate(given, min(now.step, len(hints)) if len(given) == 1 else 1):
        first, *rest = lines
        say(clean(f"  hint {number} of {len(hints)}: {first}"))
        terminal.show_map(console, rest)
    if right and now.step >= len(hints):
        sentence = "The tiles that a right kernel visits." if "visits" in right else "What the mask shows."
        shown = replace(result, sentence=sentence)
        show.write_picture(console, shown, drawing.draw_case(right), folder / f"hint-{problem.id}.png")
    elif now.step < len(hints):
        say("  one more: the same command")
    return 0


def in_words(result):
    """[lines of a hint]: what was measured beside the sentence of make grade, what to read, the operations of a gap."""
    facts = result.facts
    hints = [[f"measured: {said}"] for said in facts.measured if said not in result.sentence]
    hints += [[f"read {facts.section}"]] if facts.section else []
    hints += hint_at_gap(result)
    if result.outcome is Outcome.CRASHED and result.aspect.concerns_case and result.problem in registry.PROBLEMS:
        module, number = registry.EVERY[result.problem].module, result.problem.removeprefix("p")
        line = re.search(rf"{re.escape(module)}:(\d+)", result.sentence)
        where = f"line {line[1]} of {module}" if line else "that line"
        hints += [[f"put a print before {where}, look at shapes and dtypes, and call make try P={number}"]]
    return hints


def hint_at_gap(result):
    """[lines of a hint] on the gap that is open: what the reference makes there, the shapes, what it calls."""
    gap = re.match(r"TODO (\d+): ", result.sentence)
    if result.outcome is not Outcome.UNFINISHED or not gap:
        return []
    example = gap_examples.load().get(registry.EVERY[result.problem].module, {}).get(gap[1])
    if example is None:  # the student numbers gaps of their own
        return []
    hints = []
    if example.numbers:
        taken = ", ".join(each for each in example.takes if "=" in each)
        given = f", where {taken}" if taken else ""
        made = f"the first numbers that gap {gap[1]} makes in `{example.command}`{given}:"
        hints += [[made, *(f"  {line}" for line in example.numbers)]]
    if any("(" in each for each in example.takes):
        shapes = f"gap {gap[1]} takes {', '.join(example.takes)}"
        hints += [[shapes + (f"; it makes {', '.join(example.makes)}" if example.makes else "")]]
    *most, last = example.operations or ["operators alone, no function"]
    return [*hints, [f"gap {gap[1]} needs {', '.join(most) + ' and ' if most else ''}{last}"]]


def right_picture(request, problem, result):
    """The picture of what a right kernel visits in the case that failed, or None where it shows nothing."""
    if result.outcome in ENDED:
        return None
    kind, cases = registry.kind_of(problem), request.cases(problem)
    case = next(
        (case for case in cases if case.name == result.case), kind.long_case(cases) or cases[0] if cases else None
    )
    right = kind.right_picture(case, result.facts.picture) if case else None
    drawn = right and right.keys() & {"visits", "shown"}
    return right if drawn and map_of(right)[-1] not in NO_NEWS else None


def map_of(right):
    if "visits" in right:
        return ["the tiles that a right kernel visits, and where it needs a mask", *text_map.draw_visits(right)]
    return ["what each query sees", *text_map.draw_mask(right)]


def failure_of(result, hints):
    """A hash that is the same as long as the same goes wrong in one case, by causes or words, and has as many hints."""
    kinds = sorted(cause.kind for cause in result.facts.causes)
    words = (result.facts.measured or [result.sentence])[0]
    said = [result.case, str(len(hints)), result.outcome.value, *(kinds or [re.sub(r"[-\d.e]+", "#", words)])]
    return hashlib.sha256("\n".join(said).encode()).hexdigest()[:16]
