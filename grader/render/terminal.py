"""Results -> the terminal: a progress line while it runs, details of each failure, and a table."""

from collections import Counter

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from grader import score
from grader.registry import EVERY, LABS, PROBLEMS
from grader.render import strips, text_map
from grader.result import Aspect, CompileRow, Outcome

STYLE = {
    Outcome.PASSED: "green", Outcome.UNFINISHED: "yellow", Outcome.NOT_RUN: "dim", Outcome.GRADER_FAULT: "magenta",
    Outcome.NEEDS_REVIEW: "magenta",
}  # fmt: skip
PLAIN_WIDTH = 120  # where output is not a terminal
FAILURES_SHOWN = 1  # whole, of one problem; the others have a line each
LINE = 120  # letters of what is said in a line
PRINTED_LINES = 8
PRINTED_LINES_OF_ONE = 200  # where one case was asked for


def make_console():
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=PLAIN_WIDTH, no_color=True)
    return console


def make_progress(console, total):
    """A line that moves while grading runs; nothing at all where the output is not a terminal."""
    columns = (
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
    )  # fmt: skip
    progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    progress.add_task("starting", total=total)
    return progress


def show(console, results, request, seconds, verbose=False):
    """Everything a student sees at the end. verbose: every failing case whole."""
    for group in score.by_problem(results).values():
        lines, whole = (None, FAILURES_SHOWN) if request.names is None else (PRINTED_LINES_OF_ONE, len(group))
        show_failures(console, group, lines, len(group) if verbose else whole)
        show_unjudged(console, group)
        show_compiled(console, group, asked=request.names is not None)
        if request.names is not None:  # one case was asked for: what it printed matters, passed or not
            for result in (r for r in group if r.outcome is Outcome.PASSED and r.printed):
                console.print(f'{result.problem} "{result.case}":', markup=False)
                show_printed(console, result.printed, PRINTED_LINES_OF_ONE)
    console.print(summary_table(console, results, whole=request.names is None))
    earned, possible = score.total(results)
    counted = request.names is None and possible  # labs alone have none
    said = f"{points(earned)} of {points(possible)} points, " if counted else ""
    kernels = any(EVERY[id].uses_triton for id in score.by_problem(results))
    where = "on the GPU" if request.device == "cuda" else "on the CPU"
    where += ", kernels run by the grader" if request.device == "cpu" and kernels else ""
    console.print(f"{said}{seconds:.0f} s {where}")
    show_open(console, results)
    show_reviews(console, results)
    if request.default_submission and earned == possible and score.by_problem(results).keys() == PROBLEMS.keys():
        past = list(EVERY)[list(EVERY).index(list(PROBLEMS)[-1]) + 1 :]  # warm-ups come before
        if past:
            console.print(f"past the ladder, for no points: make grade P={','.join(past)}")


def show_open(console, results):
    """`incomplete: the grader failed in 2 cases; 1.25 points are open: the same command tries again`"""
    faults = [result for result in results if result.outcome is Outcome.GRADER_FAULT]
    if faults:
        where = f"{len(faults)} case{'s' * (len(faults) > 1)}"
        console.print(
            f"incomplete: the grader failed in {where}; {points(score.open_points(results))} points are open: "
            "the same command tries again"
        )


def show_reviews(console, results):
    """`needs review: 1 problem (p3); it earns nothing until the instructor has decided`"""
    waiting = [id for id, group in score.by_problem(results).items() if score.needs_review(group)]
    if waiting:
        which = f"{len(waiting)} problem{'s' * (len(waiting) > 1)} ({', '.join(waiting)})"
        earn = "they earn" if len(waiting) > 1 else "it earns"
        console.print(f"needs review: {which}; {earn} nothing until the instructor has decided")


def points(fraction):
    """At most two decimals: 15, 3.21."""
    return f"{float(fraction):.2f}".rstrip("0").rstrip(".")


def points_of(id, group):
    """`12/15` of a problem; a lab has none."""
    return "-" if id in LABS else f"{points(sum(score.earned(group)))}/{points(sum(score.max_points(group)))}"


def show_failures(console, group, lines=None, whole=FAILURES_SHOWN):
    """Failing cases in the form that README.md shows, so many of them whole, the others in a line each.

    The same sentence again is counted, not repeated.
    """
    failures = [r for r in group if r.outcome not in (Outcome.PASSED, Outcome.NOT_RUN) and r.sentence]
    failures += [r for r in group if r.outcome is Outcome.NOT_RUN and r.aspect.concerns_case and r.sentence]
    failures = explained_first(failures)
    if group[0].outcome is Outcome.UNFINISHED and all(r.sentence == group[0].sentence for r in failures):
        return  # nothing but the first gap to speak of: the table names it
    alike = {}
    for result in failures:
        alike.setdefault(result.message, []).append(result)
    for (outcome, _), same in list(alike.items())[:whole]:
        first = same[0]
        head = Text(f'{first.problem} "{first.case}" ({first.description}): ')
        console.print(head + Text(outcome.value, style=STYLE.get(outcome, "red")), soft_wrap=True)
        show_sentence(console, first)
        for sign in first.facts.evidence[1:]:
            console.print(Text(f"  also: {sign}"), soft_wrap=True)
        show_map(console, text_map.draw(first.facts.picture))
        if len(same) > 1:
            what = "the same cause" if first.facts.causes else "the same"
            console.print(f"  {what} in {len(same) - 1} more case{'s' * (len(same) > 2)}", markup=False)
        show_printed(console, first.printed, PRINTED_LINES if lines is None else lines)
        if outcome is not Outcome.NOT_RUN:
            console.print(f"  again: {first.again}", markup=False, soft_wrap=True)
        console.print()
    shown = {result.case: same[0].case for same in alike.values() for result in same}
    rest = {}
    for same in list(alike.values())[whole:]:
        telling = same[0].facts.shown_by
        said = f'see case "{shown.get(telling, telling)}"' if telling else in_short(same[0].sentence)
        rest.setdefault((same[0].outcome.value, said), []).extend(same)
    for (outcome, said), (first, *more) in rest.items():
        others = f" and {len(more)} more" if more else ""
        console.print(f'{first.problem} "{first.case}"{others}: {outcome}: {said}', markup=False, soft_wrap=True)
    if rest:
        again = first.again.replace(f' CASE="{first.case}"', "")
        console.print(f"  whole: {again} VERBOSE=1\n", markup=False, soft_wrap=True)


def in_short(text):
    """The first sentence, or its beginning."""
    first = text.partition(". ")[0].rstrip(".")
    return first if len(first) <= LINE else f"{first[:LINE].rpartition(' ')[0]} ..."


def explained_first(results):
    """The results in their order, but wrong outputs without a cause later, and last what nothing was measured of.

    Of those with one, what most cases show comes first: a crash of all but one case, before that one.
    """

    def unknown(result):
        if not result.aspect.concerns_case:
            return 3
        if result.facts.causes or not result.facts.where:
            return 0
        return 1 if result.facts.measured and not result.facts.shown_by else 2

    def sign(result):
        return result.outcome, *sorted(cause.kind for cause in result.facts.causes)

    alike = Counter(map(sign, results))
    return sorted(results, key=lambda result: (unknown(result), -alike[sign(result)]))


def show_unjudged(console, group):
    """Why the work of a problem was not judged, once one of its cases is right; what is said of cases that are."""
    for result in (r for r in group if r.aspect.concerns_case and r.outcome is Outcome.PASSED and r.sentence):
        console.print(f'{result.problem} "{result.case}": {result.sentence}\n', markup=False, soft_wrap=True)
    if not any(r.outcome is Outcome.PASSED for r in group if r.aspect.concerns_case):
        return
    for result, most in zip(group, score.max_points(group), strict=True):
        if result.aspect is Aspect.WORK and result.outcome is Outcome.NOT_RUN:
            worth = f" ({points(most)} points)" if most else ""
            console.print(f"{result.problem} work{worth}: {result.sentence}\n", markup=False, soft_wrap=True)


def show_compiled(console, group, asked):
    """What is worth knowing of compiled kernels, or that they were not; all that is known where it was asked for."""
    all_passed = all(r.outcome is Outcome.PASSED for r in group if r.aspect.concerns_case)
    for result in (r for r in group if r.aspect is Aspect.COMPILE):
        if result.sentence and (result.outcome is Outcome.PASSED or (result.outcome is Outcome.NOT_RUN and all_passed)):
            start = f"{result.problem} on a GPU: " if result.outcome is Outcome.PASSED else f"{result.problem} "
            console.print(f"{start}{result.sentence}\n", markup=False, soft_wrap=True)
        for row in result.facts.compiled if asked else ():
            console.print(f"  {compiled(row)}", markup=False, soft_wrap=True)


def compiled(row: CompileRow) -> str:
    """One kernel on one GPU, in a line; what is not known is left out."""
    said = {
        "registers": "{} registers a thread", "spill_bytes": "{} bytes spilled",
        "shared_bytes": "{} bytes of shared memory", "matrix_instructions": "matrix instructions: {}",
        "num_warps": "{} warps", "num_stages": "{} stages",
    }  # fmt: skip
    known = [words.format(known) for name, words in said.items() if (known := getattr(row, name)) is not None]
    return f"{row.target} {row.kernel or ''}: {', '.join(known) or row.error or 'nothing is known'}"


def show_sentence(console, result):
    if result.sentence:
        console.print(Text(f"  {result.sentence}"), soft_wrap=True)
    if result.facts.question:
        console.print(Text(f"  ask yourself: {result.facts.question}"), soft_wrap=True)


def show_map(console, lines):
    for line in lines:
        console.print(f"    {line}", markup=False, soft_wrap=True)


def show_one(console, result):
    """One case in words and maps, passed or not: what `make show` says beside its picture."""
    head = Text(f'{result.problem} "{result.case}" ({result.description}): ')
    console.print(head + Text(result.outcome.value, style=STYLE.get(result.outcome, "red")), soft_wrap=True)
    show_sentence(console, result)
    picture = result.facts.picture
    if picture.get("heads"):
        show_map(console, text_map.draw_heads(picture["heads"]))
    if picture.get("letters"):
        show_map(console, text_map.draw_letters(picture["letters"]))
    if picture.get("strips"):
        show_map(console, strips.in_text(picture["strips"]))
    if picture.get("visits"):
        show_map(console, text_map.draw_visits(picture))
    elif picture.get("shown"):
        show_map(console, text_map.draw_mask(picture))
    show_printed(console, result.printed, PRINTED_LINES)


def show_printed(console, printed, limit):
    if not printed:
        return
    lines = printed.splitlines()
    console.print("  it printed:", markup=False)
    for line in lines[:limit]:
        console.print(f"    {line}", markup=False, soft_wrap=True)
    if len(lines) > limit:
        console.print(f"    ... {len(lines) - limit} more lines: CASE= shows those of one case", markup=False)


def summary_table(console, results, whole):
    """One line a problem: outcome, points, cases passed, time, and the first failure's sentence."""
    table = Table(box=box.SIMPLE_HEAD if console.is_terminal else box.ASCII2, pad_edge=False)
    for name, options in (
        ("problem", {"no_wrap": True}),
        ("outcome", {"no_wrap": True}),
        ("points", {"justify": "right", "no_wrap": True}),
        ("cases", {"justify": "right", "no_wrap": True}),
        ("time", {"justify": "right", "no_wrap": True}),
        ("first failure, or speed", {"ratio": 1}),
    ):  # fmt: skip
        table.add_column(name, **options)
    shown = []
    for id, group in score.by_problem(results).items():
        if shown and (id in LABS) != (shown[-1] in LABS):
            table.add_section()
        shown.append(id)
        outcome, first = verdict(group)
        cases = [r for r in group if r.aspect.concerns_case]
        good = sum(r.outcome is Outcome.PASSED for r in cases)
        table.add_row(
            f"{id} {EVERY[id].title}",
            Text(outcome.value, style=STYLE.get(outcome, "red")),
            points_of(id, group) if whole else "-",
            f"{good}/{len(cases)}" if cases else "-",
            f"{sum(r.seconds for r in group):.1f} s",
            Text(first),
        )
    return table


def verdict(group):
    """(outcome, sentence) of a problem: what needs review, its first failure, or passed and what is known of speed."""
    for result in score.needs_review(group) or explained_first(group):
        if result.outcome is not Outcome.PASSED and not score.could_not_be_known(result):
            text = result.sentence if len(result.sentence) <= 140 else result.sentence[:137] + "..."
            if result.outcome not in (Outcome.UNFINISHED, Outcome.NOT_RUN) and not text.startswith('"'):
                text = f'"{result.case}": {text}'
            return result.outcome, text
    speed = [r for r in group if r.aspect is Aspect.SPEED]
    return Outcome.PASSED, f"speed {speed[0].sentence}" if speed and speed[0].outcome is Outcome.NOT_RUN else "".join(
        r.sentence for r in speed
    )
