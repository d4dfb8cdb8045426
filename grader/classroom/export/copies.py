"""A page for each pair of modules that are suspiciously alike: both side by side, what they share marked."""

from itertools import groupby

from grader.classroom.export.pages import TEMPLATES
from grader.course import course, gaps
from grader.kinds.registry import EVERY
from grader.render import html
from grader.render.drawing import KINDS

AROUND = 4  # lines about a marked one that are not folded up
# Lines of a fold, lines of a module, letters of a line that are written: a page is read, whatever was handed in.
FOLDED, SHOWN, WIDE = 2000, 20_000, 400
WORDS = {
    "wording": "names, remarks and code as they are written",
    "structure": "the code with all names made one: names and remarks may differ",
    "live": "the code that can run, with all names made one: names, remarks and what never runs may differ",
}


def write(graded, out, pairs):
    """Write `out`/copies/*.html, and take away those of an earlier run; returns the line to print."""
    folder = out / "copies"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*--*--*.html"):
        old.unlink()
    sources = texts(graded, out)
    names = {row.id: (row.roster or {}).get("name") or row.title for row in graded.submissions}
    for pair in pairs:
        (out / pair.page).write_text(render(pair, sources[pair.module], names), encoding="utf-8")
    many = "no pair" if not pairs else "1 pair" if len(pairs) == 1 else f"{len(pairs)} pairs"
    return f"suspected copies: {many} of modules" + (f", side by side in {folder}" if pairs else "")


def render(pair, sources, names):
    """The page of one pair as text."""
    sides = [
        {"id": id, "name": names[id], "parts": parts(sources[id], lines)}
        for id, lines in zip((pair.one, pair.other), pair.lines, strict=True)
    ]
    template = html.templates(TEMPLATES).get_template("copies.html")
    return template.render(pair=pair, sides=sides, what=WORDS[pair.look], kinds=KINDS)


def parts(text, marked):
    """[(how many lines are folded up, or 0, [(number from 1, line, whether it is alike)])]: far from marked lines."""
    lines = [(i + 1, seen(line[:WIDE]), i in marked) for i, line in enumerate(text.split("\n"))]
    near = {i for at in marked for i in range(at - AROUND, at + AROUND + 1)}
    runs = [(folded, list(run)) for folded, run in groupby(lines, key=lambda line: line[0] - 1 not in near)]
    found, left = [], SHOWN
    for folded, run in runs:
        most = min(left, FOLDED if folded else left)
        found += [(len(run) if folded or most < len(run) else 0, run[:most])] if most else []
        left -= min(most, len(run))
    return found


def seen(line):
    """The line with a mark for all that is not shown or turns lines round: what is seen is what was compared."""
    return "".join(c if c.isprintable() or c == "\t" else "\N{REPLACEMENT CHARACTER}" for c in line)


# What was handed in, and what was given ------------------------------------------------------------------------------


def texts(graded, out):
    """{module: {submission id: its text}} of all that was handed in for points; what cannot be read has none."""
    found = {EVERY[id].module: {} for id in graded.problems if EVERY[id].points}
    for row in graded.submissions:
        for module in found if row.handed_in and row.folder else ():
            path = out / row.folder / module
            if path.is_file():
                found[module][row.id] = path.read_text(encoding="utf-8", errors="replace")
    return found


def given(graded):
    """{module: [the skeleton's text, the solution's]}; problems/ may have been edited, so the skeleton is made anew."""
    found = {}
    for module in (EVERY[id].module for id in graded.problems):
        solution = (course.current().solutions / module).read_text(encoding="utf-8")
        found[module] = [gaps.skeleton(solution, module), solution]
    return found
