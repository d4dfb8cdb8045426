"""The Request that grade, watch, hint, show and profile make of their arguments."""

import argparse
import difflib
import os
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from grader import failures
from grader.commands import versions
from grader.commands.arguments import BadArguments, check_sandbox, choose_device, choose_problems, choose_targets
from grader.core.sandbox import bubblewrap, kept
from grader.core.sandbox.texts import clean, quoted
from grader.course import course
from grader.course.problem import COMPILES, WORK
from grader.engine.request import Request
from grader.registry import LABS, PROBLEMS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--submission", type=Path, default=course.current().students, help="folder of modules (default: problems/)"
    )
    parser.add_argument("--problems", default="", metavar="LIST", help="like 3 or 3,5-7 (default: all with points)")
    parser.add_argument("--case", metavar="NAME", help='only the cases with this name, like "ragged tail"')
    parser.add_argument("--device", choices=("cpu", "cuda"), help="where to run (default: a GPU if there is one)")
    parser.add_argument("--seed", type=int, default=0, help="other inputs of the same kind (default: 0)")
    parser.add_argument("--targets", metavar="LIST", help="GPUs to compile for (default: sm_80,sm_90)")
    parser.add_argument("--no-compile", action="store_true", help="do not ask whether the kernels compile for a GPU")
    parser.add_argument("--no-hints", action="store_true", help="do not look closer at what is wrong")
    parser.add_argument("--out", type=Path, default=Path("."), metavar="DIR", help="where what is written goes")


def build_request(arguments: argparse.Namespace, case: str | None) -> Request:
    """The checked Request for the case, of the problems that have it, or for all cases; raises BadArguments."""
    check_sandbox()
    folder = arguments.submission
    if not folder.is_dir():
        what = "is a file, not a folder" if folder.exists() else "does not exist"
        raise BadArguments(f"the submission folder {folder} {what}")
    problems = choose_problems(arguments.problems, PROBLEMS, LABS) if arguments.problems else tuple(PROBLEMS.values())
    modules = [problem.module for problem in problems]
    if not any((folder / module).is_file() for module in modules):
        raise BadArguments(f"{folder} has no {' nor '.join(modules)}")
    device, given = choose_device(arguments.device), {"PYTHON": os.environ.get("PYTHON")}
    given |= {"DEVICE": arguments.device, "TARGETS": arguments.targets}
    request = Request(
        folder.resolve(), problems, None if case is None else frozenset([case]), device,
        arguments.seed, default_submission=folder.resolve() == course.current().students,
        options=tuple(f"{name}={quoted(value)}" for name, value in given.items() if value),
        targets=choose_targets(arguments, device), hear_others=not arguments.no_hints, hints=not arguments.no_hints,
    )  # fmt: skip
    if case is None:
        return request
    having = tuple(problem for problem in problems if request.cases(problem) or request.compiles(problem))
    if not having:
        every = replace(request, names=None)
        names = [each.name for problem in problems for each in every.cases(problem)]
        names += [COMPILES] if any(map(every.compiles, problems)) else []
        names += [WORK] if any(map(every.judges_work, problems)) else []
        raise unknown_case(case, names)
    return replace(request, problems=having)


def unknown_case(name: str, names: Iterable[str]) -> BadArguments:
    """What to raise where no case has the name; names: those that there are."""
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return BadArguments(f"no case is named {name!r}; {hint}The cases are: {'; '.join(dict.fromkeys(names))}")


def name_file(*words: str) -> str:
    """`show`, `p6`, `ragged tail` -> `show-p6-ragged-tail`"""
    return "-".join(re.sub("[^a-z0-9]+", "-", word.lower()).strip("-") for word in words)


def begin(request: Request, folder: Path) -> None:
    """Make the folder for what is written, say what may make verdicts worse, and begin the log of failures.

    Raises BadArguments where the folder cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadArguments(f"the folder {folder} for results.json cannot be made: {error.strerror}") from None
    for warning in filter(None, (versions.warning(), bubblewrap.new_warning(request.device))):
        print(warning, file=sys.stderr)
    failures.begin(folder)
    kept.use() if request.seed == 0 and not request.private_seed else None


def run_one(arguments: argparse.Namespace, case: str | None, example: str, run: Callable[[Request, Path], int]) -> int:
    """The exit status of run(request, folder for what it writes), for a command that takes one problem.

    Raises BadArguments, with the example of a command, where the arguments name none or several.
    """
    request = build_request(arguments, case)
    if not arguments.problems or len(request.problems) > 1:
        having = f"choose one of {', '.join(f'P={problem.number}' for problem in request.problems)}"
        raise BadArguments(f"this takes one problem: {having if arguments.problems else 'name it'}, like {example}")
    begin(request, arguments.out)
    status = run(request, arguments.out)
    if said := failures.in_words(failures.counted(), arguments.out):
        print(clean(said), file=sys.stderr)
    return status
