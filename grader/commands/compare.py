"""The command behind `make compare`: once a problem passes, its code beside the reference solution, and both costs.

It reads `solutions/`, which a handout does not have.
"""

import argparse
import ast
import difflib
import io
import tokenize
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from grader.commands.arguments import BadArguments
from grader.commands.make_request import add_arguments, begin, build_request
from grader.core.protocol.reports import Costs
from grader.core.sandbox.submission import Submission
from grader.core.sandbox.texts import clean
from grader.course import course
from grader.course.problem import SECONDS_PER_CASE, Problem
from grader.engine.grading import grade
from grader.engine.request import Request
from grader.kinds import registry
from grader.render import terminal
from grader.result import Outcome

__all__ = ["add_arguments", "main"]
HAVE_PASSED = (Outcome.PASSED, Outcome.NOT_RUN)  # speed needs a GPU; a case must have run


def main(arguments: argparse.Namespace) -> int:
    """Show one problem; raises BadArguments where it is not said which, or where nothing may be shown."""
    request = replace(build_request(arguments, None), targets=(), device="cpu")
    if not arguments.problems or len(request.problems) > 1:
        raise BadArguments("make compare shows one problem: name it, like make compare P=6")
    (problem,), solutions = request.problems, course.current().solutions
    if not (solutions / problem.module).is_file():
        raise BadArguments(f"there is no reference solution of {problem.id} here: a handout has none")
    begin(request, arguments.out)
    console = terminal.make_console()
    with terminal.make_progress(console, len(request.cases(problem))) as progress:
        results = grade(request, 1, lambda _, name: progress.update(progress.task_ids[0], advance=1, description=name))
    cases = [result for result in results if result.aspect.concerns_case]
    failing = next((result for result in cases if result.outcome is not Outcome.PASSED), None)
    failing = failing or next((result for result in results if result.outcome not in HAVE_PASSED), None)
    if failing:
        console.print(
            f'{problem.id}: "{failing.case}" is {failing.outcome.value}; the reference is shown once every case '
            f"passes: make grade P={problem.number}", markup=False, soft_wrap=True,
        )  # fmt: skip
        return 1
    files = [folder / problem.module for folder in (request.submission, solutions)]
    show_code(console, *(functions(path.read_text(encoding="utf-8")) for path in files))
    show_costs(console, *(costs_of(request, problem, path) for path in files))
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
    same = True
    for name in dict.fromkeys([*reference, *yours]):
        sides = yours.get(name, []), reference.get(name, [])
        table = Table(title=name, title_justify="left", expand=True, show_lines=True)
        for head in ("yours", "the reference"):
            table.add_column(head, ratio=1, overflow="fold")
        for tag, *places in difflib.SequenceMatcher(None, *sides, autojunk=False).get_opcodes():
            if tag != "equal":
                ranges = places[:2], places[2:]
                table.add_row(*(Text(clean("\n".join(side[a:b]))) for side, (a, b) in zip(sides, ranges, strict=True)))
        if table.row_count:
            same = False
            console.print(table)
    if same:
        console.print("your functions are the reference's, comments apart")


def costs_of(request: Request, problem: Problem, path: Path) -> tuple[str, Costs | None]:
    """(the case that was run, what the kernels cost in it); None where the problem has no kernel."""
    kind, cases = registry.kind_of(problem), request.cases(problem)
    case = kind.long_case(cases) or max(cases, key=kind.size)
    submission = Submission(path, problem, "cpu", SECONDS_PER_CASE["cpu"])
    try:
        trace = kind.reply(submission, case, kind.inputs(case, request.seed)).reply.trace
    finally:
        submission.close()
    return f'"{case.name}" ({case.describe(request.seed)})', trace.costs if trace else None


def show_costs(console: Console, yours: tuple[str, Costs | None], reference: tuple[str, Costs | None]) -> None:
    """A table of what differs in costs, as the machine counts them."""
    (case, mine), (_, theirs) = yours, reference
    if mine is None or theirs is None:
        return
    table = Table(title=f"what the kernels cost in {case}", title_justify="left")
    for head in ("elements", "yours", "the reference", "ratio"):
        table.add_column(head, justify="left" if head == "elements" else "right")
    rows = {
        "multiplied and added in dots": sum_of_dots, "computed in blocks": lambda costs: costs.computed,
        "loaded": lambda costs: costs.loaded, "stored": lambda costs: costs.stored,
        "held by one program at most": lambda costs: costs.held,
    }  # fmt: skip
    for name, count in rows.items():
        one, other = count(mine), count(theirs)
        table.add_row(name, f"{one:,}", f"{other:,}", f"{one / other:.2f}" if other else "")
    console.print(table)


def sum_of_dots(costs: Costs) -> int:
    return sum(dots.count for dots in costs.dots)
