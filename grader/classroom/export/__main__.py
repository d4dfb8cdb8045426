"""The command that writes a graded class's forms again: python -m grader.classroom.export OUT.

Exit status 0, or 2 where something cannot be read or filled in.
"""

import sys
from pathlib import Path

from grader.classroom import journal
from grader.classroom.export import canvas, decisions, everything, moodle
from grader.commands.arguments import BadArguments, Parser
from grader.core.sandbox.texts import clean


def parse(argv):
    parser = Parser(prog="python -m grader.classroom.export", allow_abbrev=False, description=__doc__.split(":")[0])
    parser.add_argument("out", type=Path, help="the folder of a graded class: OUT of make class")
    parser.add_argument("--canvas", type=Path, metavar="FILE", help="a gradebook exported from Canvas: fill --column")
    parser.add_argument("--column", metavar="NAME", help='the assignment in it, like "Assignment 1"')
    parser.add_argument("--moodle", type=Path, metavar="FILE", help="a grading worksheet of Moodle: fill Grade")
    parser.add_argument("--feedback", action="store_true", help="the worksheet's feedback too: points of each problem")
    options = parser.parse_args(argv)
    if options.canvas and not options.column:
        raise BadArguments('--canvas needs --column "NAME OF THE ASSIGNMENT": the column that is to be filled')
    if options.column and not options.canvas:
        raise BadArguments("--column is a column of Canvas' export: give that as --canvas FILE")
    if options.feedback and not options.moodle:
        raise BadArguments("--feedback is filled in Moodle's worksheet: give that as --moodle FILE")
    return options


def run(options):
    """Yield the lines to print; raises BadSheet and journal.JournalBroken."""
    graded = journal.read(options.out)
    decided = decisions.applied(graded, options.out)
    if options.canvas:
        yield from canvas.fill(
            decided, options.canvas, options.column, new_file(options.out / "canvas.csv", options.canvas)
        )
    if options.moodle:
        out = new_file(options.out / "moodle.csv", options.moodle)
        yield from moodle.fill(decided, options.moodle, out, options.feedback)
    if not (options.canvas or options.moodle):
        yield from everything.write(options.out, graded)


def new_file(path, given):
    """`path`; raises BadArguments where that is the instructor's own file, which is never changed."""
    if path.resolve() == given.resolve():
        raise BadArguments(f"{given} would be overwritten: move your export out of the class's folder, or rename it")
    return path


def main(argv=None):
    try:
        for line in run(parse(argv)):
            print(clean(line))
    except BadArguments as error:
        print(clean(f"export: {error}"), file=sys.stderr)
        return 2
    except OSError as error:
        print(clean(f"export: a file could not be written: {error.strerror} ({error.filename})"), file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
