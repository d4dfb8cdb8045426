"""The one entry of the grader: python -m grader COMMAND [options].

Exit status 0 all is well, 1 a submission fails, 2 a fault of ours or of the arguments, 130 stopped.
"""

import importlib
import itertools
import os
import sys
from pathlib import Path

from grader.commands.arguments import FROM_MAKE, BadArguments, Parser
from grader.core.sandbox import handed_in, pool, scratch
from grader.core.sandbox.texts import clean
from grader.course import course
from grader.course.course import BadCourse

COMMANDS = {  # each command: its module in grader/commands, and what it does
    "grade": ("grade", "grade the modules of a folder"),
    "watch": ("watch", "grade again whenever a module is saved, until Ctrl-C"),
    "try": ("try_module", "call one module on small tensors, its numbers beside the right ones"),
    "hint": ("hint", "give the next hint on one problem"),
    "show": ("show", "draw one case of one problem"),
    "compare": ("compare", "show code that passes beside the reference solution, and what both cost"),
    "profile": ("profile", "look inside the kernels of one problem with Nsight Compute"),
    "doctor": ("doctor", "say what this machine offers, and what to install"),
    "skeletons": ("skeletons", "write problems/ from solutions/"),
    "handout": ("handout", "write what students get: a repository without answers"),
}


RUN_KERNELS = ("grade", "watch", "hint", "show", "compare")


def main(argv: list[str] | None = None) -> int:
    """Run the command that argv names, and import no other; returns the exit status."""
    argv = sys.argv[1:] if argv is None else argv
    scratch.choose_own_folder()
    parser = Parser(prog="python -m grader", description="The autograder.", allow_abbrev=False)
    commands = parser.add_subparsers(metavar="COMMAND")
    parsers = {name: commands.add_parser(name, help=does, description=does, allow_abbrev=False)
               for name, (_, does) in COMMANDS.items()}  # fmt: skip
    try:
        if argv[:1] and argv[0] in RUN_KERNELS:
            prepare_pool(find_folder(argv))
        if argv[:1] and argv[0] in COMMANDS:
            command, chosen = importlib.import_module(f"grader.commands.{COMMANDS[argv[0]][0]}"), parsers[argv[0]]
            command.add_arguments(chosen)
            return command.main(chosen.parse_args(chosen.take_from_make(argv[1:])))
        parser.parse_args(argv)
        parser.print_help()
        return 0
    except (BadArguments, BadCourse) as error:
        print(clean(f"grader: {error}"), file=sys.stderr)
        return 2


def prepare_pool(folder: Path) -> None:
    """Have the processes that a case needs import PyTorch and Triton while this one does: that takes seconds."""
    pool.begin("cpu")
    if folder.is_dir():
        with handed_in.readable(folder) as seen:
            if seen == folder:  # and no copy
                pool.begin("record", folder)


def find_folder(argv: list[str]) -> Path:
    """The folder that the command will grade, as far as that is known before its arguments are read."""
    given = dict(itertools.pairwise(argv)).get("--submission")
    if FROM_MAKE in argv:
        given = os.environ.get("SUBMISSION") or given
    return Path(given or course.current().students).resolve()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\nstopped; nothing was graded", flush=True)
        os._exit(130)  # the threads that waited for the children have nothing more to do
