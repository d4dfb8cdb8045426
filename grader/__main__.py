"""The command behind `make grade`: python -m grader. Exit status 0 all passed, 1 not all, 2 a fault of ours or of the
arguments."""

import difflib
import os
import sys
from dataclasses import replace
from pathlib import Path

from grader.commands import versions
from grader.commands.arguments import (
    BadArguments,
    Parser,
    check_sandbox,
    choose_device,
    choose_problems,
    choose_targets,
)
from grader.core.sandbox import scratch
from grader.core.sandbox.texts import clean, quoted
from grader.diagnosis import failures

ROOT = Path(__file__).resolve().parent.parent


def parse(argv):
    parser = Parser(prog="python -m grader", description="Grade a folder of submissions.", allow_abbrev=False)
    parser.add_argument("--submission", type=Path, help="folder with some or all of the modules (default: problems/)")
    parser.add_argument("--problems", default="", metavar="LIST", help="like 3, 3,5-7 or x1 (default: all but labs)")
    parser.add_argument("--case", metavar="NAME", help='only the cases with this name, like "ragged tail"')
    parser.add_argument("--device", choices=("cpu", "cuda"), help="where to run (default: a GPU if there is one)")
    parser.add_argument("--seed", type=int, default=0, help="other inputs of the same kind (default: 0)")
    parser.add_argument(
        "--targets", metavar="LIST", help="GPUs to compile for, like sm_80,gfx942 (default: sm_80,sm_90)"
    )
    parser.add_argument("--no-compile", action="store_true", help="do not ask whether the kernels compile for a GPU")
    parser.add_argument("--verbose", action="store_true", help="show every failing case whole, not the first alone")
    parser.add_argument("--no-hints", action="store_true", help="do not look closer at what is wrong")
    parser.add_argument("--out", type=Path, default=Path("."), metavar="DIR", help="where what is written goes")
    parser.add_argument("--show", action="store_true", help="draw one case of one problem instead of grading")
    parser.add_argument("--watch", action="store_true", help="grade again whenever a module is saved, until Ctrl-C")
    parser.add_argument("--hint", action="store_true", help="give the next hint on one problem instead of a grade")
    parser.add_argument("--profile", action="store_true", help="look inside one kernel with Nsight Compute instead")
    return parser.parse_args(argv)


def build_request(options):
    """The checked Request; raises BadArguments."""
    from grader.engine import Request
    from grader.kinds.registry import LABS, PROBLEMS

    submission = options.submission or ROOT / "problems"
    if not submission.is_dir():
        what = "is a file, not a folder" if submission.exists() else "does not exist"
        raise BadArguments(f"the submission folder {submission} {what}")
    problems = choose_problems(options.problems, PROBLEMS, LABS) if options.problems else tuple(PROBLEMS.values())
    modules = [problem.module for problem in problems]
    if not any((submission / module).is_file() for module in modules):
        raise BadArguments(f"{submission} has no {' nor '.join(modules)}")
    device = choose_device(options.device)
    default = submission.resolve() == (ROOT / "problems").resolve()
    names = None if options.case is None else frozenset([options.case])
    again = [f"PYTHON={quoted(os.environ['PYTHON'])}"] if os.environ.get("PYTHON") else []
    again += [f"DEVICE={options.device}"] if options.device else []
    again += [f"TARGETS={quoted(options.targets)}"] if options.targets else []
    targets = choose_targets(options, device)
    request = Request(
        submission.resolve(), problems, names, device, options.seed, default, tuple(again), targets,
        hear_others=not options.no_hints, hints=not options.no_hints,
    )  # fmt: skip
    if options.profile:
        check_profile(options, request)
    elif options.case is not None:
        having = tuple(problem for problem in problems if request.cases(problem) or request.compiles(problem))
        if not having:
            raise BadArguments(unknown_case(options.case, request))
        request = replace(request, problems=having)
    if options.hint and (not options.problems or len(request.problems) > 1):
        raise BadArguments("hints are on one problem: name it, like make hint P=6")
    if options.show:
        check_show(options, request)
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadArguments(f"the folder {options.out} for results.json cannot be made: {error.strerror}") from None
    return request


def check_show(options, request):
    """Raise BadArguments unless one case of one problem is asked for."""
    example = 'like make show P=6 CASE="ragged tail"'
    if not options.problems or options.case is None:
        raise BadArguments(f"a picture is of one problem and one case: give both, {example}")
    if len(request.problems) > 1:
        having = ", ".join(f"P={problem.number}" for problem in request.problems)
        raise BadArguments(f"{options.case!r} is a case of several problems: choose one of {having}, {example}")


def check_profile(options, request):
    """Raise BadArguments unless one problem with kernels is asked for, one of its cases or none, and a GPU is here."""
    from grader.commands import profile as command

    if not options.problems or len(request.problems) > 1:
        raise BadArguments("a profile is of one problem: name it, like make profile P=4")
    (problem,) = request.problems
    if not problem.uses_triton:
        raise BadArguments(
            f"P={problem.number} has no kernel of its own to look into: PyTorch launches one of its own for each step; "
            "P=3 is the first that has"
        )
    if not problem.points:
        raise BadArguments(f"P={problem.number} is a lab: a profile is of P=3 to P=7, and speaks of the forward pass")
    if command.choose_case(problem, options.case) is None:
        raise BadArguments(unknown_case(options.case, replace(request, device="cuda", targets=()), ("speed",)))
    if request.device != "cuda":
        why = "DEVICE=cpu asks for none" if options.device else "PyTorch sees none here"
        compiles = f'make grade P={problem.number} CASE="compiles" DEVICE=cpu'
        raise BadArguments(f"a profile needs a GPU, and {why}; {compiles} shows what the compiler knows without one")


def unknown_case(name, request, more=()):
    from grader.course.problem import COMPILES, WORK

    every = replace(request, names=None)
    names = list(dict.fromkeys(case.name for problem in request.problems for case in every.cases(problem)))
    names += [COMPILES] if any(map(every.compiles, request.problems)) else []
    names += [WORK] if any(map(every.judges_work, request.problems)) else []
    names += more
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"no case is named {name!r}; {hint}The cases are: {'; '.join(names)}"


def main(argv=None):
    scratch.choose_own_folder()
    try:
        options = parse(argv)
        check_sandbox()
        request = build_request(options)
    except BadArguments as error:
        print(clean(f"grader: {error}"), file=sys.stderr)
        return 2
    from grader.core.sandbox import bubblewrap

    for warning in filter(None, (versions.warning(), bubblewrap.warning(request.device))):
        print(warning, file=sys.stderr)
    failures.begin(options.out)
    if options.show or options.hint:
        from grader.commands import hint, show

        status = show.run(request, options.out) if options.show else hint.run(replace(request, targets=()), options.out)
        if said := failures.in_words(failures.counted(), options.out):
            print(clean(said), file=sys.stderr)
        return status
    if options.profile:
        from grader.commands import profile as command

        return command.run(request, command.choose_case(request.problems[0], options.case), options.out)
    from grader.commands import grading

    if options.watch:
        return grading.watch(request, options.out, options.verbose)
    return grading.run(request, options.out, options.verbose)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\nstopped; nothing was graded", flush=True)
        os._exit(130)  # the threads that waited for the children have nothing more to do
