"""class.html: how the class did, for the instructor alone; one file that needs no network.

The table of students can be searched and sorted by a few lines of JavaScript in the page; without it all is there.
"""

import statistics
from collections import Counter
from fractions import Fraction
from pathlib import Path

from grader.classroom import page
from grader.classroom.export.standing import NOT_HANDED_IN, decimal, review_remark
from grader.classroom.export.tallies import Tallies
from grader.classroom.names import list_some, shortened
from grader.core.sandbox import files
from grader.kinds.registry import EVERY
from grader.render import html
from grader.render.drawing import KINDS

TEMPLATES = Path(__file__).parent / "templates"
CASES_SHOWN, CAUSES_SHOWN = 12, 12  # the others are folded up
RANGES = 20  # into which the points are divided


def write(graded, out, similar=None):
    """Write `out`/class.html; returns the line to print.

    similar: similar.Found, what was found of copies; None where nobody looked.
    """
    path, ids = out / "class.html", {row.id for row in graded.submissions if row.handed_in}
    for old in (out / "pages").glob("*.html"):
        if old.stem not in ids:  # of a submission that is no longer in the class
            old.unlink(missing_ok=True)
    files.write(path, render(graded, out, similar))
    return f"class page: {path}"


def render(graded, out, similar=None):
    """The page as text."""
    tallies = Tallies(graded)
    links, notes = pages_of(graded, out)
    environment = html.templates(TEMPLATES)
    environment.filters |= {"points": decimal, "percent": percent, "review_remark": review_remark}
    most = sum(map(Fraction, graded.problems.values()), Fraction(0))
    totals = tallies.totals()
    return environment.get_template("class.html").render(
        kinds=KINDS, titles={id: EVERY[id].title if id in EVERY else "" for id in graded.problems}, links=links,
        names={student.row.id: student.name for student in tallies.students}, problems=list(tallies.problems.values()),
        facts=facts(tallies, totals, most), ranges=count_totals(totals, most),
        failing=tallies.failing(), cases_shown=CASES_SHOWN, causes=tallies.causes(), causes_shown=CAUSES_SHOWN,
        slowest=tallies.slowest(), to_review=tallies.to_review, faults=tallies.faults, students=tallies.students,
        similar=similar, notes=(*graded.notes, *notes),
    )  # fmt: skip


def pages_of(graded, out):
    """({row id: link}, notes) of the students' pages, those alone that show what counts now."""
    links, others = {}, []
    for row in graded.submissions:
        keys = {id: record.key for id, record in graded.find_records(row).items()} if row.handed_in else {}
        if keys and page.shows(out, row.id, keys):
            links[row.id] = f"pages/{row.id}.html"
        elif len(keys) == len(graded.problems) and page.path_of(out, row.id).exists():
            others.append((row.roster or {}).get("name") or row.title)
    if not others:
        return links, []
    who = list_some([shortened(name) for name in others], 10)
    return links, [
        f"Not linked, because their pages show something else than what counts now: {who}. make class writes them "
        "again where details/ still has what they are drawn from."
    ]


def facts(tallies, totals, most):
    """What stands at the top: short phrases."""
    count = Counter(student.status for student in tallies.students)
    missing = count.pop(NOT_HANDED_IN, 0)
    said = [f"{len(tallies.students) - missing} submissions", *(f"{n} {status}" for status, n in sorted(count.items()))]
    said += [f"{missing} not handed in"] if missing else []
    if totals:
        median, mean = statistics.median(totals), statistics.mean(totals)
        said.append(f"median {decimal(median)}, mean {decimal(mean)} of {decimal(most)} points")
    return said


def count_totals(totals, most):
    """[(range of points, how many submissions)], the most points first; from the lowest to the highest that occurs."""
    if not totals or not most:
        return []
    counts = Counter(min(RANGES - 1, max(0, int(total * RANGES / most))) for total in totals)
    width = most / RANGES
    return [
        (f"{decimal(i * width)} to {decimal((i + 1) * width)}", counts[i])
        for i in range(max(counts), min(counts) - 1, -1)
    ]


def percent(part, whole):
    """`37 %`; "" of nothing."""
    return f"{100 * part / whole:.0f} %" if whole else ""
