"""The command behind `make try`: a student's file called as it is, on small tensors, for prints and debuggers.

Its numbers are shown beside the right ones, up to the first row that differs. Nothing is judged or recorded.
Kernels run in this process, in the grader's machine or on a GPU. `breakpoint()` stops in the wrapper, not in a kernel.
Run it only on a file of your own.
"""

import argparse
import contextlib
import functools
import io
import re
import runpy
import sys
from pathlib import Path

from grader.commands.arguments import BadArguments, choose_device, choose_problems
from grader.course import course

TILES, VARIABLE = ("BLOCK_Q", "BLOCK_K"), "TILES_INTERPRETER"  # its first two numbers
NO_DIFFERENCE = "no difference here; make grade also tries larger tensors of several tiles, and other numbers and masks"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--problems", default="", metavar="NUMBER", help="of one problem, like 6")
    parser.add_argument("--submission", type=Path, default=course.current().students, help="default: problems/")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: a GPU if there is one")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", default="", metavar="NAMES", help="the kernel's variables by tiles, like row_max,acc")
    parser.add_argument("--program", type=int, default=0, help="whose variables these are (default: 0)")
    parser.add_argument("--size", action="append", default=[], metavar="NAME=VALUE", help="of the tensors, like N=100")


def main(arguments: argparse.Namespace) -> int:
    """Call one problem's module and print its numbers beside the right ones; 0 whatever they are."""
    device = choose_device(arguments.device)
    import torch

    from grader.registry import LABS, PROBLEMS

    chosen = choose_problems(arguments.problems, PROBLEMS, LABS) if arguments.problems else ()
    if len(chosen) != 1:
        raise BadArguments("make try calls the module of one problem: name it, like make try P=6")
    (problem,), kind = chosen, chosen[0].kind
    path = arguments.submission / problem.module
    if not path.is_file():
        raise BadArguments(f"{arguments.submission} has no {problem.module}")
    sizes = dict(each.split("=", 1) for each in arguments.size)
    try:
        tiles = choose_tiles({name: sizes.pop(name) for name in TILES if name in sizes})
        if arguments.show:  # of several tiles and heads
            sizes = kind.example_sizes(problem) | sizes
        case = kind.small_case(problem, sizes)
    except ValueError as error:
        raise BadArguments(str(error)) from None
    print(f"{problem.entry_point} of {path.name}, unjudged: {case.describe(arguments.seed)}")
    torch.set_printoptions(precision=4, sci_mode=False, linewidth=118)
    names = arguments.show.replace(",", " ").split()
    if names and not (problem.uses_triton and device == "cpu"):
        raise BadArguments("SHOW follows the kernels of a problem that has some, with DEVICE=cpu")
    run(kind, problem, path, case, arguments.seed, device, tiles, names, arguments.program)
    return 0


def choose_tiles(sizes: dict[str, str]) -> dict[int, int]:
    """{place in TILES_INTERPRETER: tokens} of BLOCK_Q and BLOCK_K; raises ValueError."""
    for name, text in sizes.items():
        if not text.isdecimal() or int(text) not in (16, 32, 64, 128):
            raise ValueError(f"{name} must be 16, 32, 64 or 128; got {text}")
    return {TILES.index(name): int(text) for name, text in sizes.items()}


@contextlib.contextmanager
def loaded(problem, path, device):
    """The entry point of the file, as long as kernels run as they do in the grader."""
    import numpy
    import torch

    numpy.seterr(all="ignore")  # what overflows is a number as on a GPU, and no warning
    with contextlib.ExitStack() as stack:
        if device == "cpu":
            from grader.core.worker import without_gpu

            if problem.uses_triton:
                from grader.core import in_process

                stack.enter_context(in_process.machine())
            stack.enter_context(without_gpu.pass_for(without_gpu.LIKELY))
        stack.enter_context(torch.no_grad())
        yield runpy.run_path(str(path), run_name=path.stem)[problem.entry_point]


@contextlib.contextmanager
def unseen():
    """For calls that measure: what they print was printed before, and breakpoint() does not stop."""
    hook, sys.breakpointhook = sys.breakpointhook, lambda *args, **named: None
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        sys.breakpointhook = hook


def prepare(function, kind, case, tiles, device):
    """The arguments of a call beside the tensors; the module gets its tiles. Raises BadArguments."""
    own = function.__globals__
    if tiles and not (isinstance(own.get(VARIABLE), tuple) and device == "cpu"):
        raise BadArguments(f"BLOCK_Q and BLOCK_K are chosen on the CPU, where the module has a tuple {VARIABLE}")
    if tiles:
        own[VARIABLE] = tuple(tiles.get(place, size) for place, size in enumerate(own[VARIABLE]))
    try:
        return case.arguments | kind.objects(case, own)
    except ValueError as error:
        raise BadArguments(str(error)) from None


@contextlib.contextmanager
def followed(problem, device, program):
    """The Variables of the kernels that are launched while this is open; None without kernels in the machine."""
    if not (problem.uses_triton and device == "cpu"):
        yield None
        return
    from grader.core import in_process
    from grader.core.machine.variables import Variables

    variables = Variables(program)
    with in_process.machine([variables]):
        yield variables


def show_variables(names, variables, kind, problem, case, placed, tiles, program):
    """Print the variables of the submission's kernels beside those of the reference, where there is one."""
    from grader.commands import try_variables
    from grader.course.gaps import skeleton
    from grader.render import terminal

    if not 0 <= program < variables.programs:
        raise BadArguments(f"PROGRAM={program}: the kernel has programs 0 to {variables.programs - 1}")
    solutions, right, matched = course.current().solutions, None, set[str]()
    if (solution := solutions / problem.module).is_file():
        for path in solutions.glob("*.py"):
            matched |= set(re.findall(r"[A-Za-z_]\w*", skeleton(path.read_text(encoding="utf-8"), path.name)))
        with loaded(problem, solution, "cpu") as function, followed(problem, "cpu", program) as right, unseen():
            function(*(each.tensor for each in placed), **prepare(function, kind, case, tiles, "cpu"))
    shown, console = try_variables.compare(names, variables, right, matched), terminal.make_console()
    which = f"program {program} of {variables.programs}"
    console.print(f"{which}: values at the end of each tile; row 0 is the program's first", markup=False)
    for line, theirs in try_variables.lines(shown, variables, right):
        console.print(line, style="dim" if theirs else None, markup=False, soft_wrap=True)


def run(kind, problem, path, case, seed, device, tiles, names, program):
    """Call the entry point once as it is, then print its numbers beside the right ones, or variables of its kernels.

    tiles: {place in the module's TILES_INTERPRETER: tokens}. names: of variables; program: whose they are.
    """
    import torch

    from grader.engine import trying

    placed = kind.inputs(case, seed)
    with loaded(problem, path, device) as function:
        arguments = prepare(function, kind, case, tiles, device)
        with followed(problem, device, program) as variables:
            try:
                returned = function(*(each.tensor.to(device) for each in placed), **arguments)
            except Exception as error:
                print(what_raised(error, problem, path))
                return
        if names:
            return show_variables(names, variables, kind, problem, case, placed, tiles, program)
        returned = list(returned) if isinstance(returned, tuple | list) else [returned]
        wanted = [tuple(shape) for _, shape, _ in kind.outputs(problem, case)]
        got = [tuple(value.shape) if isinstance(value, torch.Tensor) else value for value in returned]
        if got != wanted:
            print(f"returned {got}; it must be {wanted}: nothing to compare")
            return
        with unseen():
            call = functools.partial(function, **arguments)
            shown = kind.tables(call, problem, case, placed, returned, device)
    if variables and variables.names_seen:
        print(f"variables that SHOW=... shows tile by tile: {', '.join(variables.names_seen)}\n")
    for table in shown:
        print("\n".join(trying.lines(table, trying.place_in(table, shown))), end="\n\n")
    print(kind.first_difference(case, shown) or NO_DIFFERENCE)


def what_raised(error, problem, path):
    """The sentence of make grade on an exception of the student's code; raises one of ours."""
    from grader.core.worker.replies import describe_error
    from grader.unfinished import explain_exception

    plain, text = getattr(error, "plain", error), path.read_text(encoding="utf-8")
    raised = describe_error(plain, str(path), text, problem.gap_word)
    if not (raised.line or raised.todo):
        raise error
    said = explain_exception(raised, problem, path).sentence
    return f"{said}: this gap of {path.name} is open" if raised.todo else said
