"""Results -> report.html: one file that needs no network and no JavaScript."""

import functools
import importlib.metadata
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import jinja2

from grader import score
from grader.core.sandbox import files
from grader.core.sandbox.texts import clean
from grader.course import course
from grader.registry import EVERY, LABS
from grader.render import terminal
from grader.render.drawing import KINDS, Drawing, draw
from grader.result import Aspect, CompileRow, Outcome, Result

FAILING_DRAWN = 5  # of one problem, with pictures
PASSING_BOXES = 2500  # likewise: tiles in the pictures of the cases that passed, some 25 bytes each
PRINTED_CHARACTERS = 4000  # of one case
PRINTED_CASES = 8  # of one problem


@dataclass
class View:
    """One case as the page shows it."""

    result: Result
    drawings: list[Drawing] = field(default_factory=list)
    tables: list[dict] = field(default_factory=list)
    printed: str = ""
    alike: list[Result] = field(default_factory=list)  # other cases with the same message
    left_out: str = ""
    open: bool = False


def write(results, request, seconds, path, name=None):
    """Write the page."""
    files.write(path, render(results, request, seconds, name))


@functools.cache
def templates(*folders):
    """The templates of the report, and of other folders before them: every page escapes what it is given."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([*folders, Path(__file__).parent / "templates"]),
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    environment.finalize = plain
    environment.globals["course"] = course.current().said.title
    environment.filters["px"] = lambda number: f"{number:.1f}".removesuffix(".0")
    return environment


def plain(value):
    """What a page prints, without what turns lines round or steers terminals; pictures are ours."""
    return clean(value) if type(value) is str else value


def render(results, request, seconds, name=None, said="", points=None, notes=()):
    """The page as text. name: of the submission, where it is not its folder's.

    said, points, notes: where an instructor has the last word, what stands for the score, {problem: its points as
    text}, and sentences below the score.
    """
    earned, possible = map(terminal.points, score.total(results))
    groups, whole, points = score.by_problem(results), request.names is None, points or {}
    said = said or (f"{earned} of {possible} points" if groups.keys() - LABS.keys() else "Labs, for no points")
    if not whole:
        said = f"only the case {', '.join(sorted(request.names))}: no points are counted"
    elif left := score.open_points(results):
        said += f", {terminal.points(left)} open: the grader failed"
    return templates().get_template("report.html").render(
        name=name or request.submission.name or "submission", score=said, kinds=KINDS, notes=notes,
        facts_of_run=facts_of_run(request, seconds),
        problems=[
            view | {"points": points.get(id, view["points"])}
            for id, view in ((id, problem_view(id, group, whole)) for id, group in groups.items())
        ],
    )  # fmt: skip


def facts_of_run(request, seconds):
    """Where, when and with what: short phrases."""
    where = "on the GPU" if request.device == "cuda" else "on the CPU, kernels run by the grader"
    versions = [f"Python {platform.python_version()}"]
    for package in ("torch", "triton"):
        try:
            versions.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"no {package}")
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    now = time.strftime("%Y-%m-%d %H:%M %Z")
    return [now, f"{seconds:.0f} s {where}", f"seed {request.seed_told}", ", ".join(versions), machine]


# One problem ---------------------------------------------------------------------------------------------------------


def problem_view(id, group, whole=True):
    """whole: False where some cases alone were asked for, which earn nothing."""
    outcome, first = terminal.verdict(group)
    cases = [r for r in group if is_case(r)]
    passing = [r for r in cases if r.outcome is Outcome.PASSED]
    failing = [r for r in group if r.outcome not in (Outcome.PASSED, Outcome.NOT_RUN)]
    failing += [r for r in cases if r.outcome is Outcome.NOT_RUN]
    views, left_out = views_of_passing(passing)
    return {
        "id": id, "title": EVERY[id].title, "outcome": outcome, "first": first,
        "points": terminal.points_of(id, group) if whole else "-", "lab": id in LABS,
        "good": len(passing), "cases": len(cases), "seconds": f"{sum(r.seconds for r in group):.1f}",
        "failing": views_of_failing(failing), "passing": views, "left_out": left_out,
        "lines": [notice(r) for r in group if r not in cases and r not in failing and says_something(r)],
        "compiled": [compile_table(r.facts.compiled) for r in group if r.facts.compiled],
    }  # fmt: skip


def is_case(result):
    return result.aspect.concerns_case


def says_something(result):
    """Of a result beside the cases that did not fail: work is worth a line where it is as it should be, too."""
    return bool(result.sentence) or result.aspect is Aspect.WORK


def notice(result):
    """`Speed: not run: needs a GPU`, `Work: passed`"""
    name = result.aspect.value.capitalize()
    if not result.sentence:
        return f"{name}: {result.outcome.value}"
    return result.sentence if result.sentence.lower().startswith(name.lower()) else f"{name}: {result.sentence}"


def views_of_failing(results):
    """A view for each message; the cases that share them are listed in the first one's."""
    views, drawn = {}, 0
    for result in terminal.explained_first(results):
        key = result.message
        if key in views:
            views[key].alike.append(result)
            continue
        view = views[key] = View(result, open=not views)
        view.printed = shorten(result.printed) if len(views) <= PRINTED_CASES else ""
        picture = result.facts.picture
        drawings = draw(picture)
        if "fault" in picture:
            view.left_out = f"Its picture could not be made, and that is the grader's fault: {picture['fault']}"
        elif drawings and drawn >= FAILING_DRAWN:
            show = result.again.replace("make grade", "make show")
            view.left_out = f"Its picture is left out, to keep this page small; to draw it: {show}"
        elif drawings:
            drawn += 1
            view.drawings = drawings
        view.tables = traffic_tables(picture)
    return list(views.values())


def views_of_passing(results):
    """(views, a sentence on the pictures that were left out)."""
    views, boxes, left_out = [], 0, 0
    for result in results:
        view = View(result, printed=shorten(result.printed) if len(views) < PRINTED_CASES else "")
        picture = result.facts.picture
        drawings = draw(picture)
        boxes += sum(len(layer) for drawing in drawings for layer in drawing.layers.values())
        if boxes <= PASSING_BOXES:
            view.drawings, view.tables = drawings, traffic_tables(picture)
        elif drawings:
            left_out += 1
        views.append(view)
    command = f"make show P={results[0].problem.removeprefix('p')} CASE=..." if results else ""
    more = f"Pictures of {left_out} cases are left out, to keep this page small; to draw one: {command}"
    return views, more if left_out else ""


def shorten(printed):
    left = len(printed) - PRINTED_CHARACTERS
    return printed if left <= 0 else f"{printed[:PRINTED_CHARACTERS]}\n[... {left} more characters]"


# One case ------------------------------------------------------------------------------------------------------------


def traffic_tables(picture):
    """What was visited, computed and moved, each against what the mask needs where that is known."""
    tables = []
    need, totals = picture.get("need"), picture.get("totals") or {}
    if need:
        rows = [
            ("tiles of keys visited", need["visited_tiles"], need["needed_tiles"]),
            ("bytes of K and V loaded", need["loaded_bytes"], need["needed_bytes"]),
        ]
        computed = (
            ("FLOPs in dots, against visible pairs", "dot_flops", "pair_flops"),
            ("exponentials, against visible pairs", "exponentials", "pairs"),
        )
        for name, key, needed in computed:
            if totals:
                rows.append((name, sum(t.get(key, 0) for t in totals.values()), need[needed]))
        caption = "Work against need"
        tables.append(table(caption, ("", "this kernel", "the mask needs"), rows))
    rows = []
    for kernel, total in totals.items():
        arguments = dict.fromkeys([*total.get("loaded", {}), *total.get("stored", {})])
        for argument in arguments:
            cells = [total.get(key, {}).get(argument) for key in ("loads", "loaded", "stores", "stored")]
            rows.append((argument if len(totals) == 1 else f"{kernel} {argument}", *cells))
    if rows:
        launched = ", ".join(
            f"{kernel}: {total.get('launches')} x {total.get('programs')} programs" for kernel, total in totals.items()
        )
        head = ("argument", "loads", "bytes loaded", "stores", "bytes stored")
        tables.append(table(f"Loads and stores ({launched})", head, rows))
    return tables


def compile_table(found: Sequence[CompileRow]) -> dict:
    """What the compiler for each GPU said of each kernel."""
    rows = []
    for each in found:
        shared = count(each.shared_bytes)
        shared += f" of {count(each.shared_limit)}" if shared and each.shared_limit else ""
        rows.append(
            (
                f"{each.kernel} for {each.target}", each.error or "yes", each.registers, each.spill_bytes, shared,
                each.matrix_instructions, each.num_warps, each.num_stages, each.seconds,
            )
        )  # fmt: skip
    head = ("kernel", "compiles", "registers", "bytes spilled", "bytes of shared memory", "matrix instructions",
            "warps", "stages", "seconds")  # fmt: skip
    return table("Compiled for a GPU, without one", head, rows)


def table(caption, head, rows):
    return {"caption": caption, "head": head, "rows": [[row[0], *map(count, row[1:])] for row in rows]}


def count(number):
    """What is not known is blank."""
    if number is None:
        return ""
    return f"{number:,}" if isinstance(number, int) else f"{number:.1f}" if isinstance(number, float) else str(number)
