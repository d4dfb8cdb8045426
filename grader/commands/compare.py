"""The command behind `make compare`: once a problem passes, its code beside the reference solution, and both costs.

It reads `solutions/`, which a handout does not have.
"""

import argparse
import ast
import contextlib
import difflib
import io
import tokenize
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from grader.commands.arguments import BadArguments
from grader.commands.grade import grade_visibly
from grader.commands.make_request import add_arguments, run_one
from grader.core.sandbox.submission import Submission
from grader.core.sandbox.texts import clean
from grader.course import course
from grader.course.problem import SECONDS_PER_CASE
from grader.engine.request import Request
from grader.render import terminal
from grader.result import Outcome

__all__ = ["add_arguments", "main"]


def main(arguments: argparse.Namespace) -> int:
    """Show one problem; raises BadArguments where it is not said which, or where nothing may be shown."""
    return run_one(arguments, None, "make compare P=6", run)


def run(request: Request, folder: Path) -> int:
    """Grade on the CPU, then show both; returns the exit status: 1 where a case does not pass."""
    (problem,), console = request.problems, terminal.make_console()
    reference = course.current().solutions / problem.module
    if not reference.is_file():
        raise BadArguments(f"there is no reference solution of {problem.id} here: a handout has none")
    request = replace(request, targets=(), device="cpu")
    for result in grade_visibly(console, request):
        not_needed = result.outcome is Outcome.NOT_RUN and not result.aspect.concerns_case  # speed needs a GPU
        if result.outcome is not Outcome.PASSED and not not_needed:
            why = f'"{result.case}" is {result.outcome.value}; the reference is shown once every case passes'
            console.print(f"{problem.id}: {why}: make grade P={problem.number}", markup=False, soft_wrap=True)
            return 1
    files = request.submission / problem.module, reference
    show_code(console, *(functions(path.read_text(encoding="utf-8")) for path in files))
    show_costs(console, request, files)
    return 0


def functions(text: str) -> dict[str, list[str]]:
    """{name: its lines without comments, docstrings and blank lines} of the functions of a module, in their order."""
    found, lines = {}, text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column].rstrip()
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef):
            if ast.get_docstring(node) is not None:
                words = slice(node.body[0].lineno - 1, node.body[0].end_lineno)
                lines[words] = [""] * len(lines[words])
            found[node.name] = [line for line in lines[node.lineno - 1 : node.end_lineno] if line.strip()]
    return found


def show_code(console: Console, yours: dict[str, list[str]], reference: dict[str, list[str]]) -> None:
    """The lines that differ, function by function, side by side; comments are not compared."""
    if yours == reference:
        console.print("your functions are the reference's, comments apart")
    for name in dict.fromkeys([*reference, *yours]):
        sides = yours.get(name, []), reference.get(name, [])
        table = Table("yours", "the reference", title=name, title_justify="left", expand=True, show_lines=True)
        for tag, a, b, c, d in difflib.SequenceMatcher(None, *sides, autojunk=False).get_opcodes():
            if tag != "equal":
                table.add_row(*(Text(clean("\n".join(lines))) for lines in (sides[0][a:b], sides[1][c:d])))
        if table.row_count:
            console.print(table)


def show_costs(console: Console, request: Request, files: tuple[Path, Path]) -> None:
    """A table of what both cost in the longest case, as the machine counts it; none where there is no kernel."""
    (problem,) = request.problems
    kind, cases, costs = problem.kind, request.cases(problem), []
    case = kind.long_case(cases) or max(cases, key=kind.size)
    for path in files:
        with contextlib.closing(Submission(path, problem, "cpu", SECONDS_PER_CASE["cpu"])) as submission:
            trace = kind.reply(submission, case, kind.inputs(case, request.seed)).reply.trace
        if not (trace and trace.costs):
            return
        costs.append({
            "multiplied and added in dots": sum(dots.count for dots in trace.costs.dots),
            "computed in blocks": trace.costs.computed, "loaded": trace.costs.loaded, "stored": trace.costs.stored,
            "held by one program at most": trace.costs.held,
        })  # fmt: skip
    table = Table("elements", title=f'what the kernels cost in "{case.name}" ({case.describe(request.seed)})')
    for head in ("yours", "the reference", "ratio"):
        table.add_column(head, justify="right")
    for name, mine in costs[0].items():
        theirs = costs[1][name]
        table.add_row(name, f"{mine:,}", f"{theirs:,}", f"{mine / theirs:.2f}" if theirs else "")
    console.print(table)
