"""The command behind `make try`: a student's file called as it is, on small tensors, for prints and debuggers.

Its scores, weights and output are shown beside the right ones, up to the first row that differs. Nothing is judged and
nothing is recorded: kernels run in this process, in Triton's interpreter with the grader's semantics, or on a GPU.
`breakpoint()` works. Run it only on a file of your own.
"""

import argparse
import contextlib
import io
import os
import runpy
import sys
from pathlib import Path

from grader.commands.arguments import STUDENTS, BadArguments, choose_device, choose_problems

SIZES = {"B": 1, "Hq": 1, "Hkv": None, "N": 8, "D": 16, "window": None, "sinks": None, "seed": 0}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--problems", default="", metavar="NUMBER", help="of one problem, like 6")
    parser.add_argument("--submission", type=Path, default=STUDENTS, help="default: problems/")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: a GPU if there is one")
    parser.add_argument("--dtype", default="float32", choices=("float16", "bfloat16", "float32"))
    parser.add_argument("--causal", choices=("yes", "no"))
    for name, value in SIZES.items():
        parser.add_argument(f"--{name}", type=int, default=value)


def main(arguments: argparse.Namespace) -> int:
    """Call one problem's module and print its numbers beside the right ones; 0 whatever they are."""
    device = choose_device(arguments.device)
    if device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported
    import torch

    from grader.kinds.registry import LABS, PROBLEMS

    chosen = choose_problems(arguments.problems, PROBLEMS, LABS) if arguments.problems else ()
    if len(chosen) != 1 or chosen[0].id in LABS:
        raise BadArguments("make try calls the module of one problem, and of no lab: name it, like make try P=6")
    (problem,) = chosen
    for name in SIZES:
        value, least = getattr(arguments, name), 0 if name in ("sinks", "seed") else 1
        if value is not None and value < least:
            raise BadArguments(f"{name} must be {least} or more; got {value}")
    path = arguments.submission / problem.module
    if not path.is_file():
        raise BadArguments(f"{arguments.submission} has no {problem.module}")
    case = make_case(arguments, problem)
    print(f"{problem.entry_point} of {path.name}, unjudged: {case.describe(arguments.seed)}")
    torch.set_printoptions(precision=4, sci_mode=False, linewidth=118)
    run(problem, path, case, arguments.seed, device)
    return 0


def make_case(options, problem):
    """The small case that the options describe."""
    from grader.kinds.attention.cases import Case

    first = problem.cases[0]
    causal = first.causal if options.causal is None else options.causal == "yes"
    kv_heads = options.Hkv or options.Hq
    window = (options.window or 3) if first.window else None
    sinks = (options.sinks if options.sinks is not None else 1) if first.sinks is not None else None
    return Case(
        "try", options.B, options.Hq, kv_heads, options.N, None, options.D, options.dtype, causal, window, sinks
    )


@contextlib.contextmanager
def loaded(problem, path, device):
    """The entry point of the file, as long as kernels run as they do in the grader."""
    import numpy
    import torch

    numpy.seterr(all="ignore")  # what overflows is a number as on a GPU, and no warning
    with contextlib.ExitStack() as stack:
        if device == "cpu":
            from grader.core.inside import without_gpu

            if problem.uses_triton:
                from grader.core.interpret import blocks, semantics

                blocks.KNOWN["breakpoint"] = breakpoint  # a graded kernel may not have it
                semantics.take_first_config()
                semantics.enable()
            stack.enter_context(without_gpu.pass_for(without_gpu.INTERPRETED))
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


def run(problem, path, case, seed, device):
    """Call the entry point once as it is, then print its numbers beside the right ones."""
    import torch

    from grader.commands import tables
    from grader.kinds.attention import inputs, weights

    placed = inputs.make(case, seed)
    with loaded(problem, path, device) as function:
        returned = function(*(each.tensor.to(device) for each in placed), **case.arguments)
        returned = list(returned) if isinstance(returned, tuple | list) else [returned]
        shapes = [(case.B, case.Hq, case.N, case.D), (case.B, case.Hq, case.N)][: 1 + problem.returns_lse]
        got = [tuple(value.shape) if isinstance(value, torch.Tensor) else value for value in returned]
        if got != shapes:
            print(f"returned {got}; it must be {shapes}: nothing to compare")
            return
        with unseen():
            shown = tables.measure(
                lambda q, k, v: function(q, k, v, **case.arguments), problem, case, placed, returned, device
            )
    place = tables.first_difference(shown)
    for table in shown:
        print("\n".join(tables.lines(table, place or (0, 0, case.N - 1))), end="\n\n")
    print(tables.in_words(shown, place, weights.masks(case)) if place else "no difference, in any batch and head")
